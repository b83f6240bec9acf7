"""Both sides' counts are compared class by class, exactly."""

from collections import Counter

import pytest

from agent.core.kinds import Kind
from agent.core.phases import Phase
from agent.lab.client_counts import CLASS_OF_KIND, ClientCounts, FailureClass
from agent.lab.comparison import Difference, differences, resets_that_went_astray
from agent.lab.node.outcome import Outcome


def clients(**outcomes: int) -> ClientCounts:
    return ClientCounts(100, 90, Counter({Outcome(name): count for name, count in outcomes.items()}))


def test_equal_counts_have_no_difference() -> None:
    seen = clients(refused=3, timed_out=2, reset=1, truncated=4, no_answer=1)
    counted = {Kind.REFUSED: 3, Kind.UNREACHABLE: 2, Kind.STALE: 1, Kind.UNANSWERED: 4, Kind.UNREAD: 1}
    assert differences(seen, counted) == ()
    assert seen.total == 11


def test_one_connection_too_few_or_too_many_is_a_difference() -> None:
    assert differences(clients(refused=3), {Kind.REFUSED: 2}) == (Difference(FailureClass.REFUSED, 3, 2),)
    assert differences(clients(), {Kind.ABORTED: 1}) == (Difference(FailureClass.BROKEN, 0, 1),)


def test_a_class_is_not_made_up_for_by_another() -> None:
    found = differences(clients(refused=2), {Kind.UNREACHABLE: 2})
    assert {difference.failure_class for difference in found} == {
        FailureClass.REFUSED,
        FailureClass.TIMED_OUT,
    }


@pytest.mark.parametrize(
    ("seen", "counted", "exited", "astray"),
    [
        (clients(refused=11, timed_out=26), {Kind.REFUSED: 12, Kind.UNREACHABLE: 25}, 12, 1),
        (clients(refused=11, timed_out=26), {Kind.REFUSED: 12, Kind.UNREACHABLE: 25}, 0, 0),
        (clients(refused=12, timed_out=25), {Kind.REFUSED: 11, Kind.UNREACHABLE: 26}, 11, 0),
        (clients(refused=11, timed_out=26), {Kind.REFUSED: 12, Kind.UNREACHABLE: 26}, 12, 0),
        (clients(refused=11, timed_out=26, reset=1), {Kind.REFUSED: 12, Kind.UNREACHABLE: 25}, 12, 0),
    ],
)
def test_a_reset_can_go_with_the_network_and_nothing_else_is_explained_by_that(
    seen: ClientCounts, counted: dict[Kind, int], exited: int, astray: int
) -> None:
    by_phase = {Phase.EXITED: exited, Phase.CLOSED: 3}
    assert resets_that_went_astray(differences(seen, counted), by_phase) == astray


def test_what_is_no_connection_of_a_pod_is_not_compared() -> None:
    assert clients(http_error=5, rejected=2).total == 0
    assert differences(clients(http_error=5, rejected=2), {Kind.OVERFLOW: 1}) == ()


def test_every_kind_but_overflow_has_a_class() -> None:
    assert set(Kind) - set(CLASS_OF_KIND) == {Kind.OVERFLOW}
