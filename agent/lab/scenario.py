"""What a scenario is: a workload, the load on it, what happens to it, and what ought to be seen."""

from dataclasses import dataclass, field
from enum import Enum

from agent.core.kinds import Kind
from agent.core.phases import Phase
from agent.lab.controlplane.deployment import Strategy
from agent.lab.controlplane.pod_template import HttpProbe, PreStopHook
from agent.lab.node.outcome import Via
from agent.lab.node.server import ServerSettings

CAREFUL = Strategy(max_surge=1, max_unavailable=0)
"""A Deployment's usual way with one pod more: the new pod first, the old one when the new one is ready."""

READYZ = HttpProbe("/readyz")
"""The readiness probe that workloads have unless they are to have none."""

REPLACE = Strategy(max_surge=0, max_unavailable=1)
"""The old pod first, then the new one, as when a pod is evicted."""


class Variant(Enum):
    """Which of a scenario's two workloads is played."""

    BEFORE = "before"
    AFTER = "after"


class Event(Enum):
    """What happens to the workload.

    Where a Service's rules change later than a pod's network goes, only one pod is replaced: a SYN that is
    sent again may go to another pod, and with two of them gone a client could not tell how many failed it.
    It is one too where nginx is to have a live pod left for its retries.
    """

    ROLLING_UPDATE = "rolling update"
    ONE_POD_REPLACED = "one pod replaced"
    LIVENESS_FAILURE = "liveness probe fails"


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment; `shell` runs the server behind a shell as PID 1."""

    server: ServerSettings
    prestop: PreStopHook | None = None
    grace_seconds: int = 10
    readiness: HttpProbe | None = READYZ
    liveness: HttpProbe | None = None
    replicas: int = 2
    strategy: Strategy = CAREFUL
    shell: bool = False


@dataclass(frozen=True, slots=True)
class Stream:
    """One load generator: `rate` requests a second through the Service or the ingress.

    A stream with `keep_alive` keeps that many connections open; one without makes a connection per request.
    """

    via: Via
    method: str = "GET"
    rate: float = 30.0
    keep_alive: int | None = None
    path: str = "/"
    check_idle: bool = True


@dataclass(frozen=True, slots=True)
class Lag:
    """How long after a slice's change each proxy has applied it, in seconds."""

    kube_proxy: float = 0.3
    ingress: float = 0.6


@dataclass(frozen=True, slots=True)
class Scenario:
    """One failure of the field. `happens` and `fix` are each one sentence; `after` is None where nothing is
    to be fixed. `shows` are kinds that `before` must produce: a run without them has not shown the failure.
    `phases` are those in which its connections can be dropped.
    `warm_up_seconds` is how long there is load before anything happens.
    """

    name: str
    happens: str
    before: Workload
    load: tuple[Stream, ...]
    shows: frozenset[Kind] = frozenset()
    phases: frozenset[Phase] = frozenset()
    fix: str | None = None
    after: Workload | None = None
    event: Event = Event.ROLLING_UPDATE
    lag: Lag = field(default_factory=Lag)
    warm_up_seconds: float = 0.8

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The variants there are, in playing order."""
        return (Variant.BEFORE,) if self.after is None else (Variant.BEFORE, Variant.AFTER)

    def workload(self, variant: Variant) -> Workload:
        """The variant's workload. Raises ValueError if there is no such variant."""
        workload = self.before if variant is Variant.BEFORE else self.after
        if workload is None:
            raise ValueError(f"{self.name} has nothing to fix")
        return workload
