"""The ground truth: what the clients of a scenario's pods counted, connection by connection."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from agent.core.kinds import Kind
from agent.lab.node.outcome import FailedConnection, Outcome


class FailureClass(Enum):
    """What a client can tell apart about a failed connection."""

    REFUSED = "refused"
    TIMED_OUT = "timed out"
    BROKEN = "broken"


CLASS_OF_OUTCOME: Mapping[Outcome, FailureClass] = {
    Outcome.REFUSED: FailureClass.REFUSED,
    Outcome.TIMED_OUT: FailureClass.TIMED_OUT,
    Outcome.DELAYED: FailureClass.TIMED_OUT,
    Outcome.RESET: FailureClass.BROKEN,
    Outcome.TRUNCATED: FailureClass.BROKEN,
    Outcome.NO_ANSWER: FailureClass.BROKEN,
}
"""A delayed connection counts too: its Service's first choice did not answer, only the second one did."""

CLASS_OF_KIND: Mapping[Kind, FailureClass] = {
    Kind.REFUSED: FailureClass.REFUSED,
    Kind.UNREACHABLE: FailureClass.TIMED_OUT,
    Kind.STALE: FailureClass.BROKEN,
    Kind.UNACCEPTED: FailureClass.BROKEN,
    Kind.UNREAD: FailureClass.BROKEN,
    Kind.UNANSWERED: FailureClass.BROKEN,
    Kind.ABORTED: FailureClass.BROKEN,
}
"""Overflow is not here: it is no loss of a shutdown, and a client whose retry succeeds does not see it."""


@dataclass(frozen=True, slots=True)
class ClientCounts:
    """Failed connections by what their client saw; requests sent by the load generators, and answered."""

    requests: int
    answered: int
    by_outcome: Mapping[Outcome, int]

    @property
    def by_class(self) -> dict[FailureClass, int]:
        """Connections that a pod failed, by class; every class is there."""
        counts = dict.fromkeys(FailureClass, 0)
        for outcome, count in self.by_outcome.items():
            if outcome in CLASS_OF_OUTCOME:
                counts[CLASS_OF_OUTCOME[outcome]] += count
        return counts

    @property
    def total(self) -> int:
        """Connections that a pod failed."""
        return sum(self.by_class.values())


def client_counts(requests: int, answered: int, failures: Iterable[FailedConnection]) -> ClientCounts:
    """Count the failed connections of all clients of the pods."""
    return ClientCounts(requests, answered, Counter(failure.outcome for failure in failures))
