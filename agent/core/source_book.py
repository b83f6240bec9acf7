"""Who stood behind a source address when its connections were dropped."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from agent.core.life import PodLife
from agent.core.records import Address, SourceIdentified, SourceKind
from agent.core.wanted_source import WantedSource

REMEMBERED_ADDRESSES = 4096
ASK_AGAIN_NS = 60_000_000_000
"""How long an answer is waited for before the question is put again."""

REMEMBERED_NS = 300_000_000_000
"""How long an address is taken to belong to whom it belonged to when it was looked up."""


@dataclass(frozen=True, slots=True)
class SourceName:
    """Who a source is, as label values: a pod by its workload, anything else by its address."""

    kind: str
    name: str


@dataclass(slots=True)
class SourceBook:
    """Names of sources by (network namespace of the pod that dropped them, address).

    A name is given when the source is first seen and stays: a pod's address can be another's a second later.
    """

    node_addresses: frozenset[Address] = frozenset()
    _names: dict[tuple[int, Address], SourceName] = field(default_factory=dict)
    _pending: dict[tuple[int, Address], int] = field(default_factory=dict)
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
            if source not in self._names and now_ns - self._pending.get(source, -ASK_AGAIN_NS) >= ASK_AGAIN_NS
        ]
        if not new:
            return ()
        known = list(lives)
        self._primary_versions |= {life.pod.addresses[0].version for life in known if life.pod.addresses}
        pods = _pods_by_address(known)
        wanted: dict[Address, WantedSource] = {}
        for source in new:
            address = source[1]
            name = self._name_here(address, pods, now_ns)
            if name is not None:
                self._names[source] = name
            else:
                self._pending[source] = now_ns
                wanted[address] = WantedSource(address, now_ns)
        return tuple(wanted.values())

    def _name_here(self, address: Address, pods: dict[Address, PodLife], now_ns: int) -> SourceName | None:
        life = pods.get(address)
        if life is not None:
            return _pod_name(life.pod.namespace, life.pod.workload.kind, life.pod.workload.name)
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
            del self._pending[source]
            self._names[source] = _name_of(record)

    def name(self, source: tuple[int, Address]) -> SourceName:
        """The source's name; as long as nobody has answered, its address with kind `unknown`."""
        return self._names.get(source) or SourceName(SourceKind.UNKNOWN.value, str(source[1]))

    def forget(self, netns: int) -> None:
        """The pod whose namespace this was is forgotten."""
        for names in (self._names, self._pending):
            for source in [source for source in names if source[0] == netns]:
                del names[source]


def _pods_by_address(lives: Iterable[PodLife]) -> dict[Address, PodLife]:
    """Of several pods that had an address, the one that has it still."""
    owners: dict[Address, PodLife] = {}
    for life in lives:
        for address in life.pod.addresses:
            owner = owners.get(address)
            if owner is None or owner.over or (owner.pod.finished and not life.pod.finished):
                owners[address] = life
    return owners


def _name_of(record: SourceIdentified) -> SourceName:
    if record.kind is SourceKind.POD and record.namespace is not None and record.workload is not None:
        return _pod_name(record.namespace, record.workload.kind, record.workload.name)
    if record.kind is SourceKind.NODE and record.name is not None:
        return SourceName(SourceKind.NODE.value, record.name)
    return SourceName(record.kind.value, str(record.address))


def _pod_name(namespace: str, kind: str, name: str) -> SourceName:
    return SourceName(SourceKind.POD.value, f"{namespace}/{kind}/{name}")
