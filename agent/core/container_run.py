"""One run of a container, from its first record to its end; a restart begins another run."""

from dataclasses import dataclass, field
from enum import Enum

from agent.core.boundaries import Boundaries, Boundary, Moment, Source
from agent.core.records import ContainerEnd, PodEventSeen, SignalResult

_SIGKILL = 9
_LAST_SIGNAL = 127
_LAST_STANDARD_SIGNAL = 31
_KILLED_BY_SIGNAL = 128
"""A shell, and Kubernetes after it, gives 128 + N as the exit code of a process that signal N ended."""


@dataclass(frozen=True, slots=True)
class SentSignal:
    """A signal from outside the container to its init process; `sender` is the sending process's name."""

    number: int
    result: SignalResult
    sender: str


@dataclass(frozen=True, slots=True)
class Exit:
    """How a run ended: an exit code, or the signal that ended it; `reason` is the API's word, if any."""

    code: int | None
    signal: int | None
    reason: str | None = None

    @property
    def killed(self) -> bool:
        """Whether SIGKILL ended it."""
        return self.signal == _SIGKILL


class RestartCause(Enum):
    """Why the kubelet ends a container of a pod that stays, by its event `Killing`."""

    LIVENESS_PROBE = "liveness_probe"
    STARTUP_PROBE = "startup_probe"
    CHANGED = "container_changed"
    """Its specification changed, or what it needs to be started again did."""


@dataclass(slots=True)
class ContainerRun:
    """What is known of a run. `name` and `container_id` are None until somebody has told them."""

    name: str | None = None
    container_id: str | None = None
    init_pid: int | None = None
    first_seen_ns: int = 0
    """When the first record of the run came."""
    replaced: bool = False
    """Another run of the container has begun."""
    serves: bool = False
    """Its processes have listened on a port."""
    open_ports: set[int] = field(default_factory=set)
    boundaries: Boundaries = field(default_factory=dict)
    ports_closed: dict[int, Moment] = field(default_factory=dict)
    stop_signal: SentSignal | None = None
    exit: Exit | None = None
    restart_cause: RestartCause | None = None
    killing: PodEventSeen | None = None
    """The kubelet's event that it ends the container."""
    hook_failure: PodEventSeen | None = None
    """The kubelet's event that the preStop hook failed."""
    hook_exit: Exit | None = None
    """How the process of an exec hook ended; None if that was not seen."""
    hook_connected: bool = False
    """The kubelet's connection that is an HTTP hook has been seen."""

    @property
    def of_a_container(self) -> bool:
        """Whether it is known to be one of the pod's containers: the pause container is a run too."""
        return self.serves or self.name is not None

    @property
    def ended(self) -> bool:
        """Whether its init process is gone."""
        return Boundary.EXITED in self.boundaries

    @property
    def ending(self) -> bool:
        """Whether it has been told to stop, or has ended."""
        return Boundary.STOP_SIGNAL in self.boundaries or self.ended

    @property
    def seen_ending(self) -> bool:
        """Whether the kernel side has seen the end: nothing more can come from it of this run."""
        moment = self.boundaries.get(Boundary.EXITED)
        return moment is not None and moment.source is Source.KERNEL


def exit_of_wait_status(status: int) -> Exit:
    """The exit that a kernel's wait status means (wait(2): the low 7 bits are the signal)."""
    signal = status & _LAST_SIGNAL
    return Exit(None, signal) if signal else Exit(status >> 8 & 0xFF, None)


def exit_of_status(end: ContainerEnd) -> Exit:
    """The exit that the API's status tells of."""
    if end.signal:
        return Exit(None, end.signal, end.reason)
    if _KILLED_BY_SIGNAL < end.exit_code <= _KILLED_BY_SIGNAL + _LAST_STANDARD_SIGNAL:
        return Exit(end.exit_code, end.exit_code - _KILLED_BY_SIGNAL, end.reason)
    return Exit(end.exit_code, None, end.reason)
