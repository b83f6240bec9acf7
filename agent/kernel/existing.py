"""What was there before the programs: namespaces of pods, their listeners, the containers that serve."""

import ctypes
import time
from collections.abc import Iterator
from dataclasses import dataclass

from agent.core.phases import Fact
from agent.core.records import ContainerIdentified, ListenerOpened, NamespaceIdentified
from agent.kernel.clock import boot_time_ns
from agent.kernel.containers import KnownContainers, container_inits
from agent.kernel.layout import ContainerEntry, PortEntry, PortKey
from agent.kernel.libbpf import BPF_NOEXIST
from agent.kernel.listening_sockets import listening_sockets
from agent.kernel.maps import Maps
from agent.kernel.namespaces import view_namespace
from agent.kernel.processes import (
    PodProcess,
    init_of,
    own_namespace_inode,
    pod_processes,
    socket_inodes,
)


@dataclass(frozen=True, slots=True)
class FoundNamespace:
    """A pod's network namespace, with the records that tell what is new of it.

    `host_links` are the node's ends of its links; none are given of a namespace that was known.
    """

    netns: int
    host_links: tuple[int, ...]
    records: tuple[NamespaceIdentified | ContainerIdentified | ListenerOpened, ...]


def find_namespaces(
    maps: Maps, known: frozenset[int], containers: KnownContainers, host_netns: int
) -> Iterator[FoundNamespace]:
    """The namespaces of pods: whose they are and what listens there, unless `known` by cookie, and in any
    case their new containers. What is found is entered into the maps and into `containers`.

    The programs must be attached already: what they saw open since is not entered twice.
    """
    began_ns = boot_time_ns()
    own_inode = own_namespace_inode()
    by_inode: dict[int, list[PodProcess]] = {}
    for process in pod_processes():
        if process.namespace_inode != own_inode:
            by_inode.setdefault(process.namespace_inode, []).append(process)
    everyone = [process for processes in by_inode.values() for process in processes]
    containers.keep({process.pid for process in everyone})
    inits = container_inits(everyone)
    for inode, processes in by_inode.items():
        netns = next((netns for process in processes if (netns := containers.netns_of(process))), None)
        view = None
        if netns not in known:
            view = next((view for process in processes if (view := view_namespace(process.pid))), None)
            netns = view.cookie if view else None
        if netns is None or netns == host_netns:
            continue
        here = {cid: init for cid, init in inits.items() if init.namespace_inode == inode}
        identified = list(_enter_containers(maps, containers, netns, here, began_ns))
        if view is None or netns in known:
            yield FoundNamespace(netns, (), tuple(identified))
            continue
        now = time.time_ns()
        owner = NamespaceIdentified(now, netns, processes[0].pod_uid)
        opened = _enter_listeners(maps, netns, processes, now)
        yield FoundNamespace(netns, view.host_links, (owner, *identified, *opened))


def _enter_containers(
    maps: Maps, containers: KnownContainers, netns: int, inits: dict[str, PodProcess], began_ns: int
) -> Iterator[ContainerIdentified]:
    """Have signals to these processes, and their exits, reported, whether they serve anything or not."""
    for container_id, init in inits.items():
        identified = containers.tell(time.time_ns(), netns, init.pid, container_id)
        if identified is None:
            continue
        key, entry = ctypes.c_uint32(init.pid), ContainerEntry(netns=netns)
        seen = maps.containers.get(key)
        # The process lived after this look began: who exited before had its pid before.
        if seen is not None and (seen.netns != netns or 0 < seen.exited_ns < began_ns):
            maps.containers.put(key, entry)
        else:
            maps.containers.put(key, entry, BPF_NOEXIST)
        yield identified


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
            entry = PortEntry(listeners=len(inodes), facts=Fact.LISTENED, init_pid=init_pid)
            if seen is not None:
                # One of them opened under the eyes of the programs, which know its socket.
                entry.listener, entry.opened_ns = seen.listener, seen.opened_ns
            maps.ports.put(key, entry)
        if init_pid:
            maps.containers.put(ctypes.c_uint32(init_pid), ContainerEntry(netns=netns), BPF_NOEXIST)
        yield ListenerOpened(now, netns, port, init_pid)


def _owners(pids: list[int], inodes: set[int]) -> dict[int, int]:
    owners: dict[int, int] = {}
    for pid in pids:
        for inode in inodes & socket_inodes(pid):
            owners.setdefault(inode, pid)
    return owners
