"""Sources of drops: whose address it was then, named once, looked up once."""

from collections import Counter
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.counts import Count, CountKey, KernelCounts
from agent.core.kinds import Kind
from agent.core.life import PodLife
from agent.core.observation import Observation
from agent.core.orders import IdentifySources
from agent.core.phases import Fact
from agent.core.records import (
    Address,
    NamespaceIdentified,
    NetworkRemoved,
    PodChanged,
    PodRemoved,
    Record,
    SourceIdentified,
    SourceKind,
    Workload,
)
from agent.core.source_book import REMEMBERED_NS, SourceBook, SourceName
from agent.core.tally import WorkloadKey
from agent.core.tracker import Tracker
from agent.core.wanted_source import WantedSource
from tests.unit.core.lives import NETNS, SECOND, a_pod

WEB = WorkloadKey("shop", Workload("Deployment", "web"))
CLIENT = IPv4Address("10.0.0.9")
SOURCE = (NETNS, CLIENT)
OF_A_POD = SourceIdentified(
    5, CLIENT, SourceKind.POD, namespace="shop", pod="load-1", workload=Workload("Job", "load")
)


def counted(*sources: tuple[int, Address]) -> dict[tuple[int, Address], int]:
    return dict.fromkeys(sources, 1)


def named_in(book: SourceBook, source: tuple[int, Address]) -> SourceName:
    """Whose the one connection of a source was."""
    ((name, connections),) = book.shares(source, 1).items()
    assert connections == 1
    return name


def test_an_address_that_nobody_here_knows_is_wanted_once() -> None:
    book = SourceBook()
    assert book.see(counted(SOURCE), [], 7) == (WantedSource(CLIENT, 7),)
    assert book.see(counted(SOURCE), [], 8) == ()
    assert named_in(book, SOURCE) == SourceName("unknown", "10.0.0.9")


def test_two_pods_that_drop_the_same_client_cost_one_lookup() -> None:
    assert SourceBook().see(counted(SOURCE, (NETNS + 1, CLIENT)), [], 7) == (WantedSource(CLIENT, 7),)


def test_the_answer_names_all_that_wait_for_it_and_is_remembered_for_a_while() -> None:
    book = SourceBook()
    book.see(counted(SOURCE), [], 4)
    book.identify(OF_A_POD)
    assert named_in(book, SOURCE) == SourceName("pod", "shop/Job/load")
    later = (NETNS + 1, CLIENT)
    assert book.see(counted(later), [], 6) == ()
    assert named_in(book, later) == SourceName("pod", "shop/Job/load")
    assert book.see(counted((NETNS + 2, CLIENT)), [], OF_A_POD.at_ns + REMEMBERED_NS + 1) != ()


def test_a_node_is_named_by_its_name_and_an_external_client_by_its_address() -> None:
    book = SourceBook()
    book.see(counted(SOURCE), [], 4)
    book.identify(SourceIdentified(5, CLIENT, SourceKind.NODE, name="node-7"))
    assert named_in(book, SOURCE) == SourceName("node", "node-7")
    other = SourceBook()
    other.see(counted(SOURCE), [], 4)
    other.identify(SourceIdentified(5, CLIENT, SourceKind.EXTERNAL))
    assert named_in(other, SOURCE) == SourceName("external", "10.0.0.9")


def test_this_node_and_its_pods_are_known_without_a_lookup() -> None:
    book = SourceBook(frozenset({CLIENT}))
    pod = IPv4Address("10.0.0.1")
    tracker = Tracker()
    tracker.apply(PodChanged(0, a_pod()))
    assert book.see(counted(SOURCE, (NETNS, pod)), tracker.lives.values(), 1) == ()
    assert named_in(book, SOURCE) == SourceName("node", "10.0.0.9")
    assert named_in(book, (NETNS, pod)) == SourceName("pod", "shop/Deployment/web")


def test_a_name_stays_when_the_address_becomes_another_pods() -> None:
    book, tracker = SourceBook(), Tracker()
    shared = IPv4Address("10.0.0.1")
    tracker.apply(PodChanged(0, a_pod("uid-1")))
    book.see(counted((NETNS + 1, shared)), tracker.lives.values(), 1)
    for record in (
        NamespaceIdentified(1, NETNS, "uid-1"),
        PodRemoved(2, "uid-1"),
        NetworkRemoved(2, NETNS),
        PodChanged(3, a_pod("uid-2")),
    ):
        tracker.apply(record)
    book.see(counted((NETNS + 2, shared)), [tracker.lives["uid-2"], tracker.lives["uid-1"]], 4)
    assert named_in(book, (NETNS + 1, shared)) == SourceName("pod", "shop/Deployment/web")


def test_nothing_is_kept_of_a_pod_that_is_forgotten() -> None:
    book = SourceBook()
    book.see(counted(SOURCE), [], 4)
    book.identify(OF_A_POD)
    book.forget(NETNS)
    assert named_in(book, SOURCE) == SourceName("unknown", "10.0.0.9")


def test_drops_are_shown_under_the_name_of_the_workload_that_sent_them() -> None:
    observation = Observation(600 * SECOND)
    for record in (PodChanged(0, a_pod()), NamespaceIdentified(0, NETNS, "uid-1")):
        observation.apply(record)
    other = IPv4Address("10.0.0.8")
    key = CountKey(NETNS, 8080, Kind.REFUSED, Fact.LISTENED | Fact.DELETED)
    counts = KernelCounts({key: Count(9, 1, 2)}, {SOURCE: 3, (NETNS, other): 4})
    (order,) = observation.settle(10, counts)
    assert order == IdentifySources((WantedSource(CLIENT, 10), WantedSource(other, 10)))
    for address in (CLIENT, other):
        observation.apply(
            SourceIdentified(
                11, address, SourceKind.POD, namespace="shop", pod="load", workload=Workload("Job", "load")
            )
        )
    assert observation.read(counts).sources[WEB] == {SourceName("pod", "shop/Job/load"): 7, None: 2}


def test_an_address_that_only_a_second_family_could_have_is_not_called_external() -> None:
    book, tracker = SourceBook(), Tracker()
    tracker.apply(PodChanged(0, a_pod()))
    second = IPv6Address("fd00::9")
    book.see(counted((NETNS, second), SOURCE), tracker.lives.values(), 1)
    for address in (second, CLIENT):
        book.identify(SourceIdentified(2, address, SourceKind.EXTERNAL))
    assert named_in(book, (NETNS, second)) == SourceName("unknown", "fd00::9")
    assert named_in(book, SOURCE) == SourceName("external", "10.0.0.9")


def test_a_question_without_an_answer_is_put_again_after_a_minute() -> None:
    book = SourceBook()
    book.see(counted(SOURCE), [], 0)
    assert book.see(counted(SOURCE), [], 59 * SECOND) == ()
    assert book.see(counted(SOURCE), [], 60 * SECOND) == (WantedSource(CLIENT, 60 * SECOND),)


SHARED = IPv4Address("10.0.0.1")


def of_workload(uid: str, name: str, *, finished: bool = False) -> PodChanged:
    pod = a_pod(uid, address=str(SHARED), finished=finished)
    return PodChanged(0, replace(pod, workload=Workload("Deployment", name)))


def tracker_of(*records: Record) -> Tracker:
    tracker = Tracker()
    for record in records:
        tracker.apply(record)
    return tracker


def test_a_pod_that_is_gone_is_known_without_a_lookup_while_its_drops_are_still_being_read() -> None:
    gone = (of_workload("a", "old"), NamespaceIdentified(0, 7, "a"), NetworkRemoved(10 * SECOND, 7))
    lives = tracker_of(*gone).lives.values()
    book = SourceBook()
    assert book.see(counted((NETNS, SHARED)), lives, 12 * SECOND) == ()
    assert named_in(book, (NETNS, SHARED)) == SourceName("pod", "shop/Deployment/old")


def test_an_address_is_the_next_pods_once_the_network_of_the_one_before_is_gone() -> None:
    tracker = tracker_of(
        of_workload("a", "old"),
        NamespaceIdentified(0, 7, "a"),
        NetworkRemoved(10 * SECOND, 7),
        of_workload("b", "new"),
    )
    book = SourceBook()
    book.see(counted((NETNS, SHARED)), tracker.lives.values(), 10 * SECOND + SECOND // 2)
    assert named_in(book, (NETNS, SHARED)) == SourceName("pod", "shop/Deployment/new")


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (SourceIdentified(9, SHARED, SourceKind.EXTERNAL), SourceName("pod", "shop/Deployment/old")),
        (replace(OF_A_POD, address=SHARED), SourceName("pod", "shop/Job/load")),
        (SourceIdentified(9, SHARED, SourceKind.UNKNOWN), SourceName("unknown", "10.0.0.1")),
    ],
    ids=["nobody has it", "a pod elsewhere has it", "not told"],
)
def test_an_address_that_a_pod_left_long_ago_is_looked_up(
    answer: SourceIdentified, named: SourceName
) -> None:
    tracker = tracker_of(of_workload("a", "old"), NamespaceIdentified(0, 7, "a"), NetworkRemoved(SECOND, 7))
    book = SourceBook()
    now = 60 * SECOND
    assert book.see(counted((NETNS, SHARED)), tracker.lives.values(), now) == (WantedSource(SHARED, now),)
    book.identify(answer)
    assert named_in(book, (NETNS, SHARED)) == named


def test_a_finished_pod_does_not_have_the_address_that_its_status_lists() -> None:
    finished = of_workload("a", "old", finished=True)
    book = SourceBook()
    assert book.see(counted((NETNS, SHARED)), tracker_of(finished).lives.values(), 60 * SECOND) != ()
    both = tracker_of(of_workload("b", "new"), finished).lives.values()
    assert book.see(counted((NETNS + 1, SHARED)), both, 60 * SECOND) == ()
    assert named_in(book, (NETNS + 1, SHARED)) == SourceName("pod", "shop/Deployment/new")


def test_each_connection_is_the_pods_that_had_the_address_when_it_was_counted() -> None:
    """One pod drops two clients, one after the other, at the same address."""
    old, new = SourceName("pod", "shop/Deployment/old"), SourceName("pod", "shop/Deployment/new")
    source, book = (NETNS, SHARED), SourceBook()
    tracker = tracker_of(of_workload("a", "old"), NamespaceIdentified(0, 7, "a"))
    book.see({source: 3}, tracker.lives.values(), SECOND)
    book.show({source: 4})
    for record in (NetworkRemoved(2 * SECOND, 7), of_workload("b", "new")):
        tracker.apply(record)
    assert book.see({source: 4}, tracker.lives.values(), 3 * SECOND) == ()
    book.see({source: 9}, tracker.lives.values(), 4 * SECOND)
    assert book.shares(source, 9) == {old: 4, new: 5}
    assert book.shares(source, 11) == {old: 4, new: 7}


def test_a_client_that_is_dropped_again_much_later_is_looked_up_again() -> None:
    load, other = SourceName("pod", "shop/Job/load"), SourceName("external", "10.0.0.9")
    book = SourceBook()
    book.see({SOURCE: 3}, [], 4)
    book.identify(OF_A_POD)
    much_later = OF_A_POD.at_ns + REMEMBERED_NS + 1
    assert book.see({SOURCE: 3}, [], much_later) == ()
    assert book.see({SOURCE: 5}, [], much_later) == (WantedSource(CLIENT, much_later),)
    assert book.shares(SOURCE, 5) == {load: 3, SourceName("unknown", "10.0.0.9"): 2}
    book.identify(SourceIdentified(much_later, CLIENT, SourceKind.EXTERNAL))
    assert book.shares(SOURCE, 5) == {load: 3, other: 2}


OWNERS = ("old", "new", None)
STEPS = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(OWNERS), st.sampled_from(["see", "show", "answer"])),
    max_size=30,
)


@given(STEPS)
def test_what_was_shown_under_a_name_stays_there_and_each_connection_counts_once(
    steps: list[tuple[int, str | None, str]],
) -> None:
    """But from `unknown`, once somebody has answered."""
    book, count, now, shown = SourceBook(), 0, 0, Counter[SourceName]()
    for more, owner, action in steps:
        count, now = count + more, now + 400 * SECOND
        lives = [PodLife(of_workload("a", owner).pod)] if owner else []
        match action:
            case "see":
                book.see({(NETNS, SHARED): count}, lives, now)
            case "show":
                book.show({(NETNS, SHARED): count})
            case _:
                book.identify(SourceIdentified(now, SHARED, SourceKind.EXTERNAL))
        shares = book.shares((NETNS, SHARED), count)
        assert shares.total() == count
        assert min(shares.values()) >= 0
        assert all(shares[name] >= connections for name, connections in shown.items() if known(name))
        shown = shares if action == "show" else shown


def known(name: SourceName) -> bool:
    return name.kind != "unknown"


@pytest.mark.parametrize("removed", [False, True])
def test_a_finished_pod_is_not_named_again_when_its_object_is_deleted_much_later(removed: bool) -> None:
    finished = of_workload("a", "job", finished=True)
    deleted = replace(
        finished, pod=replace(finished.pod, deletion_requested_ns=3600 * SECOND), at_ns=3600 * SECOND
    )
    gone = (PodRemoved(3600 * SECOND, "a"),) if removed else ()
    book = SourceBook()
    assert (
        book.see(counted((NETNS, SHARED)), tracker_of(finished, deleted, *gone).lives.values(), 3601 * SECOND)
        != ()
    )


def test_an_address_is_named_by_the_pod_that_has_it_also_while_a_finished_one_that_had_it_is_deleted() -> (
    None
):
    finished = of_workload("a", "job", finished=True)
    deleted = replace(
        finished, pod=replace(finished.pod, deletion_requested_ns=60 * SECOND), at_ns=60 * SECOND
    )
    left = (of_workload("b", "new"), NamespaceIdentified(0, 7, "b"), NetworkRemoved(59 * SECOND, 7))
    book = SourceBook()
    book.see(counted((NETNS, SHARED)), tracker_of(finished, *left, deleted).lives.values(), 60 * SECOND)
    assert named_in(book, (NETNS, SHARED)) == SourceName("pod", "shop/Deployment/new")
