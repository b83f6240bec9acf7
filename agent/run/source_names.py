"""Who stands behind a source address, as far as this node knows."""

import ipaddress
from collections.abc import Iterable

from pyroute2 import IPRoute

from agent.core.life import PodLife
from agent.core.records import Address
from agent.core.snapshot import SourceName


def node_addresses() -> frozenset[Address]:
    """Every address of the node itself, which probes and masqueraded connections come from."""
    with IPRoute() as route:
        found = [message.get_attr("IFA_ADDRESS") for message in route.get_addr()]
    return frozenset(ipaddress.ip_address(address) for address in found if address)


def name_sources(
    addresses: Iterable[Address], lives: Iterable[PodLife], node: frozenset[Address]
) -> dict[Address, SourceName]:
    """A pod of this node by its workload, the node itself, and anything else by its address."""
    pods = {address: life for life in lives for address in life.pod.addresses}
    return {address: _name(address, pods, node) for address in addresses}


def _name(address: Address, pods: dict[Address, PodLife], node: frozenset[Address]) -> SourceName:
    life = pods.get(address)
    if life is not None:
        workload = life.pod.workload
        return SourceName("pod", f"{life.pod.namespace}/{workload.kind}/{workload.name}")
    return SourceName("node" if address in node else "external", str(address))
