"""The closed set of ways in which a pod fails a connection (docs/kinds-and-phases.md)."""

from enum import Enum


class Kind(Enum):
    """How one connection (server-side 4-tuple) was dropped; values are label values."""

    REFUSED = "refused"
    STALE = "stale"
    UNACCEPTED = "unaccepted"
    UNREAD = "unread"
    UNANSWERED = "unanswered"
    ABORTED = "aborted"
    UNREACHABLE = "unreachable"
    OVERFLOW = "overflow"


NEW_CONNECTION_KINDS = frozenset({Kind.REFUSED, Kind.UNREACHABLE, Kind.OVERFLOW, Kind.UNACCEPTED})
"""Kinds whose drop is itself a new connection attempt, so that it tells how long traffic kept coming."""
