"""What Lastcall counted for one namespace, read from the agent's metrics page."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from prometheus_client.parser import text_string_to_metric_families

from agent.core.kinds import Kind
from agent.core.phases import Phase

_Key = TypeVar("_Key")

STAGES = ("endpointslice", "kube_proxy", "traffic")
"""The stages of the propagation lag, in the order in which they usually come."""


@dataclass(frozen=True, slots=True)
class StageLag:
    """One stage's lag over `terminations` pods, in seconds."""

    terminations: int
    mean: float


@dataclass(frozen=True, slots=True)
class LastcallCounts:
    """Dropped connections by (pod, kind, phase), late ones by (pod, phase), and lags in seconds."""

    dropped: Mapping[tuple[str, Kind, Phase], int]
    late: Mapping[tuple[str, Phase], int]
    pod_lag: Mapping[str, float]
    stages: Mapping[str, StageLag]
    lost_events: int

    @property
    def by_kind(self) -> dict[Kind, int]:
        """Drops by kind, kinds without drops left out."""
        return _totals((kind, count) for (_, kind, _), count in self.dropped.items())

    def dropped_by_pod(self, kind: Kind) -> dict[str, int]:
        """Drops of one kind by pod, pods without any left out."""
        return _totals((pod, count) for (pod, other, _), count in self.dropped.items() if other is kind)

    @property
    def by_kind_and_phase(self) -> dict[tuple[Kind, Phase], int]:
        """Drops by kind and phase, those without drops left out."""
        return _totals(((kind, phase), count) for (_, kind, phase), count in self.dropped.items())

    @property
    def late_by_phase(self) -> dict[Phase, int]:
        """Late connections by phase, phases without any left out."""
        return _totals((phase, count) for (_, phase), count in self.late.items())

    @property
    def late_by_pod(self) -> dict[str, int]:
        """Late connections by pod, pods without any left out."""
        return _totals((pod, count) for (pod, _), count in self.late.items())

    @property
    def longest_lag(self) -> float | None:
        """The largest propagation lag of a pod in seconds, None if none was observed."""
        return max(self.pod_lag.values(), default=None)


def lastcall_counts(page: str, namespace: str) -> LastcallCounts:
    """The counts of a namespace. Raises ValueError for a page or label value that is not the contract's."""
    dropped: dict[tuple[str, Kind, Phase], int] = {}
    late: dict[tuple[str, Phase], int] = {}
    pod_lag: dict[str, float] = {}
    sums: dict[str, float] = {}
    counts: dict[str, int] = {}
    lost = 0
    for name, labels, value in _samples(page):
        if name == "lastcall_events_lost_total":
            lost += int(value)
        if labels.get("namespace") != namespace:
            continue
        match name:
            case "lastcall_pod_dropped_connections_total":
                dropped[labels["pod"], Kind(labels["kind"]), Phase(labels["phase"])] = int(value)
            case "lastcall_pod_late_connections_total":
                late[labels["pod"], Phase(labels["phase"])] = int(value)
            case "lastcall_pod_propagation_lag_seconds":
                if not math.isnan(value):
                    pod_lag[labels["pod"]] = value
            case "lastcall_propagation_lag_seconds_sum":
                sums[labels["stage"]] = sums.get(labels["stage"], 0.0) + value
            case "lastcall_propagation_lag_seconds_count":
                counts[labels["stage"]] = counts.get(labels["stage"], 0) + int(value)
    stages = {
        stage: StageLag(counts[stage], sums[stage] / counts[stage]) for stage in counts if counts[stage]
    }
    return LastcallCounts(dropped, late, pod_lag, stages, lost)


def _samples(page: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def _totals(pairs: Iterator[tuple[_Key, int]]) -> dict[_Key, int]:
    totals: dict[_Key, int] = {}
    for key, count in pairs:
        if count:
            totals[key] = totals.get(key, 0) + count
    return totals
