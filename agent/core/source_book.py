"""Who stood behind a source address when its connections were dropped."""

import math
from collections import OrderedDict
from collections.abc import Iterable
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
class SourceBook:
    """Names of sources by (network namespace of the pod that dropped them, address).

    A name is given when the source is first seen and stays: a pod's address can be another's a second later.
    """

    node_addresses: frozenset[Address] = frozenset()
    _names: dict[tuple[int, Address], SourceName] = field(default_factory=dict)
    _pending: dict[tuple[int, Address], _Question] = field(default_factory=dict)
    _identified: OrderedDict[Address, SourceIdentified] = field(default_factory=OrderedDict)
    _primary_versions: set[int] = field(default_factory=set)
    """IP versions of the pods' first addresses: the API server finds a pod by its first address only."""

    def see(
        self, sources: Iterable[tuple[int, Address]], lives: Iterable[PodLife], now_ns: int
    ) -> tuple[WantedSource, ...]:
        """Name the sources that are new; those that have to be looked up."""
        new = [
            source
            for source in sources
            if source not in self._names
            and ((asked := self._pending.get(source)) is None or now_ns - asked.asked_ns >= ASK_AGAIN_NS)
        ]
        if not new:
            return ()
        known = list(lives)
        self._primary_versions |= {life.pod.addresses[0].version for life in known if life.pod.addresses}
        pods = _pods_by_address(known)
        wanted: dict[Address, WantedSource] = {}
        for source in new:
            address = source[1]
            life = pods.get(address)
            name = self._name_here(address, life, now_ns)
            if name is not None:
                self._names[source] = name
            else:
                self._pending[source] = _Question(now_ns, _pod_name(life) if life is not None else None)
                wanted[address] = WantedSource(address, now_ns)
        return tuple(wanted.values())

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
        return _name_of(identified)

    def identify(self, record: SourceIdentified) -> None:
        """The answer to a lookup."""
        second_family = self._primary_versions and record.address.version not in self._primary_versions
        if record.kind is SourceKind.EXTERNAL and second_family:
            record = replace(record, kind=SourceKind.UNKNOWN)
        self._identified[record.address] = record
        self._identified.move_to_end(record.address)
        while len(self._identified) > REMEMBERED_ADDRESSES:
            self._identified.popitem(last=False)
        for source in [source for source in self._pending if source[1] == record.address]:
            last_here = self._pending.pop(source).last_here
            if last_here is not None and record.kind is SourceKind.EXTERNAL:
                # Nobody has had the address since: it was still the pod of this node.
                self._names[source] = last_here
            else:
                self._names[source] = _name_of(record)

    def name(self, source: tuple[int, Address]) -> SourceName:
        """The source's name; as long as nobody has answered, its address with kind `unknown`."""
        return self._names.get(source) or SourceName(SourceKind.UNKNOWN.value, str(source[1]))

    def forget(self, netns: int) -> None:
        """The pod whose namespace this was is forgotten."""
        for sources in (self._names, self._pending):
            for source in [source for source in sources if source[0] == netns]:
                del sources[source]


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


def _name_of(record: SourceIdentified) -> SourceName:
    if record.kind is SourceKind.POD and record.namespace is not None and record.workload is not None:
        return _workload_name(record.namespace, record.workload)
    if record.kind is SourceKind.NODE and record.name is not None:
        return SourceName(SourceKind.NODE.value, record.name)
    return SourceName(record.kind.value, str(record.address))


def _pod_name(life: PodLife) -> SourceName:
    return _workload_name(life.pod.namespace, life.pod.workload)


def _workload_name(namespace: str, workload: Workload) -> SourceName:
    return SourceName(SourceKind.POD.value, f"{namespace}/{workload.kind}/{workload.name}")
