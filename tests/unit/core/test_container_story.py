"""Several containers, restarts, and ends that nobody asked the API for."""

import pickle
from dataclasses import replace
from typing import Any

import pytest

from agent.core.boundaries import Boundary, Moment, Source
from agent.core.container_run import Exit, SentSignal
from agent.core.kinds import Kind
from agent.core.life import Stage
from agent.core.orders import FindNamespaces, MarkAddressGone, SetPodFacts
from agent.core.phases import Fact, Phase
from agent.core.prestop import PreStopOutcome
from agent.core.reason import Reason
from agent.core.records import (
    Container,
    ContainerEnd,
    ContainerExited,
    ContainerIdentified,
    EndpointTerminating,
    EventReason,
    HookType,
    ListenerClosed,
    ListenerOpened,
    NamespaceIdentified,
    NetworkRemoved,
    Pod,
    PodChanged,
    PodEventSeen,
    PodRemoved,
    PreStop,
    Record,
    SignalResult,
    StopSignalSent,
)
from agent.core.tally import Tally
from agent.core.termination import Scope, Termination, terminations
from agent.core.tracker import Tracker
from tests.unit.core.lives import NETNS, SECOND, a_pod

APP, PROXY, PAUSE, NEXT_APP = 77, 88, 66, 99
APP_ID, PROXY_ID, PAUSE_ID, NEXT_ID = "a" * 64, "b" * 64, "f" * 64, "d" * 64


def container(name: str, container_id: str, *, sidecar: bool = False) -> Container:
    return Container(name, container_id, None, (), 0, running=True, exit_code=None, sidecar=sidecar)


TWO = replace(a_pod(), containers=(container("app", APP_ID), container("proxy", PROXY_ID, sidecar=True)))
ONE = replace(a_pod(), containers=(container("app", APP_ID),))


def at(seconds: float) -> int:
    return int((100 + seconds) * SECOND)


def deleted(pod: Pod, seconds: float = 0) -> PodChanged:
    return PodChanged(at(seconds), replace(pod, deletion_requested_ns=at(seconds)))


def signal(seconds: float, init: int, number: int = 15) -> StopSignalSent:
    return StopSignalSent(at(seconds), NETNS, init, number, SignalResult.DELIVERED, "runc")


def exited(seconds: float, init: int, status: int = 0) -> ContainerExited:
    return ContainerExited(at(seconds), NETNS, init, status)


def killing(message: str, seconds: float, stamped: float | None = None) -> PodEventSeen:
    stamped_ns = at(seconds if stamped is None else stamped)
    return PodEventSeen(at(seconds), "uid-1", "app", EventReason.KILLING, message, stamped_ns)


BEGINNING: tuple[Record, ...] = (
    NamespaceIdentified(1, NETNS, "uid-1"),
    ContainerIdentified(2, NETNS, PAUSE, PAUSE_ID),
    ContainerIdentified(3, NETNS, APP, APP_ID),
    ContainerIdentified(4, NETNS, PROXY, PROXY_ID),
    ListenerOpened(5, NETNS, 8080, APP),
)


def lived(pod: Pod, *records: Record) -> Tracker:
    tracker = Tracker()
    for record in (PodChanged(0, pod), *BEGINNING, *records):
        tracker.apply(record)
    return tracker


def ends(tracker: Tracker, tally: Tally | None = None) -> tuple[Termination, ...]:
    tallies = {"uid-1": tally} if tally else {}
    return terminations(tracker.lives.values(), tallies, None)


def the_end(tracker: Tracker, tally: Tally | None = None) -> Termination:
    (end,) = ends(tracker, tally)
    return end


def seconds(boundaries: object) -> dict[Boundary, float]:
    assert isinstance(boundaries, dict)
    return {boundary: moment.at_ns / SECOND - 100 for boundary, moment in boundaries.items()}


def test_each_container_has_its_own_boundaries_and_the_pod_those_of_its_main_ones() -> None:
    end = the_end(
        lived(
            TWO,
            deleted(TWO),
            signal(1, APP),
            ListenerClosed(at(1.5), NETNS, 8080, by_exit=False),
            exited(2, APP),
            signal(3, PROXY),
            exited(3.5, PROXY, 15),
            signal(4, PAUSE, 9),
            NetworkRemoved(at(5), NETNS),
            PodRemoved(at(6), "uid-1"),
        )
    )
    assert seconds(end.boundaries) == {
        Boundary.DELETION_REQUESTED: 0,
        Boundary.STOP_SIGNAL: 1,
        Boundary.LISTENER_CLOSED: 1.5,
        Boundary.EXITED: 2,
        Boundary.NETWORK_REMOVED: 5,
        Boundary.OBJECT_DELETED: 6,
    }
    app, proxy = end.containers
    assert (app.name, app.stop_signal) == ("app", SentSignal(15, SignalResult.DELIVERED, "runc"))
    assert app.ports_closed == {8080: Moment(at(1.5), Source.KERNEL)}
    assert (proxy.name, proxy.sidecar, proxy.exit) == ("proxy", True, Exit(None, 15))
    assert seconds(proxy.boundaries) == {Boundary.STOP_SIGNAL: 3, Boundary.EXITED: 3.5}


def test_the_pause_container_is_none_of_the_pods_containers() -> None:
    end = the_end(lived(ONE, deleted(ONE), signal(4, PAUSE, 9), exited(4, PAUSE, 9)))
    assert [container.name for container in end.containers] == ["app"]
    assert seconds(end.boundaries) == {Boundary.DELETION_REQUESTED: 0}


def test_the_addresses_of_a_pod_are_watched_once_all_that_served_have_exited() -> None:
    tracker = lived(TWO, ListenerOpened(6, NETNS, 9090, PROXY), deleted(TWO))
    assert not [o for o in tracker.apply(exited(1, APP)) if isinstance(o, MarkAddressGone)]
    assert [o for o in tracker.apply(exited(2, PROXY)) if isinstance(o, MarkAddressGone)]


def test_a_container_that_the_status_tells_of_later_is_looked_for() -> None:
    tracker = lived(replace(ONE, containers=(replace(ONE.containers[0], container_id=None, running=False),)))
    assert FindNamespaces() in tracker.apply(
        PodChanged(at(0), replace(ONE, containers=(container("app", NEXT_ID),)))
    )


def test_the_status_gives_the_reason_of_an_exit_and_the_kernel_its_time() -> None:
    killed = replace(
        ONE.containers[0], running=False, ended=ContainerEnd(APP_ID, 137, None, "OOMKilled", at(0))
    )
    tracker = lived(ONE, exited(0.5, APP, 9), PodChanged(at(1), replace(ONE, containers=(killed,))))
    end = the_end(tracker)
    assert (end.scope, end.reason) == (Scope.CONTAINER, Reason.OOM_KILLED)
    assert end.containers[0].exit == Exit(None, 9, "OOMKilled")
    assert end.boundaries == {Boundary.EXITED: Moment(at(0.5), Source.KERNEL)}


@pytest.mark.parametrize(
    ("status", "reason"), [(0, Reason.COMPLETED), (256, Reason.CRASHED), (11, Reason.CRASHED)]
)
def test_a_container_that_ends_by_itself_has_completed_or_crashed(status: int, reason: Reason) -> None:
    end = the_end(lived(ONE, exited(0, APP, status)))
    assert (end.scope, end.reason) == (Scope.CONTAINER, reason)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("Container app failed liveness probe, will be restarted", Reason.LIVENESS_PROBE),
        ("Container app failed startup probe, will be restarted", Reason.STARTUP_PROBE),
        ("Container app definition changed, will be restarted", Reason.CONTAINER_CHANGED),
        ("Container app resize requires restart", Reason.CONTAINER_CHANGED),
        ("FailedPostStartHook", Reason.CONTAINER_CHANGED),
    ],
)
def test_the_kubelets_event_says_why_it_restarts_a_container(message: str, reason: Reason) -> None:
    tracker = lived(ONE, signal(0, APP), killing(message, 0.1), exited(1, APP))
    assert the_end(tracker).reason is reason
    assert Fact.DELETED not in tracker.lives["uid-1"].facts()


def test_a_stop_that_nobody_explains_is_a_stop() -> None:
    assert the_end(lived(ONE, signal(0, APP), exited(1, APP))).reason is Reason.STOPPED


def test_a_restarted_container_has_ended_and_its_next_run_has_not() -> None:
    restarted = Container(
        "app",
        NEXT_ID,
        None,
        (),
        1,
        True,
        None,
        ended_before=ContainerEnd(APP_ID, 0, None, "Completed", at(1)),
    )
    tracker = lived(
        ONE,
        signal(0, APP),
        exited(1, APP),
        ContainerIdentified(at(2), NETNS, NEXT_APP, NEXT_ID),
        ListenerOpened(at(2.1), NETNS, 8080, NEXT_APP),
        PodChanged(at(3), replace(ONE, containers=(restarted,))),
    )
    tally = Tally()
    tally.dropped[Kind.REFUSED, Phase.RESTARTING] = 7
    tally.dropped[Kind.REFUSED, Phase.STARTING] = 2
    end = the_end(tracker, tally)
    assert (end.scope, end.over, end.containers[0].container_id) == (Scope.CONTAINER, True, APP_ID)
    assert end.dropped == {(Kind.REFUSED, Phase.RESTARTING): 7}
    tracker.apply(deleted(ONE, 10))
    tracker.apply(signal(11, NEXT_APP))
    first, second = ends(tracker)
    assert [first.scope, second.scope] == [Scope.CONTAINER, Scope.POD]
    assert seconds(second.boundaries) == {Boundary.DELETION_REQUESTED: 10, Boundary.STOP_SIGNAL: 11}


def test_drops_of_several_restarts_are_not_told_apart() -> None:
    tracker = lived(ONE, signal(0, APP), exited(1, APP))
    for number, init in enumerate((201, 202)):
        tracker.apply(ContainerIdentified(at(2 + number), NETNS, init, str(number) * 64))
        ended = ContainerEnd(str(number) * 64, 1, None, "Error", at(2 + number))
        crashed = Container("app", str(number) * 64, None, (), number, False, 1, ended=ended)
        tracker.apply(PodChanged(at(2.5 + number), replace(ONE, containers=(crashed,))))
    assert [end.dropped for end in ends(tracker, Tally())] == [None, None, None]


def test_a_pod_that_the_kubelet_ends_by_itself_is_dying_from_its_event_on() -> None:
    tracker = lived(ONE, signal(0, APP))
    orders = tracker.apply(killing("Stopping container app", 0.1, stamped=0))
    assert SetPodFacts(NETNS, Fact.DELETED) in orders
    end = the_end(tracker)
    assert (end.scope, end.reason) == (Scope.POD, Reason.ENDED_BY_KUBELET)
    assert end.boundaries[Boundary.DELETION_REQUESTED] == Moment(at(0), Source.EVENT, at(0))


@pytest.mark.parametrize(
    ("status_reason", "reason"),
    [
        ("Terminated", Reason.NODE_SHUTDOWN),
        ("Evicted", Reason.NODE_PRESSURE),
        ("DeadlineExceeded", Reason.DEADLINE_EXCEEDED),
    ],
)
def test_the_status_says_afterwards_why_the_kubelet_ended_the_pod(status_reason: str, reason: Reason) -> None:
    tracker = lived(ONE, signal(0, APP), killing("Stopping container app", 0.1), exited(1, APP))
    tracker.apply(PodChanged(at(2), replace(ONE, finished=True, status_reason=status_reason)))
    assert the_end(tracker).reason is reason


def test_an_eviction_by_the_kubelet_is_known_from_its_event() -> None:
    event = PodEventSeen(
        at(0), "uid-1", None, EventReason.EVICTED, "The node was low on resource: memory", at(0)
    )
    assert the_end(lived(ONE, event)).reason is Reason.NODE_PRESSURE


def test_an_old_event_that_a_list_brings_is_no_news() -> None:
    tracker = lived(ONE, signal(0, APP), killing("Stopping container app", 0.1, stamped=-95))
    assert not tracker.lives["uid-1"].deleted


def test_a_deletion_that_follows_the_kubelets_event_is_the_same_end() -> None:
    tracker = lived(ONE, killing("Stopping container app", 0.1), deleted(ONE, 0.2))
    assert tracker.lives["uid-1"].boundaries[Boundary.DELETION_REQUESTED] == Moment(at(0.1), Source.API)
    assert the_end(tracker).reason is Reason.DELETED


@pytest.mark.parametrize(
    ("disruption", "reason"),
    [
        ("EvictionByEvictionAPI", Reason.EVICTED),
        ("PreemptionByScheduler", Reason.PREEMPTED),
        ("DeletionByTaintManager", Reason.TAINTED),
        ("DeletionByPodGC", Reason.GARBAGE_COLLECTED),
        (None, Reason.DELETED),
    ],
)
def test_the_disruption_condition_says_who_deleted_the_pod(disruption: str | None, reason: Reason) -> None:
    pod = replace(ONE, disruption_reason=disruption)
    assert the_end(lived(pod, deleted(pod))).reason is reason


def test_a_network_that_only_the_status_tells_gone_is_gone() -> None:
    tracker = lived(ONE, deleted(ONE))
    gone = replace(ONE, deletion_requested_ns=at(0), network_ready=False, finished=True)
    assert SetPodFacts(NETNS, Fact.DELETED | Fact.GONE) in tracker.apply(PodChanged(at(3), gone))
    tracker.apply(NetworkRemoved(at(2.9), NETNS))
    removed = tracker.lives["uid-1"].boundaries[Boundary.NETWORK_REMOVED]
    assert removed == Moment(at(2.9), Source.KERNEL)


def test_a_pid_that_is_used_again_begins_another_run() -> None:
    tracker = lived(ONE, exited(0, APP))
    tracker.apply(ContainerIdentified(at(1), NETNS, APP, NEXT_ID))
    tracker.apply(ListenerOpened(at(1.1), NETNS, 8080, APP))
    assert [(run.container_id, run.ended) for run in tracker.lives["uid-1"].runs if run.init_pid == APP] == [
        (APP_ID, True),
        (NEXT_ID, False),
    ]


def test_what_both_sides_tell_of_a_run_becomes_one_in_any_order() -> None:
    pod = replace(TWO, containers=(container("app", APP_ID), container("web", NEXT_ID)))
    tracker = lived(
        pod, ListenerOpened(6, NETNS, 8081, NEXT_APP), ContainerIdentified(7, NETNS, NEXT_APP, NEXT_ID)
    )
    runs = [run for run in tracker.lives["uid-1"].runs if run.name == "web"]
    assert [(run.init_pid, run.serves, run.open_ports) for run in runs] == [(NEXT_APP, True, {8081})]


def running(container_id: str, seconds: float, **changes: Any) -> PodChanged:
    return PodChanged(at(seconds), replace(ONE, containers=(container("app", container_id),), **changes))


def ended_status(seconds: float, code: int = 0, *, finished: bool = True, **changes: Any) -> PodChanged:
    """The status tells that the only container has ended, by default that of a pod that has finished."""
    ended = ContainerEnd(APP_ID, code, None, "Completed" if code == 0 else "Error", at(seconds))
    done = replace(ONE.containers[0], running=False, exit_code=code, ended=ended)
    return PodChanged(at(seconds), replace(ONE, containers=(done,), finished=finished, **changes))


def test_a_sandbox_that_is_made_anew_ends_its_containers_and_not_the_pod() -> None:
    tracker = lived(ONE, signal(0, APP), killing("Stopping container app", 0.1))
    assert tracker.lives["uid-1"].deleted
    tracker.apply(exited(1, APP))
    tracker.apply(NetworkRemoved(at(1.1), NETNS))
    orders = tracker.apply(running(NEXT_ID, 3))
    assert SetPodFacts(NETNS, Fact.GONE) in orders
    assert not tracker.lives["uid-1"].deleted
    assert SetPodFacts(NETNS + 9, Fact(0)) in tracker.apply(NamespaceIdentified(at(4), NETNS + 9, "uid-1"))
    assert the_end(tracker).scope is Scope.CONTAINER


def test_a_pod_that_finishes_by_itself_ends_as_a_pod() -> None:
    end = the_end(lived(ONE, exited(1, APP), ended_status(1.2)))
    assert (end.scope, end.reason, end.over) == (Scope.POD, Reason.COMPLETED, True)
    assert (end.phases, dict(end.stages)) == ((), {})
    assert the_end(lived(ONE, exited(1, APP, 256), ended_status(1.2, code=1))).reason is Reason.CRASHED


def test_deleting_a_finished_pod_is_no_second_end_of_it() -> None:
    tracker = lived(ONE, exited(1, APP), ended_status(1.2))
    tracker.apply(ended_status(60, deletion_requested_ns=at(60), grace_seconds=0))
    tracker.apply(PodRemoved(at(60.1), "uid-1"))
    end = the_end(tracker)
    assert end.reason is Reason.COMPLETED
    assert seconds(end.boundaries) == {Boundary.EXITED: 1, Boundary.OBJECT_DELETED: pytest.approx(60.1)}


def test_a_pod_that_only_its_status_says_evicted_was_ended_by_the_node() -> None:
    end = the_end(lived(ONE, ended_status(5, code=137, status_reason="Evicted")))
    assert (end.scope, end.reason) == (Scope.POD, Reason.NODE_PRESSURE)
    assert Boundary.DELETION_REQUESTED not in end.boundaries


def test_what_had_ended_long_before_the_agent_came_is_no_end_that_it_saw() -> None:
    tracker = Tracker()
    old = ended_status(-3600)
    tracker.apply(replace(old, at_ns=at(0)))
    assert ends(tracker) == ()


def test_an_event_that_comes_before_its_pod_is_not_lost() -> None:
    tracker = Tracker()
    event = PodEventSeen(at(0), "uid-1", None, EventReason.EVICTED, "low on memory", at(0))
    tracker.apply(event)
    tracker.apply(running(APP_ID, 0.1))
    assert the_end(tracker).reason is Reason.NODE_PRESSURE


def test_an_earlier_restart_leaves_nothing_in_the_end_of_the_pod() -> None:
    tracker = lived(
        ONE, signal(-50, APP), exited(-49, APP), ContainerIdentified(at(-48), NETNS, NEXT_APP, NEXT_ID)
    )
    tracker.apply(running(NEXT_ID, -47))
    for record in (deleted(running(NEXT_ID, 0).pod), signal(1, NEXT_APP), exited(2, NEXT_APP)):
        tracker.apply(record)
    restart, end = ends(tracker)
    assert restart.scope is Scope.CONTAINER
    assert seconds(end.boundaries) == {
        Boundary.DELETION_REQUESTED: 0,
        Boundary.STOP_SIGNAL: 1,
        Boundary.EXITED: 2,
    }


def test_a_container_that_had_crashed_before_the_deletion_does_not_end_with_the_pod() -> None:
    hook = PreStop(HookType.SLEEP, seconds=3)
    pod = replace(ONE, containers=(replace(ONE.containers[0], prestop=hook),))
    crash, end = ends(lived(pod, exited(-30, APP, 256), deleted(pod)))
    assert (crash.reason, crash.containers[0].prestop_outcome) == (Reason.CRASHED, PreStopOutcome.UNKNOWN)
    assert seconds(end.boundaries) == {Boundary.DELETION_REQUESTED: 0}
    assert end.containers == ()


def test_an_event_of_the_run_before_is_not_taken_for_one_of_the_present_run() -> None:
    tracker = lived(ONE, signal(0, APP), exited(1, APP), ContainerIdentified(at(5), NETNS, NEXT_APP, NEXT_ID))
    tracker.apply(running(NEXT_ID, 5.1))
    tracker.apply(killing("Container app failed liveness probe, will be restarted", 6, stamped=0))
    assert the_end(tracker).reason is Reason.LIVENESS_PROBE


def test_an_address_that_another_pod_has_by_now_is_not_marked_gone_by_the_first_ones_end() -> None:
    tracker = lived(ONE, deleted(ONE), exited(1, APP))
    tracker.apply(PodChanged(at(1.3), replace(a_pod("uid-2"), name="other")))
    orders = tracker.apply(NetworkRemoved(at(1.5), NETNS))
    assert not [order for order in orders if isinstance(order, MarkAddressGone)]


def test_the_object_of_a_static_pod_can_be_made_anew_while_the_pod_lives() -> None:
    mirror = replace(ONE, cgroup_uid="hash")
    tracker = Tracker()
    for record in (PodChanged(0, mirror), *BEGINNING[1:]):
        tracker.apply(record)
    tracker.apply(NamespaceIdentified(1, NETNS, "hash"))
    tracker.apply(deleted(mirror))
    tracker.apply(PodRemoved(at(0.5), "uid-1"))
    again = replace(mirror, uid="uid-9")
    assert SetPodFacts(NETNS, Fact(0)) in tracker.apply(PodChanged(at(1), again))
    assert list(tracker.lives) == ["uid-9"]
    assert tracker.life_in(NETNS) is tracker.lives["uid-9"]
    assert ends(tracker) == ()


def test_a_slice_that_comes_before_the_news_of_the_deletion_is_no_lag() -> None:
    tracker = lived(ONE)
    tracker.apply(EndpointTerminating(at(-0.01), "uid-1", "web", removed=False, ready_left=1))
    tracker.apply(deleted(ONE))
    tracker.apply(EndpointTerminating(at(3), "uid-1", "web", removed=True, ready_left=0))
    life = tracker.lives["uid-1"]
    assert life.stage_seconds == {Stage.ENDPOINTSLICE: 0.0}
    assert not life.served_by_design


def test_exit_codes_above_128_are_signals_only_where_there_is_such_a_signal() -> None:
    told = {code: the_end(lived(ONE, ended_status(1, code=code))).containers[0].exit for code in (143, 255)}
    assert told == {143: Exit(143, 15, "Error"), 255: Exit(255, None, "Error")}


def test_what_is_kept_of_pods_that_nobody_knows_is_bounded() -> None:
    tracker = Tracker()
    for number in range(5000):
        tracker.apply(NamespaceIdentified(number, number, f"unknown-{number}"))
        tracker.apply(PodEventSeen(number, f"unknown-{number}", None, EventReason.EVICTED, "", None))
    assert len(pickle.dumps(tracker)) < 200_000


def test_the_sidecars_of_a_pod_that_has_done_its_work_are_stopped_and_nobody_ended_the_pod() -> None:
    stopped = PodEventSeen(at(1.1), "uid-1", "proxy", EventReason.KILLING, "Stopping container proxy", at(1))
    tracker = lived(TWO, exited(1, APP), stopped, signal(1.2, PROXY), exited(2, PROXY))
    assert not tracker.lives["uid-1"].deleted
    tracker.apply(PodChanged(at(2.5), replace(TWO, finished=True)))
    end = the_end(tracker)
    assert (end.scope, end.reason, len(end.containers)) == (Scope.POD, Reason.COMPLETED, 2)


def test_deleting_a_pod_that_the_kubelet_ended_long_ago_is_no_second_end_of_it() -> None:
    tracker = lived(ONE, killing("Stopping container app", 0.1), exited(1, APP))
    for record in (
        ended_status(1.5, status_reason="Evicted"),
        ended_status(3000, status_reason="Evicted", deletion_requested_ns=at(3000)),
        ended_status(3001, status_reason="Evicted", deletion_requested_ns=at(3000)),
    ):
        tracker.apply(record)
    end = the_end(tracker)
    assert end.reason is Reason.NODE_PRESSURE
    assert end.boundaries[Boundary.DELETION_REQUESTED].source is Source.EVENT
