"""Recorded deletions together with what the kernel saw of them: one life with every boundary in its place."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.cluster.events import NamespaceEvents
from agent.cluster.pods import NodePods
from agent.cluster.slices import NamespaceSlices
from agent.cluster.watch_event import Change
from agent.core.boundaries import Boundary
from agent.core.life import PodLife, Stage
from agent.core.orders import FollowNamespace, MarkAddressGone, Order, SetPodFacts, UnfollowNamespace
from agent.core.phases import Fact
from agent.core.records import (
    ContainerExited,
    ListenerClosed,
    ListenerOpened,
    NamespaceIdentified,
    NetworkRemoved,
    PodChanged,
    PodRemoved,
    Record,
    SignalResult,
    StopSignalSent,
)
from agent.core.tracker import Tracker
from tests.recordings.reader import recorded_events
from tests.unit.core.lives import NETNS

MILLISECOND = 1_000_000
INIT = 24723
PORT = 8080
DECLARED = Fact.DELETED | Fact.PRESTOP_DECLARED


@dataclass(frozen=True, slots=True)
class KernelView:
    """Milliseconds after the deletion was seen, measured by other tools while the watches were recorded."""

    stop_signal: float
    exited: float
    network_removed: float
    listener_closed: float | None = None
    """None: the listener closed with the exit."""
    kill_signal: float | None = None
    prestop_ended: float | None = None
    """What the cluster side tells of it, or the stop signal."""


SEEN_BY_THE_KERNEL = {
    "exits-at-once": KernelView(stop_signal=14.1, exited=14.2, network_removed=141.6),
    "ignores-sigterm": KernelView(
        stop_signal=18.0, exited=5027.5, network_removed=5128.1, kill_signal=5026.6
    ),
    "prestop-fails": KernelView(
        stop_signal=68.1, listener_closed=68.7, exited=69.6, network_removed=168.1, prestop_ended=61.3
    ),
    "prestop-sleep": KernelView(
        stop_signal=3008.3,
        listener_closed=3008.6,
        exited=3009.0,
        network_removed=3369.0,
        prestop_ended=3008.3,
    ),
}


def cluster_records(case: str) -> list[Record]:
    """The watches of a case, in the order of their receipt."""
    told: list[Record] = []
    pods, slices = NodePods(told.append), NamespaceSlices("node1", told.append)
    about_pods = NamespaceEvents(told.append)
    events = [
        (event.at_ns, take, event)
        for name, take in (
            ("pods", pods.changed),
            ("endpointslices", slices.changed),
            ("events", about_pods.changed),
        )
        for event in recorded_events(f"deletions/{case}/watch-{name}.jsonl")
    ]
    for at_ns, take, event in sorted(events, key=lambda entry: entry[0]):
        take(Change(event.type), event.object, at_ns)
    return told


def first_deletion(records: list[Record]) -> PodChanged:
    return next(
        record
        for record in records
        if isinstance(record, PodChanged) and record.pod.deletion_requested_ns is not None
    )


def signal(at_ns: int, number: int) -> StopSignalSent:
    return StopSignalSent(at_ns, NETNS, INIT, number, SignalResult.DELIVERED, "runc")


def kernel_records(view: KernelView, deleted_ns: int, cgroup_uid: str) -> list[Record]:
    def at(milliseconds: float) -> int:
        return deleted_ns + int(milliseconds * MILLISECOND)

    by_exit = view.listener_closed is None
    records: list[Record] = [
        NamespaceIdentified(at(-900), NETNS, cgroup_uid),
        ListenerOpened(at(-800), NETNS, PORT, INIT),
        signal(at(view.stop_signal), 15),
        ContainerExited(at(view.exited), NETNS, INIT, 0),
        ListenerClosed(at(view.listener_closed or view.exited), NETNS, PORT, by_exit),
        NetworkRemoved(at(view.network_removed), NETNS),
    ]
    if view.kill_signal is not None:
        records.append(signal(at(view.kill_signal), 9))
    return sorted(records, key=lambda record: record.at_ns)


def streams(case: str) -> tuple[list[Record], list[Record]]:
    """What the cluster side and the kernel side tell of a case whose pod was known before its deletion."""
    cluster = cluster_records(case)
    deletion = first_deletion(cluster)
    alive = replace(deletion.pod, deletion_requested_ns=None)
    kernel = kernel_records(SEEN_BY_THE_KERNEL[case], deletion.at_ns, deletion.pod.cgroup_uid)
    return [PodChanged(deletion.at_ns - 1000 * MILLISECOND, alive), *cluster], kernel


def play(records: list[Record]) -> tuple[Tracker, list[tuple[int, Order]]]:
    """A tracker that has taken the records in, and its orders, each with the time of its record."""
    tracker = Tracker()
    return tracker, [(record.at_ns, order) for record in records for order in tracker.apply(record)]


def played_in_time(case: str) -> tuple[PodLife, list[tuple[int, Order]]]:
    """The dying pod's life, and the orders with milliseconds since its deletion was seen."""
    cluster, kernel = streams(case)
    deletion = first_deletion(cluster)
    tracker, orders = play(sorted([*cluster, *kernel], key=lambda record: record.at_ns))
    timed = [((at_ns - deletion.at_ns) // MILLISECOND, order) for at_ns, order in orders]
    return tracker.lives[deletion.pod.uid], timed


def times_of(orders: list[tuple[int, Order]], wanted: Callable[[Order], bool]) -> list[int]:
    return [at for at, order in orders if wanted(order)]


@pytest.mark.parametrize("case", SEEN_BY_THE_KERNEL)
def test_every_boundary_is_where_the_other_tools_saw_it(case: str) -> None:
    life, _ = played_in_time(case)
    view = SEEN_BY_THE_KERNEL[case]
    expected = {
        Boundary.DELETION_REQUESTED: 0,
        Boundary.STOP_SIGNAL: view.stop_signal,
        Boundary.LISTENER_CLOSED: view.listener_closed or view.exited,
        Boundary.EXITED: view.exited,
        Boundary.NETWORK_REMOVED: view.network_removed,
    }
    if view.kill_signal is not None:
        expected[Boundary.KILL_SIGNAL] = view.kill_signal
    if view.prestop_ended is not None:
        expected |= {Boundary.PRESTOP_STARTED: 0, Boundary.PRESTOP_ENDED: view.prestop_ended}
    deleted_ns = life.boundaries[Boundary.DELETION_REQUESTED].at_ns
    found = {
        boundary: (moment.at_ns - deleted_ns) / MILLISECOND
        for boundary, moment in life.boundaries.items()
        if boundary is not Boundary.OBJECT_DELETED
    }
    assert found == pytest.approx(expected, abs=0.06)
    assert life.boundaries[Boundary.OBJECT_DELETED].at_ns == max(
        moment.at_ns for moment in life.boundaries.values()
    )
    assert life.over


@pytest.mark.parametrize("case", SEEN_BY_THE_KERNEL)
def test_the_addresses_are_watched_from_the_exit_on(case: str) -> None:
    life, orders = played_in_time(case)
    gone = times_of(orders, lambda order: isinstance(order, MarkAddressGone))
    assert gone == [int(SEEN_BY_THE_KERNEL[case].exited)]
    assert [order.address for _, order in orders if isinstance(order, MarkAddressGone)] == list(
        life.pod.addresses
    )


@pytest.mark.parametrize("case", SEEN_BY_THE_KERNEL)
def test_endpoints_are_followed_from_the_deletion_until_the_object_is_gone(case: str) -> None:
    life, orders = played_in_time(case)
    removed_ns = life.boundaries[Boundary.OBJECT_DELETED].at_ns
    removed = (removed_ns - life.boundaries[Boundary.DELETION_REQUESTED].at_ns) // MILLISECOND
    assert times_of(orders, lambda order: order == FollowNamespace("demo")) == [0]
    assert times_of(orders, lambda order: order == UnfollowNamespace("demo")) == [removed]


@pytest.mark.parametrize(
    ("case", "told"),
    [("prestop-sleep", DECLARED), ("prestop-fails", DECLARED), ("exits-at-once", Fact.DELETED)],
)
def test_the_kernel_side_is_told_the_deletion_and_whether_a_hook_is_declared(case: str, told: Fact) -> None:
    _, orders = played_in_time(case)
    facts = [order.facts for _, order in orders if isinstance(order, SetPodFacts)]
    assert facts == [Fact(0), told, told | Fact.GONE]


@pytest.mark.parametrize(
    ("case", "milliseconds"),
    [("exits-at-once", 12), ("ignores-sigterm", 19), ("prestop-fails", 17), ("prestop-sleep", 14)],
)
def test_the_endpoint_slice_stage_is_what_the_watches_show(case: str, milliseconds: int) -> None:
    life, _ = played_in_time(case)
    assert life.stage_seconds[Stage.ENDPOINTSLICE] * 1000 == pytest.approx(milliseconds, abs=0.5)


def test_an_agent_that_comes_during_the_termination_dates_the_deletion_by_the_api() -> None:
    deletion = first_deletion(cluster_records("prestop-sleep"))
    tracker, _ = play([replace(deletion, at_ns=deletion.at_ns + 2000 * MILLISECOND)])
    moment = tracker.lives[deletion.pod.uid].boundaries[Boundary.DELETION_REQUESTED]
    assert moment.at_ns == deletion.pod.deletion_requested_ns


def test_a_deletion_that_is_the_first_news_of_a_pod_is_dated_by_its_arrival_if_it_is_fresh() -> None:
    deletion = first_deletion(cluster_records("prestop-sleep"))
    tracker, _ = play([deletion])
    moment = tracker.lives[deletion.pod.uid].boundaries[Boundary.DELETION_REQUESTED]
    assert moment.at_ns == deletion.at_ns


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_one_side_may_lag_behind_the_other_by_any_amount(data: st.DataObject) -> None:
    cluster, kernel = streams("ignores-sigterm")
    in_time, _ = played_in_time("ignores-sigterm")
    pending, mixed = [list(cluster), list(kernel)], []
    while pending[0] or pending[1]:
        side = data.draw(st.sampled_from([side for side in pending if side]))
        mixed.append(side.pop(0))
    tracker, orders = play(mixed)
    life = tracker.lives[in_time.pod.uid]
    assert life.boundaries == in_time.boundaries
    assert life.over
    gone = {order for _, order in orders if isinstance(order, MarkAddressGone)}
    assert gone == {MarkAddressGone(address, NETNS) for address in in_time.pod.addresses}


def test_a_restart_by_a_liveness_probe_is_no_termination() -> None:
    cluster = cluster_records("liveness-restart")
    first = cluster[0]
    assert isinstance(first, PodChanged)
    uid, begin_ns = first.pod.uid, first.at_ns
    restart: list[Record] = [
        NamespaceIdentified(begin_ns + 1, NETNS, first.pod.cgroup_uid),
        ListenerOpened(begin_ns + 2, NETNS, PORT, INIT),
        signal(begin_ns + 3000 * MILLISECOND, 15),
        ListenerClosed(begin_ns + 3001 * MILLISECOND, NETNS, PORT, by_exit=False),
        ContainerExited(begin_ns + 3002 * MILLISECOND, NETNS, INIT, 0),
    ]
    opened = ListenerOpened(begin_ns + 4100 * MILLISECOND, NETNS, PORT, INIT + 500)
    # The status tells of the next run at 4130 ms, after its server has begun to listen.
    told = [record for record in cluster if record.at_ns < opened.at_ns]
    tracker, orders = play(sorted([*told, *restart], key=lambda record: record.at_ns))
    assert tracker.lives[uid].restarting
    assert not [order for _, order in orders if isinstance(order, MarkAddressGone)]
    assert FollowNamespace("demo") in [order for _, order in orders]
    assert UnfollowNamespace("demo") in tracker.apply(opened)
    assert not tracker.lives[uid].restarting
    assert tracker.lives[uid].boundaries == {}


def test_a_force_deleted_pod_dies_after_its_object_is_gone() -> None:
    cluster = cluster_records("force-delete")
    deletion = first_deletion(cluster)
    removal = next(record for record in cluster if isinstance(record, PodRemoved))
    alive = PodChanged(deletion.at_ns - 1, replace(deletion.pod, deletion_requested_ns=None))
    view = KernelView(stop_signal=20, exited=30, network_removed=90)
    kernel = kernel_records(view, deletion.at_ns, deletion.pod.cgroup_uid)
    in_time = sorted([alive, *cluster, *kernel], key=lambda record: record.at_ns)
    tracker, _ = play([record for record in in_time if record.at_ns <= removal.at_ns])
    life = tracker.lives[deletion.pod.uid]
    assert life.dying
    for record in in_time:
        if record.at_ns > removal.at_ns:
            tracker.apply(record)
    order_of_boundaries = sorted(life.boundaries, key=lambda boundary: life.boundaries[boundary].at_ns)
    assert order_of_boundaries[:5] == [
        Boundary.DELETION_REQUESTED,
        Boundary.PRESTOP_STARTED,
        Boundary.OBJECT_DELETED,
        Boundary.PRESTOP_ENDED,
        Boundary.STOP_SIGNAL,
    ]
    assert life.over


def test_scaling_to_zero_leaves_last_endpoints() -> None:
    tracker, _ = play(cluster_records("scale-to-zero"))
    assert {life.last_endpoint for life in tracker.lives.values()} == {True}


def test_a_rollout_with_others_ready_leaves_no_last_endpoint() -> None:
    tracker, _ = play(cluster_records("rollout-no-prestop"))
    deleted = [life for life in tracker.lives.values() if life.deleted]
    assert len(deleted) == 3
    assert not any(life.last_endpoint for life in deleted)
