"""One pod's life as it is known so far."""

from dataclasses import dataclass, field
from enum import Enum

from agent.core.phases import Fact
from agent.core.records import Pod


class Boundary(Enum):
    """A moment that ends one phase of a termination; values are the label `event`."""

    DELETION_REQUESTED = "deletion_requested"
    STOP_SIGNAL = "stop_signal"
    LISTENER_CLOSED = "listener_closed"
    KILL_SIGNAL = "kill_signal"
    EXITED = "exited"
    NETWORK_REMOVED = "network_removed"
    OBJECT_DELETED = "object_deleted"


class Source(Enum):
    """Who established a boundary."""

    KERNEL = "kernel"
    API = "api"
    INFERRED = "inferred"


@dataclass(frozen=True, slots=True)
class Moment:
    """When something happened (nanoseconds since the epoch), and by whose word."""

    at_ns: int
    source: Source


class Stage(Enum):
    """Where the news of a deletion has to arrive; values are the label `stage`."""

    ENDPOINTSLICE = "endpointslice"
    KUBE_PROXY = "kube_proxy"
    TRAFFIC = "traffic"


@dataclass(slots=True)
class PodLife:
    """What is known of a pod, from its first record to long after its end."""

    pod: Pod
    netns: int | None = None
    found_dying: bool = False
    """The pod was being deleted already when it became known: its listeners may have closed before."""
    serving_inits: set[int] = field(default_factory=set)
    exited_inits: set[int] = field(default_factory=set)
    open_ports: set[int] = field(default_factory=set)
    boundaries: dict[Boundary, Moment] = field(default_factory=dict)
    endpoint_seen_ns: int | None = None
    last_endpoint: bool = False
    """No other endpoint of a Service was ready: traffic may be sent here by design (KEP-1669)."""
    stage_seconds: dict[Stage, float] = field(default_factory=dict)

    @property
    def deleted(self) -> bool:
        """Whether the pod has been asked to go."""
        return Boundary.DELETION_REQUESTED in self.boundaries

    @property
    def last_boundary_ns(self) -> int:
        """When the latest boundary was reached; 0 before any."""
        return max((moment.at_ns for moment in self.boundaries.values()), default=0)

    @property
    def over(self) -> bool:
        """Whether nothing more will happen to the pod: its object and its network are gone."""
        network_gone = self.netns is None or Boundary.NETWORK_REMOVED in self.boundaries
        return Boundary.OBJECT_DELETED in self.boundaries and network_gone

    @property
    def dying(self) -> bool:
        """Deleted, and still there in the API or on the network."""
        return self.deleted and not self.over

    @property
    def restarting(self) -> bool:
        """A container was stopped or has ended, and the pod has not been deleted."""
        ended = Boundary.STOP_SIGNAL in self.boundaries or Boundary.EXITED in self.boundaries
        return ended and not self.deleted

    def facts(self) -> Fact:
        """What the kernel side must know of the pod that it cannot see itself."""
        facts = Fact(0)
        if self.deleted:
            facts |= Fact.DELETED
            if self.pod.declares_prestop:
                facts |= Fact.PRESTOP_DECLARED
        if Boundary.NETWORK_REMOVED in self.boundaries:
            facts |= Fact.GONE
        return facts

    @property
    def declared_ports(self) -> frozenset[int]:
        """The TCP ports that the pod's specification names."""
        return frozenset(port for container in self.pod.containers for port in container.ports)

    def seconds_since_deletion(self, at_ns: int) -> float | None:
        """Seconds from the deletion request to `at_ns`, never negative; None before any deletion."""
        deletion = self.boundaries.get(Boundary.DELETION_REQUESTED)
        return max(0.0, (at_ns - deletion.at_ns) / 1e9) if deletion else None
