"""The maps of the programs, typed."""

import ctypes
from dataclasses import dataclass

from agent.kernel.layout import (
    AddressBytes,
    Connection,
    ContainerEntry,
    DropCount,
    DropKey,
    HookCount,
    LastDrop,
    PodEntry,
    PortEntry,
    PortKey,
    ProcessName,
    SourceKey,
)
from agent.kernel.libbpf import BpfMap


@dataclass(frozen=True, slots=True)
class Maps:
    """One field for each map that user space reads or writes; the names are those in bpf/."""

    pods: BpfMap[ctypes.c_uint64, PodEntry]
    ports: BpfMap[PortKey, PortEntry]
    containers: BpfMap[ctypes.c_uint32, ContainerEntry]
    served_ports: BpfMap[ctypes.c_uint32, ctypes.c_uint8]
    hook_counts: BpfMap[ctypes.c_uint32, HookCount]
    probing_processes: BpfMap[ProcessName, ctypes.c_uint8]
    drops: BpfMap[DropKey, DropCount]
    unserved: BpfMap[DropKey, DropCount]
    sources: BpfMap[SourceKey, ctypes.c_uint64]
    gone_addresses: "BpfMap[ctypes.Array[ctypes.c_uint8], ctypes.c_uint64]"
    gone_count: BpfMap[ctypes.c_uint32, ctypes.c_uint32]
    lost_attempts: BpfMap[Connection, LastDrop]
    records: int
    """The descriptor of the ring buffer."""


def open_maps(descriptors: dict[str, int]) -> Maps:
    """The maps behind the descriptors that the loader handed over, by name."""
    number, wide = ctypes.c_uint32, ctypes.c_uint64
    return Maps(
        pods=BpfMap(descriptors["pods"], wide, PodEntry),
        ports=BpfMap(descriptors["ports"], PortKey, PortEntry),
        containers=BpfMap(descriptors["containers"], number, ContainerEntry),
        served_ports=BpfMap(descriptors["served_ports"], number, ctypes.c_uint8),
        hook_counts=BpfMap(descriptors["hook_counts"], number, HookCount),
        probing_processes=BpfMap(descriptors["probing_processes"], ProcessName, ctypes.c_uint8),
        drops=BpfMap(descriptors["drops"], DropKey, DropCount),
        unserved=BpfMap(descriptors["unserved"], DropKey, DropCount),
        sources=BpfMap(descriptors["sources"], SourceKey, wide),
        gone_addresses=BpfMap(descriptors["gone_addresses"], AddressBytes, wide),
        gone_count=BpfMap(descriptors["gone_count"], number, number),
        lost_attempts=BpfMap(descriptors["lost_attempts"], Connection, LastDrop),
        records=descriptors["records"],
    )
