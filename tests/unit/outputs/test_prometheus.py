"""The metrics page: names, types and labels are a contract."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from agent.core.boundaries import Boundary, Moment, Source
from agent.core.counts import HookCounts
from agent.core.kinds import Kind
from agent.core.ledger import Histogram, Reading
from agent.core.life import PodLife, Stage
from agent.core.phases import Phase
from agent.core.records import KubeProxyState, Workload
from agent.core.snapshot import HookState, ProgramRuns, Snapshot, WatchState
from agent.core.source_book import SourceName
from agent.core.tally import Tally, key_of, pod_key_of
from agent.outputs.metric_table import METRICS
from agent.outputs.prometheus import AgentCollector
from tests.unit.core.lives import SECOND, a_pod

WORKLOAD = ("namespace", "workload_kind", "workload")
POD = ("namespace", "pod", "workload_kind", "workload")
CONTRACT = {
    "lastcall_pod_dropped_connections_total": ("counter", (*POD, "kind", "phase")),
    "lastcall_pod_late_connections_total": ("counter", (*POD, "phase")),
    "lastcall_pod_propagation_lag_seconds": ("gauge", POD),
    "lastcall_pod_termination_timestamp_seconds": ("gauge", (*POD, "event")),
    "lastcall_dropped_connections_total": ("counter", (*WORKLOAD, "kind", "phase")),
    "lastcall_late_connections_total": ("counter", (*WORKLOAD, "phase")),
    "lastcall_propagation_lag_seconds": ("histogram", (*WORKLOAD, "stage")),
    "lastcall_dropped_connections_by_source_total": ("counter", (*WORKLOAD, "source_kind", "source")),
    "lastcall_kube_proxy_up": ("gauge", ()),
    "lastcall_kube_proxy_last_sync_timestamp_seconds": ("gauge", ()),
    "lastcall_kube_proxy_sync_lag_seconds": ("histogram", ()),
    "lastcall_unattributed_dropped_connections_total": ("counter", ("kind",)),
    "lastcall_events_total": ("counter", ("hook",)),
    "lastcall_events_lost_total": ("counter", ("hook",)),
    "lastcall_hook_attached": ("gauge", ("hook", "variant")),
    "lastcall_program_run_seconds_total": ("counter", ("program",)),
    "lastcall_program_runs_total": ("counter", ("program",)),
    "lastcall_watch_restarts_total": ("counter", ("resource",)),
    "lastcall_last_watch_event_timestamp_seconds": ("gauge", ("resource",)),
    "lastcall_build_info": ("gauge", ("version",)),
}


def a_snapshot(life: PodLife, tally: Tally, *, kube_proxy: KubeProxyState | None = None) -> Snapshot:
    lag = Histogram()
    lag.observe(0.02)
    lag.observe(3)
    key = key_of(life)
    return Snapshot(
        lives=(life,),
        reading=Reading({life.pod.uid: tally}, {key: tally}, {key: {None: 2}}, Counter()),
        lags={(key, Stage.TRAFFIC): lag},
        kube_proxy=kube_proxy,
        kube_proxy_lag=Histogram(),
        hooks=(HookState("kfree_skb", "raw_tp", False),),
        hook_counts={},
        program_runs=(ProgramRuns("on_exit", 0.5, 10),),
        watches=(WatchState("pods", 1, None),),
    )


def page(snapshot: Snapshot) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    registry = CollectorRegistry()
    registry.register(AgentCollector(lambda: snapshot, "1"))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def dying() -> PodLife:
    life = PodLife(a_pod())
    life.own_boundaries[Boundary.DELETION_REQUESTED] = Moment(100 * SECOND, Source.API)
    return life


def test_a_pod_made_again_under_its_name_has_one_series_that_adds_up_and_its_own_times() -> None:
    before, again = (PodLife(replace(a_pod(uid), name="web-0")) for uid in ("uid-1", "uid-2"))
    before.own_boundaries[Boundary.DELETION_REQUESTED] = Moment(100 * SECOND, Source.API)
    again.own_boundaries[Boundary.DELETION_REQUESTED] = Moment(200 * SECOND, Source.API)
    refused = Counter({(Kind.REFUSED, Phase.CLOSED): 2})
    tally = Tally(refused, Counter({Phase.STOPPING: 1}), 101 * SECOND)
    snapshot = a_snapshot(before, tally)
    reading = replace(
        snapshot.reading,
        pods={"uid-1": tally, "uid-2": Tally(Counter(refused), last_attempt_ns=203 * SECOND)},
        forgotten={pod_key_of(before): Tally(Counter(refused))},
    )
    snapshot = replace(snapshot, lives=(before, again), reading=reading)
    samples = [
        (sample.name, tuple(sorted(sample.labels.items())))
        for family in AgentCollector(lambda: snapshot, "1").collect()
        for sample in family.samples
    ]
    assert len(samples) == len(set(samples))
    found = page(snapshot)
    shown = {name: value for (name, labels), value in found.items() if ("pod", "web-0") in labels and value}
    assert shown == {
        "lastcall_pod_dropped_connections_total": 6,
        "lastcall_pod_late_connections_total": 1,
        "lastcall_pod_propagation_lag_seconds": 3,
        "lastcall_pod_termination_timestamp_seconds": 200,
    }


def test_names_types_and_labels_are_those_of_the_contract() -> None:
    assert {metric.name: (metric.type.value, metric.labels) for metric in METRICS} == CONTRACT


def test_a_known_pod_has_series_at_zero_and_no_lag() -> None:
    found = page(a_snapshot(PodLife(a_pod()), Tally()))
    dropped = {
        key: value for key, value in found.items() if key[0] == "lastcall_pod_dropped_connections_total"
    }
    assert dropped
    assert set(dropped.values()) == {0}
    assert not [key for key in found if key[0] == "lastcall_pod_propagation_lag_seconds"]


def test_drops_are_shown_by_kind_and_phase() -> None:
    tally = Tally(Counter({(Kind.UNREAD, Phase.STOPPING): 7}))
    found = page(a_snapshot(dying(), tally))
    shown = {
        dict(labels)["kind"]: value
        for (name, labels), value in found.items()
        if name == "lastcall_pod_dropped_connections_total" and value
    }
    assert shown == {"unread": 7}


def test_the_lag_is_the_time_from_the_deletion_to_the_last_attempt() -> None:
    tally = Tally(last_attempt_ns=102 * SECOND + SECOND // 2)
    found = page(a_snapshot(dying(), tally))
    lags = [value for (name, _), value in found.items() if name == "lastcall_pod_propagation_lag_seconds"]
    assert lags == [2.5]


def test_buckets_are_cumulative() -> None:
    found = page(a_snapshot(dying(), Tally()))
    buckets = {
        float(dict(labels)["le"]): value
        for (name, labels), value in found.items()
        if name == "lastcall_propagation_lag_seconds_bucket"
    }
    assert (buckets[0.01], buckets[0.025], buckets[2.5], buckets[5.0], buckets[float("inf")]) == (
        0,
        1,
        1,
        2,
        2,
    )


def test_what_was_not_observed_has_no_series() -> None:
    names = {name for name, _ in page(a_snapshot(dying(), Tally()))}
    assert "lastcall_kube_proxy_up" not in names
    assert "lastcall_last_watch_event_timestamp_seconds" not in names


def test_a_kube_proxy_that_is_away_is_shown_as_down() -> None:
    state = KubeProxyState(1, False, None, None, None)
    found = page(a_snapshot(dying(), Tally(), kube_proxy=state))
    assert found["lastcall_kube_proxy_up", ()] == 0
    assert ("lastcall_kube_proxy_last_sync_timestamp_seconds", ()) not in found


def full_snapshot() -> Snapshot:
    """A snapshot in which every family has something to show."""
    tally = Tally(Counter({(Kind.REFUSED, Phase.CLOSED): 2}), Counter({Phase.STOPPING: 1}), 102 * SECOND)
    life = dying()
    state = KubeProxyState(1, True, 9 * SECOND, 8 * SECOND, 0)
    return replace(
        a_snapshot(life, tally, kube_proxy=state),
        hook_counts={"kfree_skb": HookCounts(5, 0)},
        watches=(WatchState("pods", 1, 7 * SECOND),),
    )


def test_the_page_has_every_family_of_the_contract_with_its_type_and_labels() -> None:
    registry = CollectorRegistry()
    registry.register(AgentCollector(full_snapshot, "1"))
    found = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        name = family.name + "_total" * (family.type == "counter")
        labels = {tuple(sorted(sample.labels.keys() - {"le"})) for sample in family.samples}
        found[name] = (family.type, labels)
    assert found == {
        name: (metric_type, {tuple(sorted(labels))}) for name, (metric_type, labels) in CONTRACT.items()
    }


@given(st.text(min_size=1))
def test_names_that_others_choose_survive_the_exposition(name: str) -> None:
    pod = replace(a_pod(), name=name, namespace=name, workload=Workload(name, name))
    found = page(a_snapshot(PodLife(pod), Tally(Counter({(Kind.REFUSED, Phase.CLOSED): 3}))))
    shown = [
        dict(labels)
        for (family, labels), value in found.items()
        if family == "lastcall_pod_dropped_connections_total" and value == 3
    ]
    (labels,) = shown
    assert {labels[label] for label in POD} == {name}


def test_each_source_has_its_series_and_the_rest_is_other() -> None:
    life = dying()
    load = SourceName("pod", "shop/Job/load")
    snapshot = a_snapshot(life, Tally())
    snapshot = replace(
        snapshot, reading=replace(snapshot.reading, sources={key_of(life): {load: 7, None: 2}})
    )
    shown = {
        (dict(labels)["source_kind"], dict(labels)["source"]): value
        for (family, labels), value in page(snapshot).items()
        if family == "lastcall_dropped_connections_by_source_total"
    }
    assert shown == {("pod", "shop/Job/load"): 7, ("other", "other"): 2}


def test_each_boundary_has_its_time_and_what_has_not_happened_has_none() -> None:
    shown = {
        dict(labels)["event"]: value
        for (family, labels), value in page(a_snapshot(dying(), Tally())).items()
        if family == "lastcall_pod_termination_timestamp_seconds"
    }
    assert shown == {"deletion_requested": 100}


def test_a_histograms_count_and_sum_are_those_of_its_observations() -> None:
    found = page(a_snapshot(dying(), Tally()))
    values = {
        family: value for (family, labels), value in found.items() if dict(labels).get("stage") == "traffic"
    }
    assert values["lastcall_propagation_lag_seconds_count"] == 2
    assert values["lastcall_propagation_lag_seconds_sum"] == 3.02


def test_a_hook_that_is_not_attached_is_shown_at_zero() -> None:
    found = page(a_snapshot(dying(), Tally()))
    assert found["lastcall_hook_attached", (("hook", "kfree_skb"), ("variant", "raw_tp"))] == 0


def test_programs_have_no_series_while_their_runs_are_not_counted() -> None:
    idle = replace(a_snapshot(dying(), Tally()), program_runs=(ProgramRuns("on_exit", 0.0, 0),))
    assert not [name for name, _ in page(idle) if name.startswith("lastcall_program")]
