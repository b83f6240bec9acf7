"""Lastcall's counts against the clients': every class must be equal, there is no tolerance."""

from collections.abc import Mapping
from dataclasses import dataclass

from agent.core.kinds import Kind
from agent.lab.client_counts import CLASS_OF_KIND, ClientCounts, FailureClass


@dataclass(frozen=True, slots=True)
class Difference:
    """A class that the clients and Lastcall count differently."""

    failure_class: FailureClass
    clients: int
    lastcall: int


def lastcall_by_class(by_kind: Mapping[Kind, int]) -> dict[FailureClass, int]:
    """Lastcall's drops in the classes that clients can tell apart; every class is there."""
    counts = dict.fromkeys(FailureClass, 0)
    for kind, count in by_kind.items():
        if kind in CLASS_OF_KIND:
            counts[CLASS_OF_KIND[kind]] += count
    return counts


def differences(clients: ClientCounts, by_kind: Mapping[Kind, int]) -> tuple[Difference, ...]:
    """The classes that differ, in order."""
    counted, seen = lastcall_by_class(by_kind), clients.by_class
    return tuple(
        Difference(failure_class, seen[failure_class], counted[failure_class])
        for failure_class in FailureClass
        if seen[failure_class] != counted[failure_class]
    )
