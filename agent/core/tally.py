"""Counts by pod and by workload, out of the kernel's counts by namespace."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from agent.core.counts import Count, CountKey
from agent.core.kinds import NEW_CONNECTION_KINDS, Kind
from agent.core.life import PodLife
from agent.core.phases import Phase, phase_of
from agent.core.records import Workload


@dataclass(frozen=True, slots=True)
class WorkloadKey:
    """A workload in its namespace."""

    namespace: str
    workload: Workload


@dataclass(frozen=True, slots=True)
class PodKey:
    """A pod by its name, which a StatefulSet gives to the next pod too, and its workload."""

    namespace: str
    name: str
    workload: Workload


@dataclass(slots=True)
class Tally:
    """Connections of one pod or workload: dropped by kind and phase, late (accepted while dying) by phase."""

    dropped: Counter[tuple[Kind, Phase]] = field(default_factory=Counter)
    late: Counter[Phase] = field(default_factory=Counter)
    last_attempt_ns: int | None = None
    """When the last new connection came while the pod was dying; None when none came."""

    def add(self, key: CountKey, count: Count) -> None:
        """Add one of the kernel's counts."""
        phase = phase_of(key.facts)
        if key.kind is None:
            self.late[phase] += count.connections
        else:
            self.dropped[key.kind, phase] += count.connections
        if phase.dying and (key.kind is None or key.kind in NEW_CONNECTION_KINDS):
            self.last_attempt_ns = max(count.last_ns, self.last_attempt_ns or 0)

    def merge(self, other: "Tally") -> None:
        """Add another tally's connections; the time of the last attempt is a pod's own and stays."""
        self.dropped.update(other.dropped)
        self.late.update(other.late)


def key_of(life: PodLife) -> WorkloadKey:
    """The workload that a pod belongs to."""
    return WorkloadKey(life.pod.namespace, life.pod.workload)


def pod_key_of(life: PodLife) -> PodKey:
    """The name by which a pod is shown."""
    return PodKey(life.pod.namespace, life.pod.name, life.pod.workload)


def tally_by_namespace(counts: Iterable[tuple[CountKey, Count]]) -> dict[int, Tally]:
    """One tally for each network namespace."""
    tallies: dict[int, Tally] = {}
    for key, count in counts:
        tallies.setdefault(key.netns, Tally()).add(key, count)
    return tallies
