"""The truth about late connections: what dying pods' servers accepted from clients, from their own logs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

LEARNED_WITHIN_NS = 250_000_000
"""How long after the DELETE call the agent may still count a connection as one of a running pod: the watch
event has to arrive first. Connections accepted in between may be counted either way."""


@dataclass(frozen=True, slots=True)
class LateTruth:
    """A pod accepted `at_least` connections that are late for certain, `at_most` with those in between."""

    at_least: int
    at_most: int

    def allows(self, counted: int) -> bool:
        """Whether a count can be right."""
        return self.at_least <= counted <= self.at_most


def accepted_from(log: Path, clients: frozenset[str]) -> tuple[int, ...]:
    """When the server accepted connections of clients (nanoseconds since the epoch), from its own log.

    Connections of others are the kubelet's.
    """
    entries = map(json.loads, log.read_text().splitlines())
    return tuple(entry["accepted_ns"] for entry in entries if entry["peer"] in clients)


def late_truth(accepted: Sequence[int], deleted_ns: int) -> LateTruth:
    """How many of the accepted connections were late ones."""
    return LateTruth(
        at_least=sum(moment >= deleted_ns + LEARNED_WITHIN_NS for moment in accepted),
        at_most=sum(moment >= deleted_ns for moment in accepted),
    )


def wrong_late_counts(
    truth: Mapping[str, LateTruth], counted: Mapping[str, int], unaccepted: Mapping[str, int]
) -> dict[str, LateTruth]:
    """The pods whose late count cannot be right.

    A connection that waited in the accept queue until the listener closed is late too, by its handshake, and
    is not in the server's log; it is counted as `unaccepted` besides (docs/kinds-and-phases.md).
    """
    return {
        pod: late
        for pod, late in truth.items()
        if not replace(late, at_most=late.at_most + unaccepted.get(pod, 0)).allows(counted.get(pod, 0))
    }
