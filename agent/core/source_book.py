"""Who stood behind a source address when its connections were dropped."""

import math
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from agent.core.boundaries import Boundary
from agent.core.life import PodLife
from agent.core.records import Address, SourceIdentified, SourceKind, Workload
from agent.core.wanted_source import WantedSource

REMEMBERED_ADDRESSES = 4096
ASK_AGAIN_NS = 60_000_000_000
"""How long an answer is waited for before the question is put again."""

REMEMBERED_NS = 300_000_000_000
"""How long an address is taken to belong to whom it belonged to when it was looked up."""

SEEN_LATE_NS = 2_000_000_000
"""How long after its drops a source is seen at the latest: the kernel's counts are read once a second."""

_STEPS_OF_THE_OBJECT = (Boundary.DELETION_REQUESTED, Boundary.OBJECT_DELETED)


@dataclass(frozen=True, slots=True)
class SourceName:
    """Who a source is, as label values: a pod by its workload, anything else by its address."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class _Question:
    """When it was put, and which pod of this node had the address last."""

    asked_ns: int
    last_here: SourceName | None


@dataclass(slots=True)
class _Holders:
    """Who had an address while a pod dropped its connections, one after the other."""

    name: SourceName | None = None
    """Who has it now; None until somebody has answered."""
    earlier: Counter[SourceName] = field(default_factory=Counter)
    """Connections of those who had it before."""
    seen: int = 0
    """How many connections there were at the last look."""
    shown: int = 0
    """How many of them have been told to anybody under these names."""
    question: _Question | None = None

    def change_hands(self, name: SourceName | None) -> None:
        """What is counted from now on is another's."""
        if self.name is not None:
            self.earlier[self.name] += max(self.seen, self.shown) - self.earlier.total()
        self.name = name


@dataclass(slots=True)
class SourceBook:
    """Names of sources by (network namespace of the pod that dropped them, address).

    Connections are named by who has the address when they are first seen, and keep that name: a second later
    the address can be another pod's.
    """

    node_addresses: frozenset[Address] = frozenset()
    _holders: dict[tuple[int, Address], _Holders] = field(default_factory=dict)
    _identified: OrderedDict[Address, SourceIdentified] = field(default_factory=OrderedDict)
    _primary_versions: set[int] = field(default_factory=set)
    """IP versions of the pods' first addresses: the API server finds a pod by its first address only."""

    def see(
        self, sources: Mapping[tuple[int, Address], int], lives: Iterable[PodLife], now_ns: int
    ) -> tuple[WantedSource, ...]:
        """Name what has been counted of each source since the last time; those that have to be looked up."""
        news = [source for source, count in sources.items() if self._is_news(source, count, now_ns)]
        if not news:
            return ()
        known = list(lives)
        self._primary_versions |= {life.pod.addresses[0].version for life in known if life.pod.addresses}
        pods = _pods_by_address(known)
        wanted: dict[Address, WantedSource] = {}
        for source in news:
            address = source[1]
            holders = self._holders.setdefault(source, _Holders())
            life = pods.get(address)
            name = self._name_here(address, life, now_ns)
            if name is None or name != holders.name:
                holders.change_hands(name)
            holders.question = None
            if name is None:
                holders.question = _Question(now_ns, _pod_name(life) if life is not None else None)
                wanted[address] = WantedSource(address, now_ns)
            holders.seen = sources[source]
        return tuple(wanted.values())

    def _is_news(self, source: tuple[int, Address], count: int, now_ns: int) -> bool:
        holders = self._holders.get(source)
        if holders is None:
            return True
        if holders.question is not None:
            return now_ns - holders.question.asked_ns >= ASK_AGAIN_NS
        return count > holders.seen

    def _name_here(self, address: Address, life: PodLife | None, now_ns: int) -> SourceName | None:
        if life is not None:
            left_ns = _left_ns(life)
            if left_ns is None or now_ns - left_ns <= SEEN_LATE_NS:
                return _pod_name(life)
        if address in self.node_addresses:
            return SourceName(SourceKind.NODE.value, str(address))
        identified = self._identified.get(address)
        if identified is None or now_ns - identified.at_ns > REMEMBERED_NS:
            return None
        return _name_of(identified, _pod_name(life) if life is not None else None)

    def identify(self, record: SourceIdentified) -> None:
        """The answer to a lookup."""
        second_family = self._primary_versions and record.address.version not in self._primary_versions
        if record.kind is SourceKind.EXTERNAL and second_family:
            record = replace(record, kind=SourceKind.UNKNOWN)
        self._identified[record.address] = record
        self._identified.move_to_end(record.address)
        while len(self._identified) > REMEMBERED_ADDRESSES:
            self._identified.popitem(last=False)
        for (_, address), holders in self._holders.items():
            if address == record.address and holders.question is not None:
                holders.name = _name_of(record, holders.question.last_here)
                holders.question = None

    def show(self, sources: Mapping[tuple[int, Address], int]) -> None:
        """These counts are shown under their present names, and cannot be another's any more."""
        for source, count in sources.items():
            holders = self._holders.get(source)
            if holders is not None:
                holders.shown = max(holders.shown, count)

    def shares(self, source: tuple[int, Address], connections: int) -> Counter[SourceName]:
        """Whose the connections of a source were; those that nobody has answered for yet are `unknown`."""
        unknown = SourceName(SourceKind.UNKNOWN.value, str(source[1]))
        holders = self._holders.get(source)
        if holders is None:
            return Counter({unknown: connections})
        shares = Counter(holders.earlier)
        shares[holders.name or unknown] += connections - shares.total()
        return shares

    def forget(self, netns: int) -> None:
        """The pod whose namespace this was is forgotten."""
        for source in [source for source in self._holders if source[0] == netns]:
            del self._holders[source]


def _pods_by_address(lives: Iterable[PodLife]) -> dict[Address, PodLife]:
    """Of several pods that had an address, the one that has it still, or else had it last."""
    owners: dict[Address, PodLife] = {}
    for life in lives:
        for address in life.pod.addresses:
            owner = owners.get(address)
            if owner is None or _until_ns(owner) <= _until_ns(life):
                owners[address] = life
    return owners


def _until_ns(life: PodLife) -> float:
    left_ns = _left_ns(life)
    return math.inf if left_ns is None else left_ns


def _left_ns(life: PodLife) -> int | None:
    """When the pod let go of its addresses, which its status still lists; None while it has them."""
    removed = life.boundaries.get(Boundary.NETWORK_REMOVED)
    if removed is not None:
        return removed.at_ns
    if life.pod.finished:
        # Its object can be deleted hours after its containers have ended.
        ended = [moment.at_ns for step, moment in life.boundaries.items() if step not in _STEPS_OF_THE_OBJECT]
        return max(ended, default=0)
    return life.last_boundary_ns if life.over else None


def _name_of(record: SourceIdentified, last_here: SourceName | None) -> SourceName:
    if last_here is not None and record.kind is SourceKind.EXTERNAL:
        # Nobody has had the address since: it was still the pod of this node.
        return last_here
    if record.kind is SourceKind.POD and record.namespace is not None and record.workload is not None:
        return _workload_name(record.namespace, record.workload)
    if record.kind is SourceKind.NODE and record.name is not None:
        return SourceName(SourceKind.NODE.value, record.name)
    return SourceName(record.kind.value, str(record.address))


def _pod_name(life: PodLife) -> SourceName:
    return _workload_name(life.pod.namespace, life.pod.workload)


def _workload_name(namespace: str, workload: Workload) -> SourceName:
    return SourceName(SourceKind.POD.value, f"{namespace}/{workload.kind}/{workload.name}")
