"""What was there before the programs: namespaces of pods, their listeners, the containers that serve."""

import ctypes
import time
from collections.abc import Iterator
from dataclasses import dataclass

from agent.core.phases import Fact
from agent.core.records import ListenerOpened, NamespaceIdentified
from agent.kernel.layout import ContainerEntry, PortEntry, PortKey
from agent.kernel.libbpf import BPF_NOEXIST
from agent.kernel.listening_sockets import listening_sockets
from agent.kernel.maps import Maps
from agent.kernel.namespaces import NamespaceView, view_namespace
from agent.kernel.processes import PodProcess, init_of, pod_processes, socket_inodes


@dataclass(frozen=True, slots=True)
class FoundNamespace:
    """A pod's network namespace, with the records that tell of it."""

    view: NamespaceView
    records: tuple[NamespaceIdentified | ListenerOpened, ...]


def find_namespaces(maps: Maps, known: frozenset[int], host_netns: int) -> Iterator[FoundNamespace]:
    """The namespaces of pods that are not `known` by cookie; their listeners are entered into the maps.

    The programs must be attached already: what they saw open since is not entered twice.
    """
    by_inode: dict[int, list[PodProcess]] = {}
    for process in pod_processes():
        by_inode.setdefault(process.namespace_inode, []).append(process)
    for processes in by_inode.values():
        view = next((view for process in processes if (view := view_namespace(process.pid))), None)
        if view is None or view.cookie in known or view.cookie == host_netns:
            continue
        now = time.time_ns()
        identified = NamespaceIdentified(now, view.cookie, processes[0].pod_uid)
        opened = _enter_listeners(maps, view.cookie, processes, now)
        yield FoundNamespace(view, (identified, *opened))


def _enter_listeners(
    maps: Maps, netns: int, processes: list[PodProcess], now: int
) -> Iterator[ListenerOpened]:
    listeners: dict[int, list[int]] = {}
    pids = [process.pid for process in processes]
    for listener in next((found for pid in pids if (found := listening_sockets(pid))), []):
        listeners.setdefault(listener.port, []).append(listener.inode)
    owners = _owners(pids, {inode for inodes in listeners.values() for inode in inodes})
    for port, inodes in listeners.items():
        key = PortKey(netns, port)
        init_pid = next((init_of(owners[inode]) for inode in inodes if inode in owners), 0)
        maps.served_ports.put(ctypes.c_uint32(port), ctypes.c_uint8(1))
        seen = maps.ports.get(key)
        if seen is None or seen.listeners < len(inodes):
            maps.ports.put(key, PortEntry(listeners=len(inodes), facts=Fact.LISTENED, init_pid=init_pid))
        if init_pid:
            maps.containers.put(ctypes.c_uint32(init_pid), ContainerEntry(netns=netns), BPF_NOEXIST)
        yield ListenerOpened(now, netns, port, init_pid)


def _owners(pids: list[int], inodes: set[int]) -> dict[int, int]:
    owners: dict[int, int] = {}
    for pid in pids:
        for inode in inodes & socket_inodes(pid):
            owners.setdefault(inode, pid)
    return owners
