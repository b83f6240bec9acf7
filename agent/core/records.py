"""What the kernel saw and what Kubernetes says, as typed records.

Every time is in nanoseconds since the Unix epoch on this node's clock unless its name says otherwise. A
field that was not observed is None.
"""

from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address, IPv6Address

from agent.core.kinds import Kind
from agent.core.phases import Fact

Address = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class Workload:
    """What owns a pod, as a person names it: kind `Deployment`, name `web`."""

    kind: str
    name: str


class HookType(Enum):
    """How a preStop hook is declared."""

    SLEEP = "sleep"
    EXEC = "exec"
    HTTP = "http"


@dataclass(frozen=True, slots=True)
class PreStop:
    """A declared preStop hook. `port` is an HTTP hook's.

    `seconds` is known for a sleep, and for an exec hook that does nothing but sleep. `command` is the name of
    an exec hook's process, cut to 15 bytes as the kernel does it.
    """

    hook: HookType
    seconds: float | None = None
    port: int | None = None
    command: str | None = None


@dataclass(frozen=True, slots=True)
class ContainerEnd:
    """A container's end as the API tells it. `finished_ns` is the node's clock, cut to whole seconds."""

    container_id: str | None
    exit_code: int
    signal: int | None
    reason: str | None
    finished_ns: int | None


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a pod; `container_id` is the runtime's 64 hex digits, None before it was created."""

    name: str
    container_id: str | None
    prestop: PreStop | None
    ports: tuple[int, ...]
    restarts: int
    running: bool
    exit_code: int | None
    sidecar: bool = False
    """An init container that goes on running (KEP-753): it is stopped after the others have ended."""
    ended: ContainerEnd | None = None
    """How the present run ended."""
    ended_before: ContainerEnd | None = None
    """How the run before the present one ended."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as its API object describes it.

    `deletion_requested_ns` is deletionTimestamp - deletionGracePeriodSeconds of the first deletion: the API
    server's clock with a resolution of 1 s. `grace_seconds` is that deletion's, or the declared one.
    """

    uid: str
    namespace: str
    name: str
    node: str
    addresses: tuple[Address, ...]
    host_network: bool
    workload: Workload
    containers: tuple[Container, ...]
    grace_seconds: float
    deletion_requested_ns: int | None
    finished: bool
    ready: bool
    cgroup_uid: str
    """The UID in the pod's cgroup path: `uid`, but for a static pod the hash of its configuration."""
    probe_ports: frozenset[int] = frozenset()
    disruption_reason: str | None = None
    """The reason of its condition DisruptionTarget: who asked for the pod's end (KEP-3329)."""
    status_reason: str | None = None
    """Why the kubelet ended the pod: Evicted, Terminated (node shutdown), DeadlineExceeded and others."""
    network_ready: bool | None = None
    """Whether its sandbox has a network (condition PodReadyToStartContainers, KEP-3085); None if not told."""

    @property
    def is_mirror(self) -> bool:
        """Whether the object mirrors a static pod, which the kubelet runs by a file on the node."""
        return self.cgroup_uid != self.uid

    @property
    def declares_prestop(self) -> bool:
        """Whether any container has a preStop hook."""
        return any(container.prestop for container in self.containers)


@dataclass(frozen=True, slots=True)
class PodChanged:
    """A pod of this node was listed, added or modified."""

    at_ns: int
    pod: Pod


@dataclass(frozen=True, slots=True)
class PodRemoved:
    """The API no longer has this pod (which may still live: force delete)."""

    at_ns: int
    uid: str


@dataclass(frozen=True, slots=True)
class PodsListed:
    """A complete list of this node's pods has been delivered as PodChanged records."""

    at_ns: int


@dataclass(frozen=True, slots=True)
class EndpointTerminating:
    """An EndpointSlice reports the pod's endpoint as terminating (or has dropped it).

    `ready_left` is the number of other endpoints of the same Service that are ready; at 0 kube-proxy may go
    on sending traffic to terminating endpoints by design (KEP-1669). `stays_ready` is a Service's that
    publishes addresses that are not ready.
    """

    at_ns: int
    pod_uid: str
    service: str
    removed: bool
    ready_left: int
    stays_ready: bool = False


@dataclass(frozen=True, slots=True)
class KubeProxyState:
    """One reading of this node's kube-proxy metrics.

    `synced_ns` and `queued_ns` are kube-proxy's own times of its last sync and of the last change it queued;
    `pending` is how many endpoint changes it has not applied. `up` is False when it did not answer, or
    something else did in its place.
    """

    at_ns: int
    up: bool
    synced_ns: int | None
    queued_ns: int | None
    pending: int | None


class EventReason(Enum):
    """Reasons of the kubelet's events that say how a container is being ended; values are the API's."""

    KILLING = "Killing"
    FAILED_PRESTOP_HOOK = "FailedPreStopHook"
    UNHEALTHY = "Unhealthy"
    EVICTED = "Evicted"
    NODE_SHUTDOWN = "NodeShutdown"
    EXCEEDED_GRACE_PERIOD = "ExceededGracePeriod"
    PREEMPTING = "Preempting"


@dataclass(frozen=True, slots=True)
class PodEventSeen:
    """An event about a pod was listed, added or counted up.

    `container` is None where the event is about the whole pod. `stamped_ns` is the event's own last time, in
    whole seconds: it tells an old event that a list brings from a new one.
    """

    at_ns: int
    pod_uid: str
    container: str | None
    reason: EventReason
    message: str
    stamped_ns: int | None


class SourceKind(Enum):
    """What a source address belonged to; values are the label `source_kind`."""

    POD = "pod"
    NODE = "node"
    EXTERNAL = "external"
    UNKNOWN = "unknown"
    """It was not looked up, or whoever had it then has gone."""


@dataclass(frozen=True, slots=True)
class SourceIdentified:
    """The API server was asked whose address this is.

    A pod has `namespace`, `pod` and `workload`, a node `name` (of the node); external addresses have neither.
    """

    at_ns: int
    address: Address
    kind: SourceKind
    name: str | None = None
    namespace: str | None = None
    pod: str | None = None
    workload: Workload | None = None


@dataclass(frozen=True, slots=True)
class NamespaceIdentified:
    """A network namespace (its cookie, which is never reused) was found to belong to a pod's cgroup."""

    at_ns: int
    netns: int
    pod_uid: str
    """As in the cgroup path: compare with Pod.cgroup_uid."""


@dataclass(frozen=True, slots=True)
class ListenerOpened:
    """A process in the namespace began to listen on a TCP port that had no listener."""

    at_ns: int
    netns: int
    port: int
    init_pid: int


@dataclass(frozen=True, slots=True)
class ListenerClosed:
    """The port's last listener closed, by a close or (`by_exit`) because its process ended."""

    at_ns: int
    netns: int
    port: int
    by_exit: bool


class SignalResult(Enum):
    """What became of a signal (kernel-side result of signal_generate)."""

    DELIVERED = 0
    IGNORED = 1
    ALREADY_PENDING = 2
    OVERFLOW_FAIL = 3
    LOSE_INFO = 4


@dataclass(frozen=True, slots=True)
class StopSignalSent:
    """Somebody outside the container (the runtime) signalled its init process; `sender` is a process name."""

    at_ns: int
    netns: int
    init_pid: int
    signal: int
    result: SignalResult
    sender: str


@dataclass(frozen=True, slots=True)
class ContainerExited:
    """A container's init process ended. `exit_code` is the kernel's wait status (0x9 = killed by SIGKILL)."""

    at_ns: int
    netns: int
    init_pid: int
    exit_code: int


@dataclass(frozen=True, slots=True)
class ContainerIdentified:
    """The process is the init of this container (the runtime's 64 hex digits; the pause container's too)."""

    at_ns: int
    netns: int
    init_pid: int
    container_id: str


@dataclass(frozen=True, slots=True)
class ProcessEntered:
    """Somebody outside the container (the runtime) started a process in it: an exec hook, an exec probe.

    `command` is the process's name, 15 bytes at most. Told only of pods that declare an exec preStop hook.
    """

    at_ns: int
    netns: int
    pid: int
    command: str


@dataclass(frozen=True, slots=True)
class EnteredProcessEnded:
    """A process told of by ProcessEntered ended. `exit_code` is the kernel's wait status."""

    at_ns: int
    netns: int
    pid: int
    exit_code: int


@dataclass(frozen=True, slots=True)
class KubeletConnected:
    """The kubelet connected to a port of the pod: a probe, or an HTTP preStop hook.

    Told only of pods that declare an HTTP preStop hook.
    """

    at_ns: int
    netns: int
    port: int
    source_port: int


@dataclass(frozen=True, slots=True)
class KubeletDisconnected:
    """A connection told of by KubeletConnected was closed."""

    at_ns: int
    netns: int
    port: int
    source_port: int


@dataclass(frozen=True, slots=True)
class NftablesCommitted:
    """Somebody committed a change of this node's nftables rules; `process` is cut to 15 bytes.

    kube-proxy commits as `nft` (nftables mode) or `iptables-restor` (iptables mode over nftables), and CNI
    plugins as `iptables`. Legacy iptables commits nothing here.
    """

    at_ns: int
    generation: int
    process: str


@dataclass(frozen=True, slots=True)
class NetworkRemoved:
    """The namespace's link to the node is gone: nothing answers for the pod's addresses any more."""

    at_ns: int
    netns: int


@dataclass(frozen=True, slots=True)
class ConnectionDropped:
    """One of the first drops of a (namespace, port, kind, facts); the counters hold the rest."""

    at_ns: int
    netns: int
    port: int
    kind: Kind
    facts: Fact
    source: Address
    source_port: int


KernelRecord = (
    NamespaceIdentified
    | ListenerOpened
    | ListenerClosed
    | StopSignalSent
    | ContainerExited
    | ContainerIdentified
    | ProcessEntered
    | EnteredProcessEnded
    | KubeletConnected
    | KubeletDisconnected
    | NftablesCommitted
    | NetworkRemoved
    | ConnectionDropped
)
ClusterRecord = (
    PodChanged
    | PodRemoved
    | PodsListed
    | EndpointTerminating
    | KubeProxyState
    | PodEventSeen
    | SourceIdentified
)
Record = KernelRecord | ClusterRecord
