"""The truth about late connections: what dying pods' servers accepted from clients, from their own logs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

LEARNED_WITHIN_NS = 150_000_000
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


def late_truth(log: Path, clients: frozenset[str], deleted_ns: int) -> LateTruth:
    """Read a server's connection log; connections of others than the clients are the kubelet's."""
    accepted = [
        entry["accepted_ns"]
        for entry in map(json.loads, log.read_text().splitlines())
        if entry["peer"] in clients
    ]
    return LateTruth(
        at_least=sum(moment >= deleted_ns + LEARNED_WITHIN_NS for moment in accepted),
        at_most=sum(moment >= deleted_ns for moment in accepted),
    )


def wrong_late_counts(truth: Mapping[str, LateTruth], counted: Mapping[str, int]) -> dict[str, LateTruth]:
    """The pods whose late count cannot be right."""
    return {pod: late for pod, late in truth.items() if not late.allows(counted.get(pod, 0))}
