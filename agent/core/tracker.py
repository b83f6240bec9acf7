"""Joins what the kernel saw with what Kubernetes says: records in, orders out, lives of pods kept."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from agent.core.life import Boundary, Moment, PodLife, Source, Stage
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
from agent.core.records import (
    Address,
    ContainerExited,
    EndpointTerminating,
    KubeProxyState,
    ListenerClosed,
    ListenerOpened,
    NamespaceIdentified,
    NetworkRemoved,
    Pod,
    PodChanged,
    PodRemoved,
    PodsListed,
    Record,
    StopSignalSent,
)

SIGKILL = 9
LONGEST_PROPAGATION_SECONDS = 60.0
"""How long after a deletion kube-proxy is waited for."""
REMEMBERED_RECORDS = 64
REMEMBERED_NAMESPACES = 512
"""Bounds of what is kept of namespaces that nobody knows; most are no pod's and never will be."""


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
            case ListenerOpened() | ListenerClosed() | StopSignalSent() | ContainerExited():
                return self._seen_in_namespace(record)
            case EndpointTerminating():
                self._endpoint_terminating(record)
            case KubeProxyState():
                self._kube_proxy_read(record)
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
        elif life.netns is None and not pod.finished and any(c.running for c in pod.containers):
            yield FindNamespaces()
        life.pod = _keeping_addresses(life.pod, pod)
        if not pod.finished:
            for address in pod.addresses:
                yield from self._address_back(address, pod.uid)
        if pod.deletion_requested_ns is not None and not life.deleted:
            # The watch tells of a deletion within milliseconds, while the API's own time has a resolution of
            # 1 s: that is taken only for a pod that was being deleted before it became known.
            requested_ns = min(pod.deletion_requested_ns, record.at_ns) if life.found_dying else record.at_ns
            life.boundaries[Boundary.DELETION_REQUESTED] = Moment(requested_ns, Source.API)
            yield from self._tell_facts(life)
            yield from self._watch_addresses(life)

    def _pod_removed(self, record: PodRemoved) -> Iterator[Order]:
        life = self.lives.get(record.uid)
        if life is None:
            return
        removed = Moment(record.at_ns, Source.API)
        life.boundaries.setdefault(Boundary.OBJECT_DELETED, removed)
        if not life.deleted:
            life.boundaries[Boundary.DELETION_REQUESTED] = Moment(record.at_ns, Source.INFERRED)
            yield from self._tell_facts(life)

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
            yield SetPodFacts(life.netns, life.facts())
            if life.found_dying and life.declared_ports:
                yield MarkPortsServed(life.netns, life.declared_ports)

    def _network_removed(self, record: NetworkRemoved) -> Iterator[Order]:
        life = self.life_in(record.netns)
        if life is None:
            self._remember(record.netns, record)
            return
        life.boundaries.setdefault(Boundary.NETWORK_REMOVED, Moment(record.at_ns, Source.KERNEL))
        yield from self._tell_facts(life)
        yield from self._watch_addresses(life)

    def _watch_addresses(self, life: PodLife) -> Iterator[Order]:
        """Have attempts at the pod's addresses watched once nothing of it serves any more.

        This begins with the exit and not with the removal of the network, of which the news comes some
        milliseconds late: a packet that is discarded outside the pod's namespace is proof enough.
        """
        ended = life.deleted and life.serving_inits and not life.serving_inits - life.exited_inits
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

    def _seen_in_namespace(
        self, record: ListenerOpened | ListenerClosed | StopSignalSent | ContainerExited
    ) -> Iterator[Order]:
        life = self.life_in(record.netns)
        if life is None:
            self._remember(record.netns, record)
            return
        match record:
            case ListenerOpened():
                _listener_opened(life, record)
            case ListenerClosed():
                life.open_ports.discard(record.port)
                if not life.open_ports:
                    _reach(life, Boundary.LISTENER_CLOSED, record.at_ns)
            case StopSignalSent():
                _signalled(life, record)
            case ContainerExited():
                if record.init_pid in life.serving_inits:
                    _reach(life, Boundary.EXITED, record.at_ns)
                    life.exited_inits.add(record.init_pid)
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
        if record.ready_left == 0:
            life.last_endpoint = True
        if life.endpoint_seen_ns is None:
            life.endpoint_seen_ns = record.at_ns
            _reach_stage(life, Stage.ENDPOINTSLICE, record.at_ns)

    def _kube_proxy_read(self, state: KubeProxyState) -> None:
        self.kube_proxy = state
        if state.synced_ns is None or state.pending != 0:
            return
        for life in self.lives.values():
            deletion = life.boundaries.get(Boundary.DELETION_REQUESTED)
            if deletion is None or life.endpoint_seen_ns is None or state.at_ns < life.endpoint_seen_ns:
                continue
            if state.synced_ns >= deletion.at_ns:
                _reach_stage(life, Stage.KUBE_PROXY, state.synced_ns)

    def _watch_what_dies(self, now: int) -> Iterator[Order]:
        watched = [life for life in self.lives.values() if life.dying or self._news_under_way(life, now)]
        dying = {life.pod.namespace for life in watched}
        for namespace in sorted(dying - self._followed):
            yield FollowNamespace(namespace)
        for namespace in sorted(self._followed - dying):
            yield UnfollowNamespace(namespace)
        self._followed = dying
        closely = bool(watched) or any(life.restarting for life in self.lives.values())
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


def _reach(life: PodLife, boundary: Boundary, at_ns: int) -> None:
    life.boundaries.setdefault(boundary, Moment(at_ns, Source.KERNEL))


def _reach_stage(life: PodLife, stage: Stage, at_ns: int) -> None:
    seconds = life.seconds_since_deletion(at_ns)
    if seconds is not None:
        life.stage_seconds.setdefault(stage, seconds)


def _listener_opened(life: PodLife, record: ListenerOpened) -> None:
    life.open_ports.add(record.port)
    if record.init_pid:
        life.serving_inits.add(record.init_pid)
    if not life.deleted:
        # The container that was stopped or ended has been started again.
        for boundary in (
            Boundary.STOP_SIGNAL,
            Boundary.LISTENER_CLOSED,
            Boundary.KILL_SIGNAL,
            Boundary.EXITED,
        ):
            life.boundaries.pop(boundary, None)


def _signalled(life: PodLife, record: StopSignalSent) -> None:
    if record.init_pid not in life.serving_inits:
        return  # the pause process, or a container that serves nothing
    _reach(life, Boundary.STOP_SIGNAL, record.at_ns)
    if record.signal == SIGKILL:
        _reach(life, Boundary.KILL_SIGNAL, record.at_ns)
