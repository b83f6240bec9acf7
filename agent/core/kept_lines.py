"""The lines of a recording that the next file has to begin with, so that it can be replayed alone."""

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from agent.core.boundaries import Boundary
from agent.core.propagation import KUBE_PROXY_COMMITS_AS
from agent.core.records import (
    ConnectionDropped,
    EndpointTerminating,
    EnteredProcessEnded,
    KubeletConnected,
    KubeletDisconnected,
    KubeProxyState,
    NftablesCommitted,
    Pod,
    PodChanged,
    PodEventSeen,
    PodRemoved,
    PodsListed,
    ProcessEntered,
    Record,
    SourceIdentified,
)
from agent.core.tracker import Tracker

LINES_OF_A_POD = 400
UNKNOWN_NAMESPACES = 512
SOURCES = 1024
KUBE_PROXY_STATES = 4096
COMMITS = 1024

_Line = tuple[int, str]


@dataclass(slots=True)
class KeptLines:
    """Lines by pod and by network namespace, each with its place in the whole recording.

    Of a pod with very many lines its first one and the latest stay, and of a pod that only becomes ready and
    unready, again and again, the first and the last of those lines.
    """

    _serial: int = 0
    _of_pods: dict[str, list[_Line]] = field(default_factory=dict)
    _latest: dict[str, deque[tuple[Pod, _Line]]] = field(default_factory=dict)
    """The last two states of each pod that are kept."""
    _of_namespaces: OrderedDict[int, list[_Line]] = field(default_factory=OrderedDict)
    _owned: set[int] = field(default_factory=set)
    """Namespaces of pods that were known when `forget` was last called."""
    _evidence: dict[int, deque[_Line]] = field(default_factory=dict)
    _sources: deque[_Line] = field(default_factory=lambda: deque(maxlen=SOURCES))
    _listed: _Line | None = None
    _kube_proxy: deque[tuple[KubeProxyState, _Line]] = field(
        default_factory=lambda: deque(maxlen=KUBE_PROXY_STATES)
    )
    _commits: deque[tuple[int, _Line]] = field(default_factory=lambda: deque(maxlen=COMMITS))
    _endpoints_told: bool = False
    """Whether an endpoint was told of since a state of kube-proxy was kept: the next one answers it."""

    def add(self, record: Record, line: str) -> None:
        """Keep the line of a record, if a later file needs it."""
        self._serial += 1
        numbered = (self._serial, line)
        match record:
            case PodChanged():
                self._pod_changed(record.pod, numbered)
            case PodRemoved():
                self._append(self._of_pods.setdefault(record.uid, []), numbered)
            case EndpointTerminating() | PodEventSeen():
                self._append(self._of_pods.setdefault(record.pod_uid, []), numbered)
                self._endpoints_told |= isinstance(record, EndpointTerminating)
            case PodsListed():
                self._listed = numbered
            case KubeProxyState():
                self._kube_proxy_read(record, numbered)
            case NftablesCommitted():
                if record.process in KUBE_PROXY_COMMITS_AS:
                    self._commits.append((record.at_ns, numbered))
            case SourceIdentified():
                self._sources.append(numbered)
            case ProcessEntered() | EnteredProcessEnded() | KubeletConnected() | KubeletDisconnected():
                # Probes leave these without end.
                self._evidence.setdefault(record.netns, deque(maxlen=64)).append(numbered)
            case ConnectionDropped():
                pass
            case _:
                self._append(self._of_namespaces.setdefault(record.netns, []), numbered)

    def _pod_changed(self, pod: Pod, numbered: _Line) -> None:
        lines = self._of_pods.setdefault(pod.uid, [])
        latest = self._latest.setdefault(pod.uid, deque(maxlen=2))
        if len(latest) == 2 and all(_differs_in_readiness(known, pod) for known, _ in latest):
            _, between = latest.pop()
            if between in lines:
                lines.remove(between)
        latest.append((pod, numbered))
        self._append(lines, numbered)

    def _kube_proxy_read(self, state: KubeProxyState, numbered: _Line) -> None:
        known = self._kube_proxy[-1][0] if self._kube_proxy else None
        if known is None or self._endpoints_told or replace(known, at_ns=state.at_ns) != state:
            self._kube_proxy.append((state, numbered))
            self._endpoints_told = False

    @staticmethod
    def _append(lines: list[_Line], numbered: _Line) -> None:
        lines.append(numbered)
        if len(lines) > LINES_OF_A_POD:
            del lines[1]

    def forget(self, tracker: Tracker) -> None:
        """Let go of what belongs to pods that the tracker has forgotten."""
        for uid in self._of_pods.keys() - tracker.lives.keys():
            del self._of_pods[uid]
            self._latest.pop(uid, None)
        owned = {netns for netns in self._of_namespaces if tracker.life_in(netns) is not None}
        ever_owned = owned | self._owned
        unknown = [netns for netns in self._of_namespaces if netns not in ever_owned]
        forgotten = self._of_namespaces.keys() & (self._owned - owned)
        for netns in [*forgotten, *unknown[: max(0, len(unknown) - UNKNOWN_NAMESPACES)]]:
            del self._of_namespaces[netns]
        self._owned = owned
        for netns in self._evidence.keys() - self._of_namespaces.keys():
            del self._evidence[netns]
        self._forget_kube_proxy(tracker)

    def _forget_kube_proxy(self, tracker: Tracker) -> None:
        """What kube-proxy did before any known pod was deleted says nothing of one; its last state stays."""
        deletions = [life.boundaries.get(Boundary.DELETION_REQUESTED) for life in tracker.lives.values()]
        first_ns = min((deletion.at_ns for deletion in deletions if deletion), default=None)
        while len(self._kube_proxy) > 1 and (first_ns is None or self._kube_proxy[0][0].at_ns < first_ns):
            self._kube_proxy.popleft()
        while self._commits and (first_ns is None or self._commits[0][0] < first_ns):
            self._commits.popleft()

    def lines(self) -> Iterator[str]:
        """All lines that are kept, in the order in which they were written."""
        kept = [*self._sources, *(line for _, line in self._kube_proxy), *(line for _, line in self._commits)]
        kept += [self._listed] if self._listed else []
        for lines in (*self._of_pods.values(), *self._of_namespaces.values(), *self._evidence.values()):
            kept += lines
        return (line for _, line in sorted(kept))


def _differs_in_readiness(known: Pod, pod: Pod) -> bool:
    """Whether that is all that has changed of a pod that nobody has asked to go."""
    return pod.deletion_requested_ns is None and replace(known, ready=pod.ready) == pod
