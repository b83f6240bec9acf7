"""Records in, orders out: a pod's life as the tracker joins it from both sides."""

from dataclasses import replace
from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.boundaries import Boundary, Source
from agent.core.life import Stage, StageWitness
from agent.core.orders import (
    FindNamespaces,
    FollowNamespace,
    ForgetNamespace,
    MarkAddressBack,
    MarkAddressGone,
    MarkPortsServed,
    SetPodFacts,
    UnfollowNamespace,
    WatchClosely,
)
from agent.core.phases import Fact
from agent.core.records import (
    ContainerExited,
    EndpointTerminating,
    HookType,
    KubeProxyState,
    ListenerClosed,
    ListenerOpened,
    NamespaceIdentified,
    NetworkRemoved,
    NftablesCommitted,
    PodChanged,
    PodRemoved,
    PodsListed,
    PreStop,
    Record,
    SignalResult,
    StopSignalSent,
)
from agent.core.tracker import Tracker
from tests.unit.core.lives import NETNS, SECOND, a_pod

INIT = 77
ADDRESS = IPv4Address("10.0.0.1")
IDENTIFIED = NamespaceIdentified(1, NETNS, "uid-1")
OPENED = ListenerOpened(2, NETNS, 8080, INIT)
DELETED = PodChanged(100 * SECOND, a_pod(deleted_ns=100 * SECOND))
SIGNALLED = StopSignalSent(101 * SECOND, NETNS, INIT, 15, SignalResult.DELIVERED, "runc")
CLOSED = ListenerClosed(102 * SECOND, NETNS, 8080, by_exit=False)
EXITED = ContainerExited(103 * SECOND, NETNS, INIT, 0)
UNPLUGGED = NetworkRemoved(104 * SECOND, NETNS)
REMOVED = PodRemoved(105 * SECOND, "uid-1")
TERMINATION: tuple[Record, ...] = (DELETED, SIGNALLED, CLOSED, EXITED, UNPLUGGED, REMOVED)


def serving() -> Tracker:
    tracker = Tracker()
    for record in (PodChanged(0, a_pod()), IDENTIFIED, OPENED):
        tracker.apply(record)
    return tracker


def test_a_pod_whose_namespace_is_unknown_is_looked_for() -> None:
    assert FindNamespaces() in Tracker().apply(PodChanged(0, a_pod()))


def test_identity_comes_together_in_either_order() -> None:
    for records in ((PodChanged(0, a_pod()), IDENTIFIED), (IDENTIFIED, PodChanged(0, a_pod()))):
        tracker = Tracker()
        orders = [order for record in records for order in tracker.apply(record)]
        assert SetPodFacts(NETNS, Fact(0)) in orders
        life = tracker.life_in(NETNS)
        assert life is not None
        assert life.pod.uid == "uid-1"


def test_what_the_kernel_saw_before_the_identity_is_not_lost() -> None:
    tracker = Tracker()
    for record in (OPENED, SIGNALLED, PodChanged(0, a_pod()), IDENTIFIED):
        tracker.apply(record)
    assert Boundary.STOP_SIGNAL in tracker.lives["uid-1"].boundaries


def test_a_deletion_tells_the_kernel_side_and_follows_the_endpoints() -> None:
    orders = serving().apply(DELETED)
    assert orders == [SetPodFacts(NETNS, Fact.DELETED), FollowNamespace("shop"), WatchClosely(True)]


def test_a_declared_prestop_is_told_with_the_deletion() -> None:
    pod = a_pod(deleted_ns=100 * SECOND, prestop=PreStop(HookType.SLEEP, 5))
    assert SetPodFacts(NETNS, Fact.DELETED | Fact.PRESTOP_DECLARED) in serving().apply(PodChanged(1, pod))


def test_a_deletion_that_was_watched_begins_when_the_watch_told_it() -> None:
    tracker = serving()
    tracker.apply(PodChanged(100 * SECOND + 4_000_000, a_pod(deleted_ns=100 * SECOND)))
    moment = tracker.lives["uid-1"].boundaries[Boundary.DELETION_REQUESTED]
    assert (moment.at_ns, moment.source) == (100 * SECOND + 4_000_000, Source.API)


def test_a_pod_found_dying_began_to_die_when_the_api_says_and_its_ports_were_served() -> None:
    tracker = Tracker()
    tracker.apply(PodChanged(110 * SECOND, a_pod(deleted_ns=100 * SECOND)))
    orders = tracker.apply(IDENTIFIED)
    assert MarkPortsServed(NETNS, frozenset({8080})) in orders
    assert tracker.lives["uid-1"].boundaries[Boundary.DELETION_REQUESTED].at_ns == 100 * SECOND


def test_a_later_deletion_of_the_kubelet_is_no_second_one() -> None:
    tracker = serving()
    tracker.apply(DELETED)
    tracker.apply(PodChanged(120 * SECOND, a_pod(deleted_ns=119 * SECOND)))
    assert tracker.lives["uid-1"].boundaries[Boundary.DELETION_REQUESTED].at_ns == DELETED.at_ns


def test_a_termination_has_all_its_boundaries() -> None:
    tracker = serving()
    for record in TERMINATION:
        tracker.apply(record)
    life = tracker.lives["uid-1"]
    assert {boundary: moment.at_ns // SECOND for boundary, moment in life.boundaries.items()} == {
        Boundary.DELETION_REQUESTED: 100,
        Boundary.STOP_SIGNAL: 101,
        Boundary.LISTENER_CLOSED: 102,
        Boundary.EXITED: 103,
        Boundary.NETWORK_REMOVED: 104,
        Boundary.OBJECT_DELETED: 105,
    }
    assert life.over


def test_addresses_are_watched_from_the_exit_on() -> None:
    tracker = serving()
    tracker.apply(DELETED)
    assert MarkAddressGone(ADDRESS, NETNS) in tracker.apply(EXITED)
    assert MarkAddressGone(ADDRESS, NETNS) not in tracker.apply(UNPLUGGED)


def test_an_exit_without_a_deletion_is_a_restart_and_keeps_the_address() -> None:
    tracker = serving()
    orders = tracker.apply(EXITED)
    assert orders == [FollowNamespace("shop")]
    assert tracker.lives["uid-1"].restarting
    orders = tracker.apply(ListenerOpened(110 * SECOND, NETNS, 8080, INIT + 1))
    assert orders == [UnfollowNamespace("shop")]


def test_a_signal_to_the_pause_process_is_no_stop_signal() -> None:
    tracker = serving()
    tracker.apply(StopSignalSent(1, NETNS, INIT + 5, 9, SignalResult.DELIVERED, "runc"))
    assert Boundary.STOP_SIGNAL not in tracker.lives["uid-1"].boundaries


def test_an_address_that_another_pod_gets_is_not_gone_any_more() -> None:
    tracker = serving()
    for record in TERMINATION:
        tracker.apply(record)
    assert MarkAddressBack(ADDRESS) in tracker.apply(PodChanged(106 * SECOND, a_pod("uid-2")))


def test_a_finished_pod_does_not_take_an_address_back() -> None:
    tracker = serving()
    for record in TERMINATION:
        tracker.apply(record)
    orders = tracker.apply(PodChanged(106 * SECOND, a_pod("uid-2", finished=True)))
    assert MarkAddressBack(ADDRESS) not in orders


def test_a_force_deleted_pod_is_dying_until_its_network_goes() -> None:
    tracker = serving()
    orders = tracker.apply(PodRemoved(100 * SECOND, "uid-1"))
    assert SetPodFacts(NETNS, Fact.DELETED) in orders
    assert tracker.lives["uid-1"].dying
    orders = tracker.apply(UNPLUGGED)
    assert UnfollowNamespace("shop") in orders
    assert tracker.lives["uid-1"].over


def test_a_pod_on_the_hosts_network_is_left_out() -> None:
    tracker = Tracker()
    assert tracker.apply(PodChanged(0, a_pod(host_network=True))) == []
    assert tracker.lives == {}


def test_the_endpoint_slice_stage_is_the_first_news_of_it() -> None:
    tracker = serving()
    tracker.apply(DELETED)
    for seconds in (0.5, 3):
        at_ns = DELETED.at_ns + int(seconds * SECOND)
        tracker.apply(EndpointTerminating(at_ns, "uid-1", "web", removed=False, ready_left=1))
    assert tracker.lives["uid-1"].stage_seconds == {Stage.ENDPOINTSLICE: 0.5}


def test_kube_proxy_has_synced_only_once_nothing_is_pending() -> None:
    tracker = serving()
    tracker.apply(DELETED)
    seen = DELETED.at_ns + SECOND // 100
    tracker.apply(EndpointTerminating(seen, "uid-1", "web", removed=False, ready_left=1))
    tracker.apply(KubeProxyState(seen + SECOND, True, seen + SECOND // 2, seen, pending=1))
    assert Stage.KUBE_PROXY not in tracker.lives["uid-1"].stage_seconds
    tracker.apply(KubeProxyState(seen + 2 * SECOND, True, seen + SECOND, seen, pending=0))
    assert tracker.lives["uid-1"].stage_seconds[Stage.KUBE_PROXY] == 1.01


def test_kube_proxy_is_waited_for_when_the_pod_is_gone_before_it() -> None:
    tracker = serving()
    tracker.apply(KubeProxyState(1, True, 1, 1, pending=0))
    for record in TERMINATION:
        assert WatchClosely(False) not in tracker.apply(record)
    late = KubeProxyState(DELETED.at_ns + 61 * SECOND, True, 1, 1, pending=0)
    assert WatchClosely(False) in tracker.apply(late)


def test_without_kube_proxy_nothing_is_waited_for() -> None:
    tracker = serving()
    orders = [order for record in TERMINATION for order in tracker.apply(record)]
    assert orders[-1] == WatchClosely(False)


def test_a_pod_that_was_over_long_ago_is_forgotten_with_all_that_was_kept() -> None:
    tracker = serving()
    for record in TERMINATION:
        tracker.apply(record)
    assert tracker.ended_before(REMOVED.at_ns) == []
    (life,) = tracker.ended_before(REMOVED.at_ns + 1)
    assert tracker.forget(life) == [MarkAddressBack(ADDRESS), ForgetNamespace(NETNS)]
    assert tracker.lives == {}
    assert tracker.life_in(NETNS) is None


RECORDS: tuple[Record, ...] = (
    PodChanged(0, a_pod()),
    IDENTIFIED,
    OPENED,
    *TERMINATION,
    PodsListed(3),
    PodChanged(7, a_pod("uid-2")),
    NamespaceIdentified(8, NETNS + 1, "uid-2"),
    EndpointTerminating(9, "uid-1", "web", removed=True, ready_left=0),
    KubeProxyState(10, True, 9, 9, pending=0),
)


@given(st.lists(st.sampled_from(RECORDS), max_size=40))
def test_no_order_or_repetition_of_records_breaks_it(records: list[Record]) -> None:
    tracker = Tracker()
    for record in records:
        tracker.apply(record)
    for life in tracker.ended_before(10**18):
        tracker.forget(life)
    assert all(not life.over for life in tracker.lives.values())


def endpoint_news(service: str, *, ready_left: int = 1, stays_ready: bool = False) -> EndpointTerminating:
    return EndpointTerminating(
        DELETED.at_ns + 1, "uid-1", service, removed=False, ready_left=ready_left, stays_ready=stays_ready
    )


def test_a_pod_that_its_only_service_publishes_until_its_end_is_served_by_design() -> None:
    tracker = serving()
    for record in (DELETED, endpoint_news("headless", stays_ready=True)):
        tracker.apply(record)
    assert tracker.lives["uid-1"].served_by_design
    tracker.apply(endpoint_news("web"))
    assert not tracker.lives["uid-1"].served_by_design


def test_the_kube_proxy_stage_is_the_last_commit_of_the_sync_where_commits_are_seen() -> None:
    tracker = serving()
    tracker.apply(DELETED)
    seen = DELETED.at_ns + SECOND // 100
    tracker.apply(replace(endpoint_news("web"), at_ns=seen))
    synced = seen + 2 * SECOND
    for at_ns, process in (
        (DELETED.at_ns - 1, "nft"),
        (synced - 20_000_000, "iptables-restor"),
        (synced - 10_000_000, "iptables-restor"),
        (synced - 5_000_000, "iptables"),
        (synced + SECOND, "nft"),
    ):
        tracker.apply(NftablesCommitted(at_ns, 1, process))
    tracker.apply(KubeProxyState(synced + 2 * SECOND, True, synced, seen, pending=0))
    life = tracker.lives["uid-1"]
    assert life.stage_seconds[Stage.KUBE_PROXY] == 2.0
    assert life.stage_witnesses[Stage.KUBE_PROXY] is StageWitness.NFTABLES_COMMIT


def test_a_deletion_that_is_told_after_its_stop_signal_was_asked_for_before_it() -> None:
    tracker = serving()
    tracker.apply(replace(SIGNALLED, at_ns=DELETED.at_ns - SECOND))
    tracker.apply(DELETED)
    requested = tracker.lives["uid-1"].boundaries[Boundary.DELETION_REQUESTED]
    assert (requested.at_ns, requested.source) == (DELETED.at_ns - SECOND, Source.API)


def test_a_stop_signal_of_long_ago_has_nothing_to_do_with_a_deletion() -> None:
    tracker = serving()
    tracker.apply(replace(SIGNALLED, at_ns=DELETED.at_ns - 11 * SECOND))
    tracker.apply(DELETED)
    assert tracker.lives["uid-1"].boundaries[Boundary.DELETION_REQUESTED].at_ns == DELETED.at_ns


@pytest.mark.parametrize("skew_seconds", [-30, 0, 30])
def test_the_api_servers_clock_does_not_matter_for_a_pod_that_was_known(skew_seconds: int) -> None:
    tracker = serving()
    requested_ns = DELETED.at_ns + skew_seconds * SECOND
    tracker.apply(PodChanged(DELETED.at_ns, a_pod(deleted_ns=requested_ns)))
    tracker.apply(endpoint_news("web"))
    life = tracker.lives["uid-1"]
    assert life.boundaries[Boundary.DELETION_REQUESTED].at_ns == DELETED.at_ns
    assert life.stage_seconds[Stage.ENDPOINTSLICE] == pytest.approx(0, abs=1e-6)


def test_a_pod_found_dying_whose_deletion_the_api_dates_into_the_future_is_dated_by_its_arrival() -> None:
    tracker = Tracker()
    tracker.apply(PodChanged(DELETED.at_ns, a_pod(deleted_ns=DELETED.at_ns + 30 * SECOND)))
    assert tracker.lives["uid-1"].boundaries[Boundary.DELETION_REQUESTED].at_ns == DELETED.at_ns


def test_records_that_come_twice_change_nothing() -> None:
    once, twice = serving(), serving()
    for record in TERMINATION:
        once.apply(record)
        twice.apply(record)
        twice.apply(record)
    assert once.lives == twice.lives


def test_a_pod_that_a_finalizer_keeps_is_not_watched_for_ever() -> None:
    tracker = serving()
    for record in (DELETED, SIGNALLED, CLOSED, EXITED, UNPLUGGED):
        tracker.apply(record)
    assert tracker.apply(PodsListed(UNPLUGGED.at_ns + 60 * SECOND)) == []
    orders = tracker.apply(PodsListed(UNPLUGGED.at_ns + 61 * SECOND))
    assert orders == [UnfollowNamespace("shop"), WatchClosely(False)]


def test_a_container_that_is_never_up_again_is_not_watched_for_ever() -> None:
    tracker = serving()
    tracker.apply(EXITED)
    assert tracker.apply(PodsListed(EXITED.at_ns + 90 * SECOND)) == []
    assert tracker.apply(PodsListed(EXITED.at_ns + 91 * SECOND)) == [UnfollowNamespace("shop")]


def test_a_long_grace_period_is_waited_for() -> None:
    tracker = serving()
    tracker.apply(PodChanged(DELETED.at_ns, replace(DELETED.pod, grace_seconds=3600)))
    assert tracker.apply(PodsListed(DELETED.at_ns + 3600 * SECOND)) == []


def test_kube_proxy_is_not_believed_to_be_done_before_it_can_have_heard_of_the_slice() -> None:
    tracker = serving()
    tracker.apply(DELETED)
    seen = DELETED.at_ns + 18_000_000
    tracker.apply(replace(endpoint_news("web"), at_ns=seen))
    unrelated = DELETED.at_ns + 10_000_000
    tracker.apply(KubeProxyState(seen + 1_000_000, True, unrelated, unrelated, pending=0))
    assert Stage.KUBE_PROXY not in tracker.lives["uid-1"].stage_seconds
    tracker.apply(KubeProxyState(seen + 110_000_000, True, seen + 20_000_000, seen, pending=0))
    assert tracker.lives["uid-1"].stage_seconds[Stage.KUBE_PROXY] == pytest.approx(0.038)
