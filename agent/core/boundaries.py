"""The moments that a termination goes through, and by whose word each is known."""

from dataclasses import dataclass
from enum import Enum


class Boundary(Enum):
    """A moment that ends one phase of a termination, in their usual order; values are the label `event`."""

    DELETION_REQUESTED = "deletion_requested"
    PRESTOP_STARTED = "prestop_started"
    PRESTOP_ENDED = "prestop_ended"
    STOP_SIGNAL = "stop_signal"
    LISTENER_CLOSED = "listener_closed"
    KILL_SIGNAL = "kill_signal"
    EXITED = "exited"
    NETWORK_REMOVED = "network_removed"
    OBJECT_DELETED = "object_deleted"


class Source(Enum):
    """Who established a boundary, the best witness first."""

    KERNEL = "kernel"
    API = "api"
    EVENT = "event"
    INFERRED = "inferred"


_WITNESSES = list(Source)


@dataclass(frozen=True, slots=True)
class Moment:
    """When something happened (nanoseconds since the epoch), and by whose word.

    `at_ns` is when it was seen, or an upper bound; `not_before_ns` is the lower bound where the two differ:
    the API's own times have a resolution of 1 s, and its news comes some time after the fact.
    """

    at_ns: int
    source: Source
    not_before_ns: int | None = None


SECOND_NS = 1_000_000_000
Boundaries = dict[Boundary, Moment]


def seconds_after(at_ns: int, seconds: float) -> int:
    """The time, in nanoseconds since the epoch, that many seconds later."""
    return at_ns + int(seconds * SECOND_NS)


def reach(boundaries: Boundaries, boundary: Boundary, moment: Moment) -> None:
    """Keep the word of the best witness about a boundary, and of two equal ones the first."""
    known = boundaries.get(boundary)
    if known is None or _WITNESSES.index(moment.source) < _WITNESSES.index(known.source):
        boundaries[boundary] = moment
