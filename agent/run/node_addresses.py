"""The node's own addresses, which probes and masqueraded connections come from."""

import ipaddress

from pyroute2 import IPRoute

from agent.core.records import Address


def node_addresses() -> frozenset[Address]:
    """Every address of the node itself."""
    with IPRoute() as route:
        found = [message.get_attr("IFA_ADDRESS") for message in route.get_addr()]
    return frozenset(ipaddress.ip_address(address) for address in found if address)
