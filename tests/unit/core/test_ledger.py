"""Counts by pod and workload: exact, never falling, and every drop with a source or in `other`."""

import pickle
from collections import Counter
from dataclasses import replace
from ipaddress import IPv4Address

from hypothesis import given
from hypothesis import strategies as st

from agent.core.counts import Count, CountKey, KernelCounts, with_starting_refusals
from agent.core.kinds import Kind
from agent.core.ledger import LAG_BUCKETS, NAMED_SOURCES, Histogram, Ledger
from agent.core.life import Stage
from agent.core.phases import Fact, Phase
from agent.core.records import Address, NamespaceIdentified, NetworkRemoved, PodChanged, PodRemoved, Workload
from agent.core.source_book import SourceName
from agent.core.tally import Tally, WorkloadKey
from agent.core.tracker import Tracker
from tests.unit.core.lives import NETNS, a_pod

KEY = WorkloadKey("shop", Workload("Deployment", "web"))
REFUSED = CountKey(NETNS, 8080, Kind.REFUSED, Fact.LISTENED | Fact.DELETED | Fact.CLOSED)
LATE = CountKey(NETNS, 8080, None, Fact.LISTENED | Fact.DELETED)
CLIENT = IPv4Address("10.0.0.9")
UNKNOWN_CLIENT = SourceName("unknown", "10.0.0.9")


def tracker_with_a_pod() -> Tracker:
    tracker = Tracker()
    tracker.apply(PodChanged(0, a_pod()))
    tracker.apply(NamespaceIdentified(0, NETNS, "uid-1"))
    return tracker


def counted(refused: int, sources: dict[tuple[int, Address], int] | None = None) -> KernelCounts:
    return KernelCounts({REFUSED: Count(refused, 1, 2)}, sources or {})


def test_a_pods_drops_are_its_workloads_drops() -> None:
    reading = Ledger().read(tracker_with_a_pod(), counted(5))
    assert reading.pods["uid-1"].dropped == {(Kind.REFUSED, Phase.CLOSED): 5}
    assert reading.workloads[KEY].dropped == {(Kind.REFUSED, Phase.CLOSED): 5}


def test_a_pod_that_nothing_happened_to_has_an_empty_tally() -> None:
    reading = Ledger().read(tracker_with_a_pod(), KernelCounts())
    assert reading.pods["uid-1"].dropped == Counter()
    assert reading.pods["uid-1"].last_attempt_ns is None


def test_a_workload_keeps_the_counts_of_a_pod_that_is_forgotten() -> None:
    tracker, ledger, counts = tracker_with_a_pod(), Ledger(), counted(5, {(NETNS, CLIENT): 5})
    life = tracker.lives["uid-1"]
    ledger.retire(life, ledger.read(tracker, counts).pods["uid-1"])
    tracker.forget(life)
    reading = ledger.read(tracker, KernelCounts())
    assert reading.workloads[KEY].dropped.total() == 5
    assert reading.sources[KEY] == {UNKNOWN_CLIENT: 5}
    assert reading.pods == {}


def test_drops_in_a_namespace_of_no_pod_are_unattributed() -> None:
    assert Ledger().read(Tracker(), counted(3)).unattributed == {Kind.REFUSED: 3}


def test_the_last_attempt_is_the_last_new_connection_late_or_refused() -> None:
    counts = KernelCounts({REFUSED: Count(1, 10, 20), LATE: Count(1, 30, 30)})
    assert Ledger().read(tracker_with_a_pod(), counts).pods["uid-1"].last_attempt_ns == 30


def test_a_source_that_the_kernel_evicted_goes_on_from_its_highest_count() -> None:
    tracker, ledger = tracker_with_a_pod(), Ledger()
    ledger.read(tracker, counted(9, {(NETNS, CLIENT): 9}))
    reading = ledger.read(tracker, counted(11, {(NETNS, CLIENT): 2}))
    assert reading.sources[KEY] == {UNKNOWN_CLIENT: 9, None: 2}


@given(st.lists(st.dictionaries(st.integers(1, 60), st.integers(1, 50), max_size=60), min_size=1, max_size=6))
def test_sources_and_other_add_up_and_never_fall(steps: list[dict[int, int]]) -> None:
    tracker, ledger = tracker_with_a_pod(), Ledger()
    so_far: Counter[int] = Counter()
    before: dict[SourceName | None, int] = {}
    for step in steps:
        so_far.update(step)
        sources: dict[tuple[int, Address], int] = {
            (NETNS, IPv4Address(number)): count for number, count in so_far.items()
        }
        shown = ledger.read(tracker, counted(so_far.total(), sources)).sources[KEY]
        assert sum(shown.values()) == so_far.total()
        assert len(shown) <= NAMED_SOURCES + 1
        assert all(shown[source] >= count for source, count in before.items())
        before = shown


def test_a_refusal_on_an_unserved_port_counts_only_once_somebody_listens_there() -> None:
    scan = CountKey(NETNS, 9000, Kind.REFUSED, Fact(0))
    unserved = {scan: Count(4, 1, 2)}
    assert with_starting_refusals({}, unserved, []) == {}
    assert with_starting_refusals({}, unserved, [(NETNS, 9000)]) == unserved


def test_a_stage_of_a_termination_is_observed_once() -> None:
    tracker, ledger = tracker_with_a_pod(), Ledger()
    for _ in range(3):
        ledger.observe_lag(tracker.lives["uid-1"], Stage.TRAFFIC, 0.3)
    assert sum(ledger.lags[KEY, Stage.TRAFFIC].counts) == 1


@given(st.floats(0, 1000))
def test_every_observation_falls_into_the_first_bucket_that_holds_it(seconds: float) -> None:
    histogram = Histogram()
    histogram.observe(seconds)
    bucket = histogram.counts.index(1)
    assert bucket == len(LAG_BUCKETS) or seconds <= LAG_BUCKETS[bucket]
    assert bucket == 0 or seconds > LAG_BUCKETS[bucket - 1]


def churned(tracker: Tracker, ledger: Ledger, numbers: range) -> KernelCounts:
    """Pods that come, are dropped from by a client of their own, end, and are forgotten; the last counts."""
    counts = KernelCounts()
    for number in numbers:
        uid, netns = f"uid-{number}", NETNS + number
        client = IPv4Address(number)
        key = CountKey(netns, 8080, Kind.REFUSED, REFUSED.facts)
        # The kernel's table of sources is evicted by use, so the last pods' entries are still in it.
        sources: dict[tuple[int, Address], int] = {
            (netns, client): 1,
            **dict(list(counts.sources.items())[:3]),
        }
        counts = KernelCounts({key: Count(1, 1, 2)}, sources)
        for record in (
            PodChanged(0, a_pod(uid)),
            NamespaceIdentified(0, netns, uid),
            PodRemoved(1, uid),
            NetworkRemoved(1, netns),
        ):
            tracker.apply(record)
        ledger.retire(tracker.lives[uid], ledger.read(tracker, counts).pods[uid])
        tracker.forget(tracker.lives[uid])
    return counts


def test_pods_that_come_and_go_leave_nothing_behind_but_their_workloads_counts() -> None:
    tracker, ledger = Tracker(), Ledger()
    churned(tracker, ledger, range(100, 150))
    before = len(pickle.dumps((tracker, ledger)))
    counts = churned(tracker, ledger, range(150, 400))
    ledger.read(tracker, KernelCounts(sources=counts.sources))
    assert ledger.read(tracker, KernelCounts()).workloads[KEY].dropped.total() == 300
    assert len(pickle.dumps((tracker, ledger))) < before + 500


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("drop"),
            st.integers(0, 3),
            st.sampled_from([None, *Kind]),
            st.integers(0, 127).map(Fact),
            st.integers(1, 50),
        ),
        st.tuples(st.just("forget"), st.integers(0, 3)),
    ),
    max_size=40,
)


@given(STEPS)
def test_a_workloads_counters_never_fall_when_its_pods_are_forgotten(steps: list[tuple[object, ...]]) -> None:
    tracker, ledger = Tracker(), Ledger()
    kernel: dict[CountKey, Count] = {}
    alive = dict.fromkeys(range(4), True)
    for number in alive:
        tracker.apply(PodChanged(0, a_pod(f"uid-{number}")))
        tracker.apply(NamespaceIdentified(0, number, f"uid-{number}"))
    before, total = Tally(), 0
    for step in steps:
        match step:
            case ("drop", int(number), Kind() | None as kind, Fact() as facts, int(count)) if alive[number]:
                key = CountKey(number, 8080, kind, facts)
                kernel[key] = kernel.get(key, Count(0, 1, 1)) + Count(count, 1, 2)
                total += count
            case ("forget", int(number)) if alive[number]:
                life = tracker.lives[f"uid-{number}"]
                ledger.retire(life, ledger.read(tracker, KernelCounts(kernel)).pods[life.pod.uid])
                tracker.forget(life)
                kernel = {key: count for key, count in kernel.items() if key.netns != number}
                alive[number] = False
        now = ledger.read(tracker, KernelCounts(kernel)).workloads.get(KEY, Tally())
        assert all(now.dropped[series] >= count for series, count in before.dropped.items())
        assert all(now.late[phase] >= count for phase, count in before.late.items())
        assert now.dropped.total() + now.late.total() == total
        before = now


def test_what_was_unattributed_stays_so_when_its_pod_becomes_known() -> None:
    ledger = Ledger()
    ledger.read(Tracker(), counted(3))
    reading = ledger.read(tracker_with_a_pod(), counted(4))
    assert reading.unattributed == {Kind.REFUSED: 3}
    assert reading.workloads[KEY].dropped.total() == 4


def test_what_a_forgotten_pod_counted_is_kept_by_its_name_while_a_known_pod_has_the_name() -> None:
    tracker, ledger = tracker_with_a_pod(), Ledger()
    tracker.apply(PodChanged(1, replace(a_pod("uid-2"), name=a_pod().name)))
    life = tracker.lives["uid-1"]
    ledger.retire(life, ledger.read(tracker, counted(5)).pods["uid-1"])
    tracker.forget(life)
    (kept,) = ledger.read(tracker, KernelCounts()).forgotten.values()
    assert kept.dropped.total() == 5
    ledger.retire(tracker.lives["uid-2"], Tally())
    tracker.forget(tracker.lives["uid-2"])
    assert ledger.read(tracker, KernelCounts()).forgotten == {}
