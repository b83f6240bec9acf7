"""The kernel's counts by namespace, summed by phase."""

from hypothesis import given
from hypothesis import strategies as st

from agent.core.counts import Count, CountKey
from agent.core.kinds import Kind
from agent.core.phases import Fact, Phase
from agent.core.tally import Tally, tally_by_namespace

DYING = Fact.LISTENED | Fact.DELETED
COUNT_KEYS = st.builds(
    CountKey,
    netns=st.integers(1, 3),
    port=st.integers(1, 65535),
    kind=st.sampled_from([None, *Kind]),
    facts=st.integers(0, 127).map(Fact),
)
COUNTS = st.dictionaries(COUNT_KEYS, st.builds(Count, st.integers(1, 10**6), st.just(1), st.integers(1, 99)))


def tally_of(kind: Kind | None, facts: Fact, *last_ns: int) -> Tally:
    counts = [(CountKey(1, port, kind, facts), Count(2, 1, last)) for port, last in enumerate(last_ns)]
    return tally_by_namespace(counts)[1]


@given(COUNTS)
def test_no_connection_is_counted_twice_or_lost(counts: dict[CountKey, Count]) -> None:
    tallies = tally_by_namespace(counts.items())
    assert tallies.keys() == {key.netns for key in counts}
    shown = sum(tally.dropped.total() + tally.late.total() for tally in tallies.values())
    assert shown == sum(count.connections for count in counts.values())


def test_ports_in_the_same_phase_add_up() -> None:
    assert tally_of(Kind.REFUSED, DYING | Fact.CLOSED, 5, 7).dropped == {(Kind.REFUSED, Phase.CLOSED): 4}


def test_late_connections_are_no_drops() -> None:
    tally = tally_of(None, DYING, 5)
    assert tally.late == {Phase.TERMINATING: 2}
    assert not tally.dropped


def test_the_last_attempt_is_the_latest_of_all_ports() -> None:
    assert tally_of(Kind.UNREACHABLE, DYING | Fact.GONE, 9, 5).last_attempt_ns == 9


def test_a_drop_on_an_old_connection_is_no_attempt() -> None:
    for kind in (Kind.STALE, Kind.UNREAD, Kind.UNANSWERED, Kind.ABORTED):
        assert tally_of(kind, DYING, 9).last_attempt_ns is None


def test_what_came_while_the_pod_was_alive_is_no_attempt_at_a_dying_one() -> None:
    assert tally_of(Kind.REFUSED, Fact(0), 9).last_attempt_ns is None


def test_a_merge_adds_connections_and_leaves_the_last_attempt_alone() -> None:
    total, other = tally_of(Kind.REFUSED, DYING, 5), tally_of(Kind.REFUSED, DYING, 9)
    total.merge(other)
    assert total.dropped == {(Kind.REFUSED, Phase.TERMINATING): 4}
    assert total.last_attempt_ns == 5
