"""The phases of a pod's life, worked out from facts that the kernel and the API establish one by one."""

from enum import Enum, IntFlag


class Phase(Enum):
    """Where a pod was in its life when something happened, in order; values are label values."""

    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    TERMINATING = "terminating"
    PRESTOP = "prestop"
    STOPPING = "stopping"
    CLOSED = "closed"
    EXITED = "exited"
    GONE = "gone"

    @property
    def dying(self) -> bool:
        """Whether a pod in this phase is on its way out."""
        return self in _DYING


_DYING = frozenset(
    {Phase.TERMINATING, Phase.PRESTOP, Phase.STOPPING, Phase.CLOSED, Phase.EXITED, Phase.GONE},
)


class Fact(IntFlag):
    """What holds for a pod's port at one instant. The bits are those of bpf/records.h.

    Counters are keyed by these facts and not by a phase, so that a count keeps its right phase even
    where the record that announced a fact was lost.
    """

    DELETED = 1
    """The API server has been asked to delete the pod, or the kubelet ends it without being asked to."""
    PRESTOP_DECLARED = 2
    """A container of the pod declares a preStop hook."""
    SIGNALLED = 4
    """The runtime has sent the container its stop signal (or SIGKILL)."""
    EXITED = 8
    """The container's init process has exited."""
    LISTENED = 16
    """The port has been listened on."""
    CLOSED = 32
    """The port's last listener has closed."""
    GONE = 64
    """The pod's network has been removed."""


def phase_of(facts: Fact) -> Phase:
    """The phase that a set of facts amounts to; later facts win over earlier ones."""
    if Fact.GONE in facts:
        return Phase.GONE
    if Fact.DELETED in facts:
        return _phase_of_a_dying_pod(facts)
    if facts & (Fact.SIGNALLED | Fact.EXITED):
        return Phase.RESTARTING
    return Phase.RUNNING if Fact.LISTENED in facts else Phase.STARTING


def _phase_of_a_dying_pod(facts: Fact) -> Phase:
    if Fact.EXITED in facts:
        return Phase.EXITED
    if Fact.CLOSED in facts:
        return Phase.CLOSED
    if Fact.SIGNALLED in facts:
        return Phase.STOPPING
    return Phase.PRESTOP if Fact.PRESTOP_DECLARED in facts else Phase.TERMINATING
