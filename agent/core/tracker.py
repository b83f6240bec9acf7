"""Joins what the kernel saw with what Kubernetes says: records in, orders out, lives of pods kept."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from agent.core import container_story
from agent.core.boundaries import Boundary, Moment, Source, reach
from agent.core.container_runs import identify
from agent.core.life import PodLife, Stage
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
from agent.core.propagation import KUBE_PROXY_COMMITS_AS, endpoint_told, kube_proxy_told
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
        self._early_events: dict[str, list[PodEventSeen]] = {}
        self._active: set[str] = set()
        """Lives in which something is going on: only these are looked at with every record."""
        self._followed: set[str] = set()
        self._watching_closely = False

    def apply(self, record: Record) -> list[Order]:
        """Take one record in; the orders that follow from it, in the order to carry them out."""
        orders = list(self._apply(record))
        self._active |= self._touched(record)
        return orders + list(self._watch_what_dies(record.at_ns))

    def _touched(self, record: Record) -> set[str]:
        """The UID of the pod that a record is about."""
        match record:
            case PodChanged():
                return {record.pod.uid}
            case PodRemoved():
                return {record.uid}
            case EndpointTerminating() | PodEventSeen():
                return {record.pod_uid}
        netns = getattr(record, "netns", None)
        return set() if netns is None else {self._uid_of_netns.get(netns, "")}

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
            self._take_over_mirror(life)
            if life.netns is not None:
                yield from self._own(life.netns, life)
            elif not pod.finished:
                yield FindNamespaces()
        elif _runs_unknown_container(life, pod):
            yield FindNamespaces()
        asked = pod.deletion_requested_ns is not None and life.pod.deletion_requested_ns is None
        life.outlived |= asked and life.pod.finished and not first_sight
        life.pod = _keeping_addresses(life.pod, pod)
        if not pod.finished:
            for address in pod.addresses:
                yield from self._address_back(address, pod.uid)
        # Deleting the object of a pod that has finished, or that a file on the node describes, ends nothing.
        if pod.deletion_requested_ns is not None and not life.outlived and not pod.is_mirror:
            yield from self._deletion_told(life, pod.deletion_requested_ns, record.at_ns)
        container_story.status_told(life, record.at_ns, first_sight)
        if first_sight:
            for event in self._early_events.pop(pod.uid, ()):
                yield from self._event_told(event)
        yield from self._withdraw_if_up_again(life)
        if Boundary.NETWORK_REMOVED in life.own_boundaries and Fact.GONE not in life.told:
            yield from self._network_gone(life)

    def _take_over_mirror(self, life: PodLife) -> None:
        """The object of a static pod can be made anew while the pod lives on: the life is the same."""
        if not life.pod.is_mirror:
            return
        for earlier in list(self.lives.values()):
            if earlier is not life and earlier.pod.cgroup_uid == life.pod.cgroup_uid:
                life.netns, life.runs, life.names = earlier.netns, earlier.runs, earlier.names
                del self.lives[earlier.pod.uid]

    def _withdraw_if_up_again(self, life: PodLife) -> Iterator[Order]:
        """The kubelet also stops all containers to make a sandbox anew: then they are started again."""
        asked = life.own_boundaries.get(Boundary.DELETION_REQUESTED)
        if asked is None or asked.source is not Source.EVENT or life.pod.deletion_requested_ns is not None:
            return
        newest = life.runs[-1] if life.runs else None
        up = any(newest and c.running and c.container_id == newest.container_id for c in life.pod.containers)
        again = newest is not None and any(run.replaced and run.name == newest.name for run in life.runs)
        if newest is not None and up and again and newest.first_seen_ns > asked.at_ns:
            del life.own_boundaries[Boundary.DELETION_REQUESTED]
            yield from self._tell_facts(life)

    def _deletion_told(self, life: PodLife, requested_ns: int, at_ns: int) -> Iterator[Order]:
        known = life.own_boundaries.get(Boundary.DELETION_REQUESTED)
        if known is not None and known.source is Source.API:
            return
        # The watch tells of a deletion within milliseconds, while the API's own time has a resolution of 1 s:
        # that is taken only for a pod that had been dying for some time when it became known.
        stale = life.found_dying and at_ns - requested_ns > FRESH_DELETION_NS
        at_ns = min(requested_ns, at_ns) if stale else at_ns
        if known is not None:
            at_ns = min(known.at_ns, at_ns)
        requested = _not_after_the_signal(life, Moment(at_ns, Source.API))
        floor = requested_ns if requested_ns < requested.at_ns else None
        life.own_boundaries[Boundary.DELETION_REQUESTED] = replace(requested, not_before_ns=floor)
        if known is None:
            yield from self._tell_facts(life)
            yield from self._watch_addresses(life)
            for early in life.early_endpoints:
                endpoint_told(life, early)
        container_story.judge_hooks(life)

    def _pod_removed(self, record: PodRemoved) -> Iterator[Order]:
        life = self.lives.get(record.uid)
        if life is None:
            return
        removed = Moment(record.at_ns, Source.API)
        life.own_boundaries.setdefault(Boundary.OBJECT_DELETED, removed)
        if not life.deleted and not life.pod.finished and not life.pod.is_mirror:
            inferred = _not_after_the_signal(life, Moment(record.at_ns, Source.INFERRED))
            life.own_boundaries[Boundary.DELETION_REQUESTED] = inferred
            yield from self._tell_facts(life)
            container_story.judge_hooks(life)

    def _event_told(self, record: PodEventSeen) -> Iterator[Order]:
        life = self.lives.get(record.pod_uid)
        if life is None:
            self._keep_event(record)
            return
        ends_the_pod = container_story.event_told(life, record)
        if ends_the_pod and not life.deleted and not life.pod.finished:
            # Nobody deleted the pod: the kubelet ends it by itself (eviction, shutdown of the node).
            asked = Moment(record.at_ns, Source.EVENT, record.stamped_ns)
            life.own_boundaries[Boundary.DELETION_REQUESTED] = _not_after_the_signal(life, asked)
            yield from self._tell_facts(life)
            yield from self._watch_addresses(life)
            container_story.judge_hooks(life)

    def _keep_event(self, record: PodEventSeen) -> None:
        """The watches of pods and of events tell in any order."""
        self._early_events.setdefault(record.pod_uid, []).append(record)
        if len(self._early_events) > REMEMBERED_NAMESPACES or len(self._early_events[record.pod_uid]) > 8:
            del self._early_events[next(iter(self._early_events))]

    def _namespace_identified(self, record: NamespaceIdentified) -> Iterator[Order]:
        self._netns_of_cgroup[record.pod_uid] = record.netns
        for life in self.lives.values():
            if record.pod_uid not in (life.pod.cgroup_uid, life.pod.uid) or life.netns == record.netns:
                continue
            if life.netns is not None:
                if life.deleted:
                    continue
                # The pod's sandbox was made anew, with another network.
                life.former_netns += (life.netns,)
                life.own_boundaries.pop(Boundary.NETWORK_REMOVED, None)
            life.netns = record.netns
            yield from self._own(record.netns, life)
        self._bound_unknown_pods()

    def _bound_unknown_pods(self) -> None:
        if len(self._netns_of_cgroup) > REMEMBERED_NAMESPACES + len(self.lives):
            known = {life.pod.cgroup_uid for life in self.lives.values()}
            del self._netns_of_cgroup[next(uid for uid in self._netns_of_cgroup if uid not in known)]

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
        if record.netns != life.netns:
            return
        reach(life.own_boundaries, Boundary.NETWORK_REMOVED, Moment(record.at_ns, Source.KERNEL))
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
        if life.netns is None or not (ended or Boundary.NETWORK_REMOVED in life.own_boundaries):
            return
        for address in life.pod.addresses:
            if self._gone.get(address) != life.pod.uid and not self._is_anothers(address, life):
                self._gone[address] = life.pod.uid
                yield MarkAddressGone(address, life.netns)

    def _is_anothers(self, address: Address, life: PodLife) -> bool:
        """Whether a pod that came later has the address by now: it is given again within half a second."""
        for other in reversed(self.lives.values()):
            if other is life:
                return False
            if address in other.pod.addresses and not other.pod.finished:
                return Boundary.NETWORK_REMOVED not in other.own_boundaries
        return False

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
                identify(life, record.init_pid, record.container_id, record.at_ns)
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
        if life is not None:
            endpoint_told(life, record)

    def _kube_proxy_read(self, state: KubeProxyState) -> None:
        self.kube_proxy = state
        for uid in self._active & self.lives.keys():
            kube_proxy_told(self.lives[uid], state, self._commits)

    def _rules_committed(self, record: NftablesCommitted) -> None:
        if record.process in KUBE_PROXY_COMMITS_AS:
            self._commits.append(record)

    def _watch_what_dies(self, now: int) -> Iterator[Order]:
        active = [self.lives[uid] for uid in self._active if uid in self.lives]
        watched = [
            life
            for life in active
            if (life.dying and not _is_stuck(life, now)) or self._news_under_way(life, now)
        ]
        restarting = [life for life in active if life.restarting and not _is_stuck(life, now)]
        self._active = {life.pod.uid for life in active if life.deleted or life.restarting}
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
        for netns in (*life.former_netns, *filter(None, [life.netns])):
            self._uid_of_netns.pop(netns, None)
            orders.append(ForgetNamespace(netns))
        self._netns_of_cgroup.pop(life.pod.cgroup_uid, None)
        return orders


def _keeping_addresses(known: Pod, current: Pod) -> Pod:
    """A pod's last status can list no address any more; where it was is still where traffic goes."""
    return current if current.addresses else replace(current, addresses=known.addresses)


def _is_stuck(life: PodLife, now: int) -> bool:
    """Whether nothing has happened to the pod for so long that watching its namespace is not worth its cost.

    A finalizer keeps an object for days, and a container that crashes at every start is never up again.
    """
    patience_ns = LONGEST_PROPAGATION_SECONDS * 1e9
    if Boundary.NETWORK_REMOVED not in life.own_boundaries:
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
