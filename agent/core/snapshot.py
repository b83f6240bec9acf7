"""Everything that an output may want to know, at one instant."""

from collections.abc import Mapping
from dataclasses import dataclass

from agent.core.counts import HookCounts
from agent.core.ledger import Histogram, Reading
from agent.core.life import PodLife, Stage
from agent.core.records import KubeProxyState
from agent.core.tally import WorkloadKey


@dataclass(frozen=True, slots=True)
class HookState:
    """A hook by name and variant, and whether it is attached."""

    name: str
    variant: str
    attached: bool


@dataclass(frozen=True, slots=True)
class ProgramRuns:
    """How long a BPF program has run and how often (zero runs unless BPF statistics are on)."""

    program: str
    seconds: float
    runs: int


@dataclass(frozen=True, slots=True)
class WatchState:
    """How a watch of the API server fares. `last_event_ns` is None before the first answer."""

    resource: str
    restarts: int
    last_event_ns: int | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One consistent view. `lives` are copies of nothing: read them only while the snapshot is being used."""

    lives: tuple[PodLife, ...]
    reading: Reading
    lags: Mapping[tuple[WorkloadKey, Stage], Histogram]
    kube_proxy: KubeProxyState | None
    kube_proxy_lag: Histogram
    hooks: tuple[HookState, ...]
    hook_counts: Mapping[str, HookCounts]
    program_runs: tuple[ProgramRuns, ...]
    watches: tuple[WatchState, ...]
