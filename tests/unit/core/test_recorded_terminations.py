"""Recorded deletions, by the watches alone: what a termination says of them, against what was measured.

The expected times were written by hand from the milestones that other tools noted while the watches were
recorded, in milliseconds after the DELETE call.
"""

from dataclasses import dataclass

import pytest

from agent.core.boundaries import Boundary, Moment, Source
from agent.core.container_run import Exit
from agent.core.life import Stage
from agent.core.phases import Phase
from agent.core.prestop import PreStopOutcome
from agent.core.reason import Reason
from agent.core.termination import Scope, Termination, terminations
from agent.core.tracker import Tracker
from tests.unit.core.test_recorded_lives import cluster_records

MILLISECOND = 1_000_000
TOLERANCE = 5.0
"""Milliseconds between what the watches tell and what other tools saw."""


@dataclass(frozen=True, slots=True)
class Milestones:
    """Milliseconds after the DELETE call, which was sent at `sent_ns`; None where no watch can tell."""

    sent_ns: int
    watch: float
    prestop_started: float | None
    prestop_ended: float | None
    endpointslice: float
    exited: float
    network_removed: float
    object_deleted: float
    outcome: PreStopOutcome
    killed: bool = False


MEASURED = {
    "prestop-sleep": Milestones(
        sent_ns=1796001100035779025,
        watch=4.0,
        prestop_started=5.0,
        prestop_ended=3005.2,
        endpointslice=17.8,
        exited=3013.0,
        network_removed=3373.0,
        object_deleted=4357.4,
        outcome=PreStopOutcome.RAN,
    ),
    "prestop-exec": Milestones(
        sent_ns=1796001161625595264,
        watch=5.5,
        prestop_started=7.5,
        prestop_ended=None,
        endpointslice=18.9,
        exited=4056.0,
        network_removed=4288.0,
        object_deleted=4988.0,
        outcome=PreStopOutcome.RAN,
    ),
    "prestop-http": Milestones(
        sent_ns=1796001170731720620,
        watch=5.8,
        prestop_started=9.3,
        prestop_ended=None,
        endpointslice=34.4,
        exited=2032.2,
        network_removed=2293.2,
        object_deleted=2900.0,
        outcome=PreStopOutcome.RAN,
    ),
    "prestop-fails": Milestones(
        sent_ns=1796001177709043524,
        watch=5.5,
        prestop_started=9.6,
        prestop_ended=66.8,
        endpointslice=22.8,
        exited=75.1,
        network_removed=266.2,
        object_deleted=979.4,
        outcome=PreStopOutcome.FAILED,
    ),
    "exits-at-once": Milestones(
        sent_ns=1796001201710280168,
        watch=7.8,
        prestop_started=None,
        prestop_ended=None,
        endpointslice=19.6,
        exited=22.0,
        network_removed=267.6,
        object_deleted=1040.7,
        outcome=PreStopOutcome.ABSENT,
    ),
    "ignores-sigterm": Milestones(
        sent_ns=1796001191809866509,
        watch=5.5,
        prestop_started=None,
        prestop_ended=None,
        endpointslice=25.0,
        exited=5033.0,
        network_removed=5236.2,
        object_deleted=5929.8,
        outcome=PreStopOutcome.ABSENT,
        killed=True,
    ),
}


def ends_of(case: str) -> tuple[Termination, ...]:
    tracker = Tracker()
    for record in cluster_records(case):
        tracker.apply(record)
    return terminations(tracker.lives.values(), {}, tracker.kube_proxy)


def the_end_of(case: str) -> Termination:
    (end,) = ends_of(case)
    return end


@pytest.mark.parametrize("case", MEASURED)
def test_what_the_watches_date_is_within_5_ms_of_what_was_measured(case: str) -> None:
    end, measured = the_end_of(case), MEASURED[case]
    expected = {
        Boundary.DELETION_REQUESTED: measured.watch,
        Boundary.PRESTOP_STARTED: measured.prestop_started,
        Boundary.PRESTOP_ENDED: measured.prestop_ended,
        Boundary.OBJECT_DELETED: measured.object_deleted,
    }
    found = {
        boundary: (end.boundaries[boundary].at_ns - measured.sent_ns) / MILLISECOND
        for boundary, at in expected.items()
        if at is not None
    }
    wanted = {boundary: at for boundary, at in expected.items() if at is not None}
    assert found == pytest.approx(wanted, abs=TOLERANCE)


@pytest.mark.parametrize("case", MEASURED)
def test_what_the_status_tells_late_lies_between_its_bounds(case: str) -> None:
    end, measured = the_end_of(case), MEASURED[case]
    exited = end.boundaries[Boundary.EXITED]
    assert exited.source is Source.API
    assert exited.not_before_ns is not None
    assert exited.not_before_ns <= measured.sent_ns + measured.exited * MILLISECOND <= exited.at_ns
    removed = (end.boundaries[Boundary.NETWORK_REMOVED].at_ns - measured.sent_ns) / MILLISECOND
    assert measured.network_removed <= removed < measured.network_removed + 50


@pytest.mark.parametrize("case", MEASURED)
def test_the_endpointslice_stage_is_the_time_between_the_two_watches(case: str) -> None:
    end, measured = the_end_of(case), MEASURED[case]
    seconds = end.stages[Stage.ENDPOINTSLICE].seconds
    assert seconds is not None
    assert seconds * 1000 == pytest.approx(measured.endpointslice - measured.watch, abs=TOLERANCE)


@pytest.mark.parametrize("case", MEASURED)
def test_what_no_watch_can_tell_is_unknown_with_a_reason(case: str) -> None:
    end = the_end_of(case)
    assert Boundary.STOP_SIGNAL not in end.boundaries
    assert Boundary.LISTENER_CLOSED not in end.boundaries
    assert (end.dropped, end.late) == (None, None)
    assert end.stages[Stage.KUBE_PROXY].missing == "nobody watched this node's kube-proxy"
    assert end.stages[Stage.TRAFFIC].missing == "nobody watched the pod's connections"
    assert (end.stages[Stage.KUBE_PROXY].seconds, end.stages[Stage.TRAFFIC].seconds) == (None, None)


@pytest.mark.parametrize("case", MEASURED)
def test_a_hook_is_judged_by_what_happened(case: str) -> None:
    (container,) = the_end_of(case).containers
    assert container.prestop_outcome is MEASURED[case].outcome


@pytest.mark.parametrize("case", MEASURED)
def test_a_kill_at_the_end_of_the_grace_period_is_inferred_from_the_exit_status(case: str) -> None:
    end = the_end_of(case)
    (container,) = end.containers
    kill = end.boundaries.get(Boundary.KILL_SIGNAL)
    if not MEASURED[case].killed:
        assert (kill, container.exit) == (None, Exit(0, None, "Completed"))
        return
    assert container.exit == Exit(137, 9, "Error")
    grace_over_ns = end.began_ns + int(end.grace_seconds * 10**9)
    assert kill == Moment(end.boundaries[Boundary.EXITED].at_ns, Source.INFERRED, grace_over_ns)


@pytest.mark.parametrize("case", MEASURED)
def test_the_phases_follow_each_other_and_unseen_bounds_stay_unknown(case: str) -> None:
    end, measured = the_end_of(case), MEASURED[case]
    first = Phase.TERMINATING if measured.outcome is PreStopOutcome.ABSENT else Phase.PRESTOP
    assert [span.phase for span in end.phases] == [
        first,
        Phase.STOPPING,
        Phase.CLOSED,
        Phase.EXITED,
        Phase.GONE,
    ]
    known = [(span.began is not None, span.ended is not None) for span in end.phases]
    assert known == [(True, False), (False, False), (False, True), (True, True), (True, False)]


@pytest.mark.parametrize(
    ("case", "reasons"),
    [
        ("eviction", [Reason.EVICTED]),
        ("exits-at-once", [Reason.DELETED]),
        ("force-delete", [Reason.FORCE_DELETED]),
        ("ignores-sigterm", [Reason.DELETED]),
        ("liveness-restart", [Reason.LIVENESS_PROBE]),
        ("prestop-exec", [Reason.DELETED]),
        ("prestop-fails", [Reason.DELETED]),
        ("prestop-http", [Reason.DELETED]),
        ("prestop-sleep", [Reason.DELETED]),
        ("readiness-flip", []),
        ("rollout-no-prestop", [Reason.DELETED] * 3),
        ("scale-to-zero", [Reason.DELETED] * 3),
    ],
)
def test_each_end_has_its_reason_and_what_is_no_end_has_none(case: str, reasons: list[Reason]) -> None:
    assert [end.reason for end in ends_of(case)] == reasons


def test_an_eviction_is_over_with_its_object() -> None:
    end = the_end_of("eviction")
    seconds = {boundary: (moment.at_ns - end.began_ns) / 1e9 for boundary, moment in end.boundaries.items()}
    # Milliseconds after the deletion was told, of the recorded events: 374.8 - 5.9 and 841.1 - 5.9.
    assert seconds[Boundary.EXITED] == pytest.approx(0.3689, abs=0.001)
    assert seconds[Boundary.OBJECT_DELETED] == pytest.approx(0.8352, abs=0.001)
    assert end.stages[Stage.ENDPOINTSLICE].seconds == pytest.approx(0.0125, abs=0.001)


def test_a_headless_service_that_publishes_pods_until_their_end_hides_no_lag_of_another() -> None:
    assert not the_end_of("eviction").served_by_design


def test_a_force_deleted_pod_is_forgotten_by_the_api_while_it_lives() -> None:
    end = the_end_of("force-delete")
    assert list(end.boundaries) == [
        Boundary.DELETION_REQUESTED,
        Boundary.PRESTOP_STARTED,
        Boundary.OBJECT_DELETED,
    ]
    assert end.grace_seconds == 0
    assert [container.prestop_outcome for container in end.containers] == [PreStopOutcome.UNKNOWN]


def test_a_liveness_restart_is_the_end_of_a_container_and_not_of_its_pod() -> None:
    end = the_end_of("liveness-restart")
    (container,) = end.containers
    assert (end.scope, container.name, end.stages) == (Scope.CONTAINER, "app", {})
    assert (container.prestop_outcome, container.exit) == (PreStopOutcome.RAN, Exit(0, None, "Completed"))
    assert end.boundaries[Boundary.PRESTOP_STARTED].source is Source.EVENT


def test_the_last_endpoints_are_served_by_design() -> None:
    assert [end.served_by_design for end in ends_of("scale-to-zero")] == [True] * 3
    assert [end.served_by_design for end in ends_of("rollout-no-prestop")] == [False] * 3
