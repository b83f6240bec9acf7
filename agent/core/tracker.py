"""Joins what the kernel saw with what Kubernetes says: records in, orders out, lives of pods kept."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from agent.core import container_story
from agent.core.boundaries import Boundary, Moment, Source, reach
from agent.core.container_runs import identify
from agent.core.life import PodLife, Stage, StageWitness
from agent.core.orders import (
    FindNamespaces,
    FollowNamespace,
    ForgetNamespace,
    MarkAddressBack,
    MarkAddressGone,
    MarkPortsServed,
    Order,
    SetPodFacts,
    UnfollowNamespace,
    WatchClosely,
)
from agent.core.phases import Fact
from agent.core.records import (
    Address,
    ContainerExited,
    ContainerIdentified,
    EndpointTerminating,
    EnteredProcessEnded,
    KubeletConnected,
    KubeletDisconnected,
    KubeProxyState,
    ListenerClosed,
    ListenerOpened,
    NamespaceIdentified,
    NetworkRemoved,
    NftablesCommitted,
    Pod,
    PodChanged,
    PodEventSeen,
    PodRemoved,
    PodsListed,
    ProcessEntered,
    Record,
    StopSignalSent,
)

SeenInNamespace = (
    ListenerOpened
    | ListenerClosed
    | StopSignalSent
    | ContainerExited
    | ContainerIdentified
    | ProcessEntered
    | EnteredProcessEnded
    | KubeletConnected
    | KubeletDisconnected
)
LONGEST_PROPAGATION_SECONDS = 60.0
"""How long after a deletion kube-proxy is waited for."""
REMEMBERED_RECORDS = 64
REMEMBERED_NAMESPACES = 512
"""Bounds of what is kept of namespaces that nobody knows; most are no pod's and never will be."""

REMEMBERED_COMMITS = 64
KUBE_PROXY_COMMITS_AS = frozenset({"nft", "iptables-restor", "ip6tables-resto", "kube-proxy"})
"""Names of the processes by which kube-proxy commits rules (docs/kinds-and-phases.md, Propagation lag)."""

ONE_SYNC_NS = 100_000_000
"""A sync of kube-proxy commits table after table, and notes its end some milliseconds after the last."""

LATEST_NEWS_NS = 10_000_000_000
"""How much later than its stop signal a deletion may be told of: an API server under load, a broken watch."""

FRESH_DELETION_NS = 1_250_000_000
"""The API's time of a deletion is cut to whole seconds: news that is no older than this is fresh."""


class Tracker:
    """Every pod of this node, by UID, and which network namespace is whose."""

    def __init__(self) -> None:
        self.lives: dict[str, PodLife] = {}
        self.pods_listed = False
        self.kube_proxy: KubeProxyState | None = None
        self._uid_of_netns: dict[int, str] = {}
        self._netns_of_cgroup: dict[str, int] = {}
        self._before_identity: dict[int, list[Record]] = {}
        self._gone: dict[Address, str] = {}
        self._commits: deque[NftablesCommitted] = deque(maxlen=REMEMBERED_COMMITS)
        self._followed: set[str] = set()
        self._watching_closely = False

    def apply(self, record: Record) -> list[Order]:
        """Take one record in; the orders that follow from it, in the order to carry them out."""
        orders = list(self._apply(record))
        return orders + list(self._watch_what_dies(record.at_ns))

    def _apply(self, record: Record) -> Iterable[Order]:
        match record:
            case PodChanged():
                return self._pod_changed(record)
            case PodRemoved():
                return self._pod_removed(record)
            case PodsListed():
                self.pods_listed = True
            case NamespaceIdentified():
                return self._namespace_identified(record)
            case NetworkRemoved():
                return self._network_removed(record)
            case PodEventSeen():
                return self._event_told(record)
            case EndpointTerminating():
                self._endpoint_terminating(record)
            case KubeProxyState():
                self._kube_proxy_read(record)
            case NftablesCommitted():
                self._rules_committed(record)
            case _ if isinstance(record, SeenInNamespace):
                return self._seen_in_namespace(record)
        return ()

    def life_in(self, netns: int) -> PodLife | None:
        """The pod that owns a network namespace."""
        uid = self._uid_of_netns.get(netns)
        return self.lives.get(uid) if uid is not None else None

    def _pod_changed(self, record: PodChanged) -> Iterator[Order]:
        pod = record.pod
        if pod.host_network:
            return
        life = self.lives.get(pod.uid)
        first_sight = life is None
        if life is None:
            life = self.lives[pod.uid] = PodLife(
                pod,
                netns=self._netns_of_cgroup.get(pod.cgroup_uid),
                found_dying=pod.deletion_requested_ns is not None,
            )
            if life.netns is not None:
                yield from self._own(life.netns, life)
            elif not pod.finished:
                yield FindNamespaces()
        elif _runs_unknown_container(life, pod):
            yield FindNamespaces()
        life.pod = _keeping_addresses(life.pod, pod)
        if not pod.finished:
            for address in pod.addresses:
                yield from self._address_back(address, pod.uid)
        if pod.deletion_requested_ns is not None:
            yield from self._deletion_told(life, pod.deletion_requested_ns, record.at_ns)
        container_story.status_told(life, record.at_ns, first_sight)
        if Boundary.NETWORK_REMOVED in life.boundaries and Fact.GONE not in life.told:
            yield from self._network_gone(life)

    def _deletion_told(self, life: PodLife, requested_ns: int, at_ns: int) -> Iterator[Order]:
        known = life.boundaries.get(Boundary.DELETION_REQUESTED)
        if known is not None and known.source in (Source.KERNEL, Source.API):
            return
        # The watch tells of a deletion within milliseconds, while the API's own time has a resolution of 1 s:
        # that is taken only for a pod that had been dying for some time when it became known.
        stale = life.found_dying and at_ns - requested_ns > FRESH_DELETION_NS
        at_ns = min(requested_ns, at_ns) if stale else at_ns
        if known is not None:
            at_ns = min(known.at_ns, at_ns)
        life.boundaries[Boundary.DELETION_REQUESTED] = _not_after_the_signal(life, Moment(at_ns, Source.API))
        if known is None:
            yield from self._tell_facts(life)
            yield from self._watch_addresses(life)
        container_story.judge_hooks(life)

    def _pod_removed(self, record: PodRemoved) -> Iterator[Order]:
        life = self.lives.get(record.uid)
        if life is None:
            return
        removed = Moment(record.at_ns, Source.API)
        life.boundaries.setdefault(Boundary.OBJECT_DELETED, removed)
        if not life.deleted:
            inferred = _not_after_the_signal(life, Moment(record.at_ns, Source.INFERRED))
            life.boundaries[Boundary.DELETION_REQUESTED] = inferred
            yield from self._tell_facts(life)
            container_story.judge_hooks(life)

    def _event_told(self, record: PodEventSeen) -> Iterator[Order]:
        life = self.lives.get(record.pod_uid)
        if life is None:
            return
        ends_the_pod = container_story.event_told(life, record)
        if ends_the_pod and not life.deleted and not life.pod.finished:
            # Nobody deleted the pod: the kubelet ends it by itself (eviction, shutdown of the node).
            asked = Moment(record.at_ns, Source.EVENT, record.stamped_ns)
            life.boundaries[Boundary.DELETION_REQUESTED] = asked
            yield from self._tell_facts(life)
            yield from self._watch_addresses(life)
            container_story.judge_hooks(life)

    def _namespace_identified(self, record: NamespaceIdentified) -> Iterator[Order]:
        self._netns_of_cgroup[record.pod_uid] = record.netns
        for life in self.lives.values():
            if record.pod_uid in (life.pod.cgroup_uid, life.pod.uid) and life.netns is None:
                life.netns = record.netns
                yield from self._own(record.netns, life)

    def _own(self, netns: int, life: PodLife) -> Iterator[Order]:
        self._uid_of_netns[netns] = life.pod.uid
        yield from self._tell_facts(life)
        for earlier in self._before_identity.pop(netns, ()):
            yield from self._apply(earlier)

    def _tell_facts(self, life: PodLife) -> Iterator[Order]:
        if life.netns is not None:
            life.told = life.facts()
            yield SetPodFacts(life.netns, life.told, life.evidence())
            if life.found_dying and life.declared_ports:
                yield MarkPortsServed(life.netns, life.declared_ports)

    def _network_removed(self, record: NetworkRemoved) -> Iterator[Order]:
        life = self.life_in(record.netns)
        if life is None:
            self._remember(record.netns, record)
            return
        reach(life.boundaries, Boundary.NETWORK_REMOVED, Moment(record.at_ns, Source.KERNEL))
        yield from self._network_gone(life)

    def _network_gone(self, life: PodLife) -> Iterator[Order]:
        yield from self._tell_facts(life)
        yield from self._watch_addresses(life)

    def _watch_addresses(self, life: PodLife) -> Iterator[Order]:
        """Have attempts at the pod's addresses watched once nothing of it serves any more.

        This begins with the exit and not with the removal of the network, of which the news comes some
        milliseconds late: a packet that is discarded outside the pod's namespace is proof enough.
        """
        serving = life.serving_runs
        ended = life.deleted and serving and all(run.ended for run in serving)
        if life.netns is None or not (ended or Boundary.NETWORK_REMOVED in life.boundaries):
            return
        for address in life.pod.addresses:
            if self._gone.get(address) != life.pod.uid:
                self._gone[address] = life.pod.uid
                yield MarkAddressGone(address, life.netns)

    def _address_back(self, address: Address, uid: str) -> Iterator[Order]:
        if self._gone.get(address, uid) != uid:
            del self._gone[address]
            yield MarkAddressBack(address)

    def _seen_in_namespace(self, record: SeenInNamespace) -> Iterator[Order]:
        life = self.life_in(record.netns)
        if life is None:
            self._remember(record.netns, record)
            return
        match record:
            case ListenerOpened():
                container_story.listener_opened(life, record)
            case ListenerClosed():
                container_story.listener_closed(life, record)
            case StopSignalSent():
                container_story.signalled(life, record)
            case ContainerIdentified():
                identify(life, record.init_pid, record.container_id)
            case ProcessEntered():
                container_story.process_entered(life, record)
            case EnteredProcessEnded():
                container_story.entered_process_ended(life, record)
            case KubeletConnected():
                container_story.kubelet_connected(life, record)
            case KubeletDisconnected():
                container_story.kubelet_disconnected(life, record)
            case ContainerExited():
                if container_story.exited(life, record):
                    yield from self._watch_addresses(life)

    def _remember(self, netns: int, record: Record) -> None:
        """Keep the first records of a namespace until it is known whose it is (or that it is no pod's)."""
        earlier = self._before_identity.setdefault(netns, [])
        if len(earlier) < REMEMBERED_RECORDS:
            earlier.append(record)
        if len(self._before_identity) > REMEMBERED_NAMESPACES:
            del self._before_identity[next(iter(self._before_identity))]

    def _endpoint_terminating(self, record: EndpointTerminating) -> None:
        life = self.lives.get(record.pod_uid)
        if life is None or not life.deleted:
            return
        life.last_endpoint |= record.ready_left == 0
        if not record.removed:
            life.stays_ready_in[record.service] = record.stays_ready
        if life.endpoint_seen_ns is None:
            life.endpoint_seen_ns = record.at_ns
            _reach_stage(life, Stage.ENDPOINTSLICE, record.at_ns, StageWitness.ENDPOINTSLICE_WATCH)

    def _kube_proxy_read(self, state: KubeProxyState) -> None:
        self.kube_proxy = state
        if state.synced_ns is None or state.pending != 0:
            return
        for life in self.lives.values():
            deletion = life.boundaries.get(Boundary.DELETION_REQUESTED)
            if deletion is None or life.endpoint_seen_ns is None or state.at_ns < life.endpoint_seen_ns:
                continue
            if state.synced_ns >= deletion.at_ns:
                committed = self._last_commit(deletion.at_ns, state.synced_ns + ONE_SYNC_NS)
                if committed is None:
                    _reach_stage(life, Stage.KUBE_PROXY, state.synced_ns, StageWitness.KUBE_PROXY_METRICS)
                else:
                    _reach_stage(life, Stage.KUBE_PROXY, committed, StageWitness.NFTABLES_COMMIT)

    def _last_commit(self, after_ns: int, before_ns: int) -> int | None:
        """When kube-proxy last committed rules in a span of time; None in a mode that commits nothing."""
        return max((c.at_ns for c in self._commits if after_ns <= c.at_ns <= before_ns), default=None)

    def _rules_committed(self, record: NftablesCommitted) -> None:
        if record.process in KUBE_PROXY_COMMITS_AS:
            self._commits.append(record)

    def _watch_what_dies(self, now: int) -> Iterator[Order]:
        watched = [
            life
            for life in self.lives.values()
            if (life.dying and not _is_stuck(life, now)) or self._news_under_way(life, now)
        ]
        restarting = [life for life in self.lives.values() if life.restarting and not _is_stuck(life, now)]
        dying = {life.pod.namespace for life in (*watched, *restarting)}
        for namespace in sorted(dying - self._followed):
            yield FollowNamespace(namespace)
        for namespace in sorted(self._followed - dying):
            yield UnfollowNamespace(namespace)
        self._followed = dying
        closely = bool(watched)
        if closely != self._watching_closely:
            self._watching_closely = closely
            yield WatchClosely(closely)

    def _news_under_way(self, life: PodLife, now: int) -> bool:
        """Whether kube-proxy may still have to learn of the deletion of a pod that is gone already."""
        if self.kube_proxy is None or not self.kube_proxy.up or Stage.KUBE_PROXY in life.stage_seconds:
            return False
        seconds = life.seconds_since_deletion(now)
        return seconds is not None and seconds < LONGEST_PROPAGATION_SECONDS

    def ended_before(self, at_ns: int) -> list[PodLife]:
        """The lives whose pods were over before a time."""
        return [life for life in self.lives.values() if life.over and life.last_boundary_ns < at_ns]

    def forget(self, life: PodLife) -> list[Order]:
        """Drop a life whose end was long ago, and all that is kept for it."""
        del self.lives[life.pod.uid]
        orders: list[Order] = []
        for address in [address for address, uid in self._gone.items() if uid == life.pod.uid]:
            del self._gone[address]
            orders.append(MarkAddressBack(address))
        if life.netns is not None:
            del self._uid_of_netns[life.netns]
            self._netns_of_cgroup.pop(life.pod.cgroup_uid, None)
            orders.append(ForgetNamespace(life.netns))
        return orders


def _keeping_addresses(known: Pod, current: Pod) -> Pod:
    """A pod's last status can list no address any more; where it was is still where traffic goes."""
    return current if current.addresses else replace(current, addresses=known.addresses)


def _is_stuck(life: PodLife, now: int) -> bool:
    """Whether nothing has happened to the pod for so long that watching its namespace is not worth its cost.

    A finalizer keeps an object for days, and a container that crashes at every start is never up again.
    """
    patience_ns = LONGEST_PROPAGATION_SECONDS * 1e9
    if Boundary.NETWORK_REMOVED not in life.boundaries:
        patience_ns += life.pod.grace_seconds * 1e9
    return now - life.last_boundary_ns > patience_ns


def _not_after_the_signal(life: PodLife, deletion: Moment) -> Moment:
    """The news of a deletion can come later than the stop signal that follows from it."""
    signal = life.boundaries.get(Boundary.STOP_SIGNAL)
    if signal is None or not 0 < deletion.at_ns - signal.at_ns < LATEST_NEWS_NS:
        return deletion
    return replace(deletion, at_ns=signal.at_ns)


def _runs_unknown_container(life: PodLife, pod: Pod) -> bool:
    """Whether the status tells of a container that runs for the first time, or no namespace is known."""
    running = [container for container in pod.containers if container.running]
    known = {run.container_id for run in life.runs if run.init_pid is not None}
    news = [c for c in running if c.container_id not in known and c.container_id not in life.names]
    return not pod.finished and bool(news if life.netns is not None else running)


def _reach_stage(life: PodLife, stage: Stage, at_ns: int, witness: StageWitness) -> None:
    seconds = life.seconds_since_deletion(at_ns)
    if seconds is not None and stage not in life.stage_seconds:
        life.stage_seconds[stage] = seconds
        life.stage_witnesses[stage] = witness
