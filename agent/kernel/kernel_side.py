"""The kernel side as a whole: programs in, records out, orders carried out."""

import ctypes
import logging
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from agent.core.counts import KernelCounts
from agent.core.orders import (
    FindNamespaces,
    ForgetNamespace,
    MarkAddressBack,
    MarkAddressGone,
    MarkPortsServed,
    Order,
    SetPodFacts,
)
from agent.core.phases import Fact
from agent.core.records import (
    Address,
    ContainerExited,
    KernelRecord,
    ListenerOpened,
    NamespaceIdentified,
    StopSignalSent,
)
from agent.kernel.clock import WallClock, boot_time_ns
from agent.kernel.containers import KnownContainers
from agent.kernel.counters import read_counters
from agent.kernel.decode import decode
from agent.kernel.existing import find_namespaces
from agent.kernel.hooks import HookStatus
from agent.kernel.layout import AddressBytes, PodEntry, PortEntry, PortKey, ProcessName, from_address
from agent.kernel.libbpf import BPF_NOEXIST, RingBuffer, program_runs
from agent.kernel.links import LinkWatch
from agent.kernel.loader import load_programs
from agent.kernel.maps import open_maps
from agent.kernel.namespaces import cookie_here, view_namespace
from agent.kernel.nftables_commits import NftablesCommits
from agent.kernel.processes import identity_of, init_of, pod_of_process

logger = logging.getLogger(__name__)

PROBING_PROCESSES = ("kubelet", "k3s", "k3s-server", "k3s-agent", "kubelite", "k0s")
"""Names of the processes that probe pods: the kubelet, and the programs that contain it."""

POLL_MILLISECONDS = 100
SWEEP_SECONDS = 10
RETRANSMISSION_NS = 130 * 10**9
"""As in bpf/counting.c."""
STARTING_NS = 600 * 10**9
"""How long refusals on a port wait for somebody to listen there, before they are taken for a port scan."""


class KernelSide:
    """Holds the attached programs. Raises KernelSideError when they cannot be loaded."""

    def __init__(self, cache: Path, emit: Callable[[KernelRecord], None]) -> None:
        self._emit = emit
        self._host_netns = cookie_here()
        self._programs = load_programs(self._host_netns, cache)
        self.maps = open_maps(self._programs.maps)
        for name in PROBING_PROCESSES:
            self.maps.probing_processes.put(ProcessName(name.encode()), ctypes.c_uint8(1))
        self._clock = WallClock()
        self._gone: set[bytes] = set()
        self._known: set[int] = set()
        self._containers = KnownContainers()
        self._identity_lock = threading.Lock()
        self._links = LinkWatch(emit)
        self._commits = NftablesCommits(emit)
        self._ring = RingBuffer(self.maps.records, self._receive)
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._poll, name="records", daemon=True),
            threading.Thread(target=self._sweep, name="sweep", daemon=True),
        ]

    @property
    def statuses(self) -> tuple[HookStatus, ...]:
        """Each hook, attached or not."""
        return self._programs.statuses

    @property
    def threads(self) -> tuple[threading.Thread, ...]:
        """Its threads, which end only when it is stopped.

        Without the one that hears of commits: kube-proxy's metrics take its place where it cannot listen.
        """
        return (*self._threads, *self._links.threads)

    def start(self) -> None:
        """Deliver records from now on, and those of what exists already."""
        self._links.start()
        # Before the records: a namespace that they make known would not be looked at for older listeners.
        self.find_namespaces()
        for thread in self._threads:
            thread.start()
        self._commits.start()

    def stop(self) -> None:
        """Detach every program and free everything in the kernel; it need not have been started."""
        self._stopping.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self._commits.stop()
        self._links.stop()
        self._ring.close()
        self._programs.close()

    def read_counts(self) -> KernelCounts:
        """The kernel's counters now."""
        return read_counters(self.maps, self._clock.offset_ns())

    def program_runs(self) -> dict[str, tuple[int, int]]:
        """Nanoseconds and runs of each program; all zero while kernel.bpf_stats_enabled is 0."""
        return {name: program_runs(descriptor) for name, descriptor in self._programs.programs.items()}

    def carry_out(self, orders: Iterable[Order]) -> None:
        """Carry out the orders that concern the kernel side; others are passed over."""
        for order in orders:
            match order:
                case SetPodFacts():
                    entry = PodEntry(facts=order.facts, evidence=order.evidence)
                    if not self.maps.pods.put(ctypes.c_uint64(order.netns), entry):
                        logger.warning("more pods than the kernel side has room for: phases will be wrong")
                case MarkPortsServed():
                    for port in order.ports:
                        served = PortEntry(facts=Fact.LISTENED | Fact.CLOSED)
                        self.maps.served_ports.put(ctypes.c_uint32(port), ctypes.c_uint8(1))
                        self.maps.ports.put(PortKey(order.netns, port), served, BPF_NOEXIST)
                case MarkAddressGone():
                    self._address_gone(order.address, order.netns)
                case MarkAddressBack():
                    self._address_back(order.address)
                case ForgetNamespace():
                    self._forget(order.netns)
                case FindNamespaces():
                    self.find_namespaces()

    def find_namespaces(self) -> None:
        """Look among the node's processes for pods and containers that are not known."""
        with self._identity_lock:
            found = list(
                find_namespaces(self.maps, frozenset(self._known), self._containers, self._host_netns)
            )
            # A namespace whose network is still being set up is looked at again when something listens there.
            self._known.update(namespace.netns for namespace in found if namespace.host_links)
            # Under the lock, so that no record about a container overtakes the one that says which it is.
            for namespace in found:
                for record in namespace.records:
                    self._emit(record)
        self._links.add({namespace.netns: namespace.host_links for namespace in found})

    def _poll(self) -> None:
        while not self._stopping.is_set():
            self._ring.poll(POLL_MILLISECONDS)

    def _receive(self, raw: bytes) -> None:
        try:
            record, pid = decode(raw, self._clock.offset_ns())
        except ValueError as error:
            logger.warning("passed over a record of the kernel side: %s", error)
            return
        if isinstance(record, ListenerOpened):
            self._identify(record, pid)
        if isinstance(record, ListenerOpened | StopSignalSent | ContainerExited):
            self._identify_container(record)
        self._emit(record)

    def _identify(self, record: ListenerOpened, pid: int) -> None:
        """Learn whose namespace it is while the process that listens in it lives."""
        with self._identity_lock:
            if record.netns in self._known:
                return
            uid = pod_of_process(pid) or pod_of_process(init_of(pid))
            if uid is None:
                return
            view = view_namespace(pid)
            if view is not None and view.cookie == record.netns and view.host_links:
                self._known.add(record.netns)
        self._emit(NamespaceIdentified(record.at_ns, record.netns, uid))
        if view is not None and view.cookie == record.netns:
            self._links.add({view.cookie: view.host_links})

    def _identify_container(self, record: ListenerOpened | StopSignalSent | ContainerExited) -> None:
        """Tell which container the init process of a record is, before the record."""
        if not record.init_pid:
            return
        container_id = identity_of(record.init_pid).container_id
        with self._identity_lock:
            if container_id is not None:
                identified = self._containers.tell(record.at_ns, record.netns, record.init_pid, container_id)
                if identified is not None:
                    self._emit(identified)
            if isinstance(record, ContainerExited):
                self._containers.ended(record.init_pid)

    def _address_gone(self, address: Address, netns: int) -> None:
        raw = from_address(address)
        if not self.maps.gone_addresses.put(AddressBytes(*raw), ctypes.c_uint64(netns)):
            logger.warning("more removed pods than the kernel side has room for: unreachable is not counted")
            return
        self._gone.add(raw)
        self._tell_gone_count()

    def _address_back(self, address: Address) -> None:
        raw = from_address(address)
        self.maps.gone_addresses.remove(AddressBytes(*raw))
        self._gone.discard(raw)
        self._tell_gone_count()

    def _tell_gone_count(self) -> None:
        self.maps.gone_count.put(ctypes.c_uint32(0), ctypes.c_uint32(len(self._gone)))

    def _forget(self, netns: int) -> None:
        maps = self.maps
        maps.pods.remove(ctypes.c_uint64(netns))
        for port, _ in list(maps.ports.items()):
            if port.netns == netns:
                maps.ports.remove(port)
        for table in (maps.drops, maps.unserved):
            for drop, _ in list(table.items()):
                if drop.netns == netns:
                    table.remove(drop)
        for pid, container in list(maps.containers.items()):
            if container.netns == netns:
                maps.containers.remove(pid)
        self._links.forget(netns)
        with self._identity_lock:
            self._known.discard(netns)
            self._containers.forget(netns)

    def _sweep(self) -> None:
        """Make room: for attempts to come, and for ports that a server may still come to listen on."""
        while not self._stopping.wait(SWEEP_SECONDS):
            now = boot_time_ns()
            for connection, drop in list(self.maps.lost_attempts.items()):
                if drop.at_ns < now - RETRANSMISSION_NS:
                    self.maps.lost_attempts.remove(connection)
            for key, count in list(self.maps.unserved.items()):
                unserved = self.maps.ports.get(PortKey(key.netns, key.port)) is None
                if unserved and count.last_ns < now - STARTING_NS:
                    self.maps.unserved.remove(key)
