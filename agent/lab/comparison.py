"""Lastcall's counts against the clients': every class must be equal, there is no tolerance."""

from collections.abc import Mapping
from dataclasses import dataclass

from agent.core.kinds import Kind
from agent.core.phases import Phase
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


def resets_that_went_astray(differences: tuple[Difference, ...], by_phase: Mapping[Phase, int]) -> int:
    """How many refused connections the clients took for unanswered, if that is all that differs; else 0.

    The last reset of a pod can go with its network, in the instant in which that is removed: the pod refused
    the connection, and the client waits for an answer. `by_phase` are Lastcall's refusals: such a reset is
    sent by a pod whose container has exited.
    """
    found = {difference.failure_class: difference for difference in differences}
    if found.keys() != {FailureClass.REFUSED, FailureClass.TIMED_OUT}:
        return 0
    astray = found[FailureClass.REFUSED].lastcall - found[FailureClass.REFUSED].clients
    missing = found[FailureClass.TIMED_OUT].clients - found[FailureClass.TIMED_OUT].lastcall
    return astray if astray == missing and 0 < astray <= by_phase.get(Phase.EXITED, 0) else 0


def differences(clients: ClientCounts, by_kind: Mapping[Kind, int]) -> tuple[Difference, ...]:
    """The classes that differ, in order."""
    counted, seen = lastcall_by_class(by_kind), clients.by_class
    return tuple(
        Difference(failure_class, seen[failure_class], counted[failure_class])
        for failure_class in FailureClass
        if seen[failure_class] != counted[failure_class]
    )
