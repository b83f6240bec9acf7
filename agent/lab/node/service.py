import re
from collections.abc import Iterable
from dataclasses import dataclass

from agent.lab.node import host_command
from agent.lab.node.lease import Lease
from agent.lab.node.leftover import Leftover, LeftoverKind, remove
from agent.lab.node.network import Addresses
from agent.lab.node.service_rules import EndpointAddress, ServiceTable


@dataclass(frozen=True)
class Endpoint:
    """A pod behind a Service: its addresses and the port its server listens on."""

    addresses: Addresses
    port: int


class Service:
    """A Service address with the rules kube-proxy's nftables mode writes for it, in tables of its own.

    New connections to `v4` or `v6` at `port` go to a random endpoint; with no endpoint they are rejected with
    ICMP port unreachable. Connections that exist keep their endpoint.
    """

    def __init__(self, lease: Lease, name: str, number: int, port: int, *, ipv6: bool) -> None:
        self.name = name
        self.v4 = str(lease.plan.services_v4[number])
        self.v6 = str(lease.plan.services_v6[number]) if ipv6 else None
        self.port = port
        table_name = f"lastcall-lab-{lease.index}-{re.sub('[^a-z0-9-]', '-', name)}"
        self._tables = [ServiceTable("ip", table_name, self.v4, port)]
        if self.v6:
            self._tables.append(ServiceTable("ip6", table_name, self.v6, port))
        self._endpoints: tuple[Endpoint, ...] = ()
        self._stale: set[tuple[ServiceTable, EndpointAddress]] = set()
        for table in self._tables:
            lease.note(LeftoverKind.NFT_TABLE, f"{table.family} {table.name}")
        host_command.run(["nft", "-f", "-"], stdin="".join(table.creation() for table in self._tables))

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return self._endpoints

    def sync(self, endpoints: Iterable[Endpoint]) -> bool:
        """Make these the endpoints, in one transaction; False if they already were.

        Chains of endpoints that left are deleted one transaction later, as kube-proxy does it.
        """
        wanted = tuple(endpoints)
        if wanted == self._endpoints:
            return False
        commands: list[str] = []
        left: set[tuple[ServiceTable, EndpointAddress]] = set()
        for table in self._tables:
            before, after = (_addresses(table, some) for some in (self._endpoints, wanted))
            commands += table.update(before, after)
            left |= {(table, endpoint) for endpoint in before if endpoint not in after}
            self._stale -= {(table, endpoint) for endpoint in after}
        commands += [table.chain_deletion(endpoint) for table, endpoint in self._stale]
        host_command.run(["nft", "-f", "-"], stdin="".join(f"{command}\n" for command in commands))
        self._stale = left
        self._endpoints = wanted
        return True

    def remove(self) -> None:
        """Delete the Service's tables."""
        for table in self._tables:
            remove(Leftover(LeftoverKind.NFT_TABLE, f"{table.family} {table.name}"))


def _addresses(table: ServiceTable, endpoints: Iterable[Endpoint]) -> list[EndpointAddress]:
    pairs = [
        (endpoint.addresses.v4 if table.family == "ip" else endpoint.addresses.v6, endpoint.port)
        for endpoint in endpoints
    ]
    return [(address, port) for address, port in pairs if address is not None]
