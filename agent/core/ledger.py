"""Totals by workload that outlive their pods: what the counters of a workload are made of."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.core.counts import KernelCounts
from agent.core.kinds import Kind
from agent.core.life import PodLife, Stage
from agent.core.records import Address
from agent.core.source_book import SourceBook, SourceName
from agent.core.tally import PodKey, Tally, WorkloadKey, key_of, pod_key_of, tally_by_namespace
from agent.core.tracker import Tracker

NAMED_SOURCES = 20
"""Sources of a workload that get a series of their own; the rest is `other`."""

LAG_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 20, 30, 45, 60, 90, 120)
"""Upper bounds in seconds of the histograms of lag."""


@dataclass(slots=True)
class Histogram:
    """Observations in seconds, counted into LAG_BUCKETS."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(LAG_BUCKETS) + 1))
    total_seconds: float = 0.0

    def observe(self, seconds: float) -> None:
        """Count one observation."""
        below = next((i for i, bound in enumerate(LAG_BUCKETS) if seconds <= bound), len(LAG_BUCKETS))
        self.counts[below] += 1
        self.total_seconds += seconds


@dataclass(frozen=True, slots=True)
class Reading:
    """The state of all counts at one instant."""

    pods: dict[str, Tally]
    """By pod UID; a pod nothing happened to has an empty tally."""
    workloads: dict[WorkloadKey, Tally]
    sources: dict[WorkloadKey, dict[SourceName | None, int]]
    """Drops by source; None is every other source."""
    unattributed: Counter[Kind]
    """Drops in namespaces that belong to no known pod."""
    forgotten: dict[PodKey, Tally] = field(default_factory=dict)
    """What forgotten pods had counted whose name a known pod has now: a series that goes on must not fall."""


class Ledger:
    """Keeps what pods that are forgotten had counted, and what has been observed of lag."""

    def __init__(self, book: SourceBook | None = None) -> None:
        self._book = book or SourceBook()
        self._retired: dict[WorkloadKey, Tally] = {}
        self._retired_pods: dict[PodKey, Tally] = {}
        self._retired_sources: dict[WorkloadKey, Counter[SourceName]] = {}
        self._source_counts: dict[tuple[int, Address], int] = {}
        self._named: dict[WorkloadKey, set[Address]] = {}
        self._other: dict[WorkloadKey, int] = {}
        self._unattributed: Counter[Kind] = Counter()
        self._observed: set[tuple[str, Stage]] = set()
        self.lags: dict[tuple[WorkloadKey, Stage], Histogram] = {}

    def read(self, tracker: Tracker, counts: KernelCounts) -> Reading:
        """Every count by pod and by workload."""
        by_namespace = tally_by_namespace(counts.counts.items())
        self._keep_highest(tracker, counts)
        pods: dict[str, Tally] = {}
        workloads: dict[WorkloadKey, Tally] = {}
        for key, retired in self._retired.items():
            workloads.setdefault(key, Tally()).merge(retired)
        for uid, life in tracker.lives.items():
            pods[uid] = by_namespace.pop(life.netns, Tally()) if life.netns is not None else Tally()
            for former in life.former_netns:
                pods[uid].merge(by_namespace.pop(former, Tally()))
            workloads.setdefault(key_of(life), Tally()).merge(pods[uid])
        unattributed: Counter[Kind] = Counter()
        for tally in by_namespace.values():
            for (kind, _), connections in tally.dropped.items():
                unattributed[kind] += connections
        # A counter never falls: what was shown before its pod became known stays.
        self._unattributed |= unattributed
        return Reading(
            pods,
            workloads,
            self._sources(tracker, workloads),
            Counter(self._unattributed),
            self._forgotten(tracker),
        )

    def _forgotten(self, tracker: Tracker) -> dict[PodKey, Tally]:
        """Kept for as long as a pod of that name is known: its series end with the last of them."""
        if self._retired_pods:
            known = {pod_key_of(life) for life in tracker.lives.values()}
            self._retired_pods = {key: tally for key, tally in self._retired_pods.items() if key in known}
        return dict(self._retired_pods)

    def _keep_highest(self, tracker: Tracker, counts: KernelCounts) -> None:
        """The kernel's table of sources evicts: a count that fell was evicted and began again.

        It also holds entries of pods that are forgotten, and more sources than are ever shown: those are not
        kept, so that what is kept stays small whatever comes and goes.
        """
        for source, connections in counts.sources.items():
            netns, address = source
            life = tracker.life_in(netns)
            if life is not None and self._is_named(key_of(life), address):
                self._source_counts[source] = max(connections, self._source_counts.get(source, 0))

    def _is_named(self, key: WorkloadKey, address: Address) -> bool:
        """Whether the source has a series of its own: the first NAMED_SOURCES of a workload have."""
        named = self._named.setdefault(key, set())
        if len(named) < NAMED_SOURCES:
            named.add(address)
        return address in named

    def _sources(
        self, tracker: Tracker, workloads: dict[WorkloadKey, Tally]
    ) -> dict[WorkloadKey, dict[SourceName | None, int]]:
        by_workload = {key: Counter(sources) for key, sources in self._retired_sources.items()}
        for source, connections in self._source_counts.items():
            life = tracker.life_in(source[0])
            if life is not None:
                by_workload.setdefault(key_of(life), Counter()).update(self._book.shares(source, connections))
        return {
            key: self._with_other(key, by_workload.get(key, Counter()), tally.dropped.total())
            for key, tally in workloads.items()
        }

    def _with_other(
        self, key: WorkloadKey, sources: Counter[SourceName], dropped: int
    ) -> dict[SourceName | None, int]:
        shown: dict[SourceName | None, int] = dict(sources.items())
        rest = dropped - sources.total()
        # A counter never falls, though the table of sources can be read a moment after the drops.
        self._other[key] = max(rest, self._other.get(key, 0))
        if self._other[key]:
            shown[None] = self._other[key]
        return shown

    def shown_sources(self) -> Mapping[tuple[int, Address], int]:
        """The sources that have, or will have, a series of their own, and their connections."""
        return self._source_counts

    def observe_lag(self, life: PodLife, stage: Stage, seconds: float) -> None:
        """Count a stage of a termination, once."""
        if (life.pod.uid, stage) not in self._observed:
            self._observed.add((life.pod.uid, stage))
            self.lags.setdefault((key_of(life), stage), Histogram()).observe(seconds)

    def retire(self, life: PodLife, tally: Tally) -> None:
        """Keep a pod's counts, as last read, under its workload before the pod is forgotten."""
        for stage in Stage:
            self._observed.discard((life.pod.uid, stage))
        if life.netns is None:
            return
        self._retired.setdefault(key_of(life), Tally()).merge(tally)
        self._retired_pods.setdefault(pod_key_of(life), Tally()).merge(tally)
        for source in [source for source in self._source_counts if source[0] == life.netns]:
            retired = self._retired_sources.setdefault(key_of(life), Counter())
            retired.update(self._book.shares(source, self._source_counts.pop(source)))
        self._book.forget(life.netns)
