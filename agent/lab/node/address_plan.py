import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

RUNS_PER_BLOCK = 128
RUNS = 4 * RUNS_PER_BLOCK
FIRST_OCTET = 200


@dataclass(frozen=True)
class AddressPlan:
    """The address ranges of one lab run, so that two runs at once on one machine do not collide."""

    pods_v4: ipaddress.IPv4Network
    pods_v6: ipaddress.IPv6Network
    services_v4: ipaddress.IPv4Network
    services_v6: ipaddress.IPv6Network

    def overlaps(self, networks: Iterable[str]) -> bool:
        """Whether the host already uses a part of this plan; a default route uses nothing."""
        return any(self._overlaps(network) for network in networks)

    def _overlaps(self, network: str) -> bool:
        taken = ipaddress.ip_network(network, strict=False)
        if taken.prefixlen == 0:
            return False
        if isinstance(taken, ipaddress.IPv4Network):
            return taken.overlaps(self.pods_v4) or taken.overlaps(self.services_v4)
        return taken.overlaps(self.pods_v6) or taken.overlaps(self.services_v6)


def plan_of_run(index: int) -> AddressPlan:
    """The plan of run number `index` (0 to RUNS - 1)."""
    block, third = divmod(index, RUNS_PER_BLOCK)
    second = FIRST_OCTET + 2 * block
    return AddressPlan(
        pods_v4=ipaddress.IPv4Network(f"10.{second}.{third}.0/24"),
        pods_v6=ipaddress.IPv6Network(f"fd00:1a57:{index:x}::/64"),
        services_v4=ipaddress.IPv4Network(f"10.{second + 1}.{third}.0/24"),
        services_v6=ipaddress.IPv6Network(f"fd00:1a57:{index:x}:1::/64"),
    )
