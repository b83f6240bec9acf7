"""One pod's life as it is known so far."""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from agent.core.boundaries import Boundaries, Boundary
from agent.core.container_run import ContainerRun
from agent.core.orders import HookEvidence
from agent.core.phases import Fact
from agent.core.pod_boundaries import pod_boundaries
from agent.core.prestop_evidence import SeenConnection, SeenProcess
from agent.core.records import Container, EndpointTerminating, HookType, Pod, PodEventSeen


class Stage(Enum):
    """Where the news of a deletion has to arrive; values are the label `stage`."""

    ENDPOINTSLICE = "endpointslice"
    KUBE_PROXY = "kube_proxy"
    TRAFFIC = "traffic"


class StageWitness(Enum):
    """What showed that the news had arrived at a stage."""

    ENDPOINTSLICE_WATCH = "endpointslice_watch"
    KUBE_PROXY_METRICS = "kube_proxy_metrics"
    NFTABLES_COMMIT = "nftables_commit"


NOTHING_TOLD = Fact(0)

REMEMBERED_RUNS = 16
"""Runs of containers kept of one pod: a crash loop has no end."""

REMEMBERED_EVIDENCE = 32
"""Processes and connections kept of one pod that may turn out to be its preStop hook."""


@dataclass(slots=True)
class PodLife:
    """What is known of a pod, from its first record to long after its end."""

    pod: Pod
    netns: int | None = None
    found_dying: bool = False
    """The pod was being deleted already when it became known: its listeners may have closed before."""
    outlived: bool = False
    """The pod had finished before anybody asked for the deletion of its object, which ends nothing then."""
    runs: deque[ContainerRun] = field(default_factory=lambda: deque(maxlen=REMEMBERED_RUNS))
    names: dict[str, str] = field(default_factory=dict)
    """Names of containers by container ID, of runs that the status does not tell of any more too."""
    former_netns: tuple[int, ...] = ()
    """Namespaces that the pod had before its sandbox was made anew."""
    own_boundaries: Boundaries = field(default_factory=dict)
    """Those that are not of one of its containers; `boundaries` has them all."""
    told: Fact = NOTHING_TOLD
    """What the kernel side was last told of the pod."""
    kubelet_events: deque[PodEventSeen] = field(default_factory=lambda: deque(maxlen=REMEMBERED_RUNS))
    """The kubelet's events about the whole pod: an eviction, a shutdown of the node."""
    seen_processes: deque[SeenProcess] = field(default_factory=lambda: deque(maxlen=REMEMBERED_EVIDENCE))
    seen_connections: deque[SeenConnection] = field(default_factory=lambda: deque(maxlen=REMEMBERED_EVIDENCE))
    early_endpoints: deque[EndpointTerminating] = field(default_factory=lambda: deque(maxlen=REMEMBERED_RUNS))
    """What the slices told before the watch of pods told of the deletion: the two come in any order."""
    endpoint_seen_ns: int | None = None
    last_endpoint: bool = False
    """No other endpoint of a Service was ready: traffic may be sent here by design (KEP-1669)."""
    stays_ready_in: dict[str, bool] = field(default_factory=dict)
    """By Service: whether it publishes the pod as ready until it is gone (publishNotReadyAddresses)."""
    stage_seconds: dict[Stage, float] = field(default_factory=dict)
    stage_witnesses: dict[Stage, StageWitness] = field(default_factory=dict)

    @property
    def deleted(self) -> bool:
        """Whether the pod has been asked to go."""
        return Boundary.DELETION_REQUESTED in self.own_boundaries

    @property
    def boundaries(self) -> Boundaries:
        """Every boundary that the pod has reached, as far as it is known."""
        found = {**pod_boundaries(self.ending_runs, self.sidecars), **self.own_boundaries}
        return {boundary: found[boundary] for boundary in Boundary if boundary in found}

    @property
    def sidecars(self) -> frozenset[str | None]:
        """Names of the containers that are stopped after the others have ended."""
        return frozenset(container.name for container in self.pod.containers if container.sidecar)

    @property
    def present_runs(self) -> list[ContainerRun]:
        """The latest run of each container."""
        return [run for run in self.runs if not run.replaced and run.of_a_container]

    @property
    def ending_runs(self) -> list[ContainerRun]:
        """The runs that end with the pod: not those that had ended before anybody asked for its end."""
        deletion = self.own_boundaries.get(Boundary.DELETION_REQUESTED)
        if deletion is None:
            return self.present_runs
        return [
            run
            for run in self.present_runs
            if (exited := run.boundaries.get(Boundary.EXITED)) is None or exited.at_ns >= deletion.at_ns
        ]

    @property
    def last_boundary_ns(self) -> int:
        """When the latest boundary of the pod or of one of its containers was reached; 0 before any."""
        latest = 0
        for boundaries in (self.own_boundaries, *(run.boundaries for run in self.runs)):
            for moment in boundaries.values():
                latest = max(latest, moment.at_ns)
        return latest

    @property
    def over(self) -> bool:
        """Whether nothing more will happen to the pod: its object and its network are gone."""
        network_gone = self.netns is None or Boundary.NETWORK_REMOVED in self.own_boundaries
        return Boundary.OBJECT_DELETED in self.own_boundaries and network_gone

    @property
    def dying(self) -> bool:
        """Deleted, and still there in the API or on the network."""
        return self.deleted and not self.over

    @property
    def restarting(self) -> bool:
        """A container was stopped or has ended and is not up again, and the pod has not been deleted."""
        if self.deleted or self.pod.finished:
            return False
        return any(run.ending for run in self.present_runs)

    @property
    def served_by_design(self) -> bool:
        """Whether traffic to the dying pod is meant: it is the last endpoint, or published until its end.

        Where one Service publishes it and another takes it away, traffic is expected to end.
        """
        published = bool(self.stays_ready_in) and all(self.stays_ready_in.values())
        return self.last_endpoint or published

    @property
    def serving_runs(self) -> list[ContainerRun]:
        """The runs that have listened on a port, and are not replaced by a later one."""
        return [run for run in self.present_runs if run.serves]

    def container_of(self, run: ContainerRun) -> Container | None:
        """The container that a run is of, as the pod's object describes it: by its name, or the only one."""
        containers = self.pod.containers
        only = containers[0] if len(containers) == 1 else None
        return next((container for container in containers if container.name == run.name), only)

    def facts(self) -> Fact:
        """What the kernel side must know of the pod that it cannot see itself."""
        facts = Fact(0)
        if self.deleted:
            facts |= Fact.DELETED
            if self.pod.declares_prestop:
                facts |= Fact.PRESTOP_DECLARED
        if Boundary.NETWORK_REMOVED in self.own_boundaries:
            facts |= Fact.GONE
        return facts

    def evidence(self) -> HookEvidence:
        """What the kernel side has to report so that the pod's preStop hooks can be verified."""
        wanted = HookEvidence.NONE
        for container in self.pod.containers:
            if container.prestop and container.prestop.hook is HookType.EXEC:
                wanted |= HookEvidence.PROCESS
            elif container.prestop and container.prestop.hook is HookType.HTTP:
                wanted |= HookEvidence.KUBELET_CONNECTION
        return wanted

    @property
    def declared_ports(self) -> frozenset[int]:
        """The TCP ports that the pod's specification names."""
        return frozenset(port for container in self.pod.containers for port in container.ports)

    def seconds_since_deletion(self, at_ns: int) -> float | None:
        """Seconds from the deletion request to `at_ns`, never negative; None before any deletion."""
        deletion = self.own_boundaries.get(Boundary.DELETION_REQUESTED)
        return max(0.0, (at_ns - deletion.at_ns) / 1e9) if deletion else None
