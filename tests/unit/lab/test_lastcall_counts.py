"""The agent's metrics page is read by its contract."""

import pytest

from agent.core.kinds import Kind
from agent.core.phases import Phase
from agent.lab.lastcall_counts import StageLag, lastcall_counts

PAGE = """\
# TYPE lastcall_pod_dropped_connections_total counter
lastcall_pod_dropped_connections_total{namespace="a",pod="w-1",workload_kind="Deployment",workload="w",kind="refused",phase="closed"} 3
lastcall_pod_dropped_connections_total{namespace="a",pod="w-2",workload_kind="Deployment",workload="w",kind="refused",phase="exited"} 2
lastcall_pod_dropped_connections_total{namespace="a",pod="w-2",workload_kind="Deployment",workload="w",kind="stale",phase="closed"} 0
lastcall_pod_dropped_connections_total{namespace="b",pod="x-1",workload_kind="Deployment",workload="x",kind="stale",phase="closed"} 7
# TYPE lastcall_pod_late_connections_total counter
lastcall_pod_late_connections_total{namespace="a",pod="w-1",workload_kind="Deployment",workload="w",phase="prestop"} 4
# TYPE lastcall_pod_propagation_lag_seconds gauge
lastcall_pod_propagation_lag_seconds{namespace="a",pod="w-1",workload_kind="Deployment",workload="w"} 1.5
lastcall_pod_propagation_lag_seconds{namespace="a",pod="w-2",workload_kind="Deployment",workload="w"} NaN
# TYPE lastcall_propagation_lag_seconds histogram
lastcall_propagation_lag_seconds_bucket{namespace="a",workload_kind="Deployment",workload="w",stage="traffic",le="+Inf"} 2
lastcall_propagation_lag_seconds_sum{namespace="a",workload_kind="Deployment",workload="w",stage="traffic"} 3.0
lastcall_propagation_lag_seconds_count{namespace="a",workload_kind="Deployment",workload="w",stage="traffic"} 2
# TYPE lastcall_events_lost_total counter
lastcall_events_lost_total{hook="tcp_send_reset"} 1
"""  # noqa: E501


def test_only_the_namespace_asked_for_is_counted() -> None:
    counts = lastcall_counts(PAGE, "a")
    assert counts.by_kind == {Kind.REFUSED: 5}
    assert counts.by_kind_and_phase == {
        (Kind.REFUSED, Phase.CLOSED): 3,
        (Kind.REFUSED, Phase.EXITED): 2,
    }
    assert counts.late_by_pod == {"w-1": 4}
    assert counts.late_by_phase == {Phase.PRESTOP: 4}
    assert counts.lost_events == 1


def test_a_lag_that_was_not_observed_is_none() -> None:
    assert lastcall_counts(PAGE, "a").longest_lag == 1.5
    assert lastcall_counts(PAGE, "a").stages == {"traffic": StageLag(2, 1.5)}
    assert lastcall_counts(PAGE, "b").longest_lag is None


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(ValueError, match="melted"):
        lastcall_counts(PAGE.replace('kind="stale"', 'kind="melted"'), "a")
