import re
from collections.abc import Iterable
from dataclasses import dataclass

from agent.lab.node import host_command
from agent.lab.node.lease import Lease
from agent.lab.node.leftover import Leftover, LeftoverKind, remove
from agent.lab.node.network import Addresses


@dataclass(frozen=True)
class Endpoint:
    """A pod behind a Service: its addresses and the port its server listens on."""

    addresses: Addresses
    port: int


class Service:
    """A Service address with the rules kube-proxy's nftables mode writes for it, in tables of its own.

    New connections to `v4` or `v6` at `port` go to a random endpoint; with no endpoint they are rejected with ICMP
    port unreachable. Connections that exist keep their endpoint.
    """

    def __init__(self, lease: Lease, name: str, number: int, port: int, *, ipv6: bool) -> None:
        self.name = name
        self.v4 = str(lease.plan.services_v4[number])
        self.v6 = str(lease.plan.services_v6[number]) if ipv6 else None
        self.port = port
        table = f"lastcall-lab-{lease.index}-{re.sub('[^a-z0-9-]', '-', name)}"
        self._tables = [_Table("ip", table, self.v4, port)]
        if self.v6:
            self._tables.append(_Table("ip6", table, self.v6, port))
        self._endpoints: tuple[Endpoint, ...] = ()
        self._stale_chains: list[str] = []
        for family_table in self._tables:
            lease.note(LeftoverKind.NFT_TABLE, f"{family_table.family} {family_table.name}")
        host_command.run(["nft", "-f", "-"], stdin="".join(table.creation() for table in self._tables))

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return self._endpoints

    def sync(self, endpoints: Iterable[Endpoint]) -> bool:
        """Make these the endpoints, both families in one transaction; False when there was nothing to change."""
        wanted = tuple(endpoints)
        if wanted == self._endpoints:
            return False
        script: list[str] = []
        stale: list[str] = []
        for table in self._tables:
            before = table.endpoint_addresses(self._endpoints)
            after = table.endpoint_addresses(wanted)
            script += table.update(before, after)
            stale += [table.chain_deletion(address) for address in before if address not in after]
        # Chains go one transaction later, as kube-proxy does it, unless their endpoint has come back.
        kept = {
            table.chain_deletion(address)
            for table in self._tables
            for address in table.endpoint_addresses(wanted)
        }
        deletions = [line for line in self._stale_chains if line not in kept]
        host_command.run(["nft", "-f", "-"], stdin="\n".join([*script, *deletions, ""]))
        self._stale_chains = stale
        self._endpoints = wanted
        return True

    def remove(self) -> None:
        """Delete the Service's tables."""
        for table in self._tables:
            remove(Leftover(LeftoverKind.NFT_TABLE, f"{table.family} {table.name}"))


@dataclass(frozen=True)
class _Table:
    family: str
    name: str
    address: str
    port: int

    def creation(self) -> str:
        """The table without endpoints: base chains, verdict maps, and the Service in the map of rejected ones."""
        key = f"{'ipv4_addr' if self.family == 'ip' else 'ipv6_addr'} . inet_proto . inet_service"
        destination = f"{self.family} daddr . meta l4proto . th dport"
        return f"""
table {self.family} {self.name} {{
  map service-ips {{ type {key} : verdict; }}
  map no-endpoint-services {{ type {key} : verdict; elements = {{ {self._element} : goto reject-chain }} }}
  chain reject-chain {{ reject; }}
  chain service {{ }}
  chain services {{ {destination} vmap @service-ips; }}
  chain service-endpoints-check {{ {destination} vmap @no-endpoint-services; }}
  chain nat-prerouting {{ type nat hook prerouting priority -100; jump services; }}
  chain nat-output {{ type nat hook output priority -100; jump services; }}
  chain filter-forward {{ type filter hook forward priority -110; ct state new jump service-endpoints-check; }}
  chain filter-output {{ type filter hook output priority -110; ct state new jump service-endpoints-check; }}
}}
"""

    def endpoint_addresses(self, endpoints: Iterable[Endpoint]) -> list[tuple[str, int]]:
        addresses = [
            (endpoint.addresses.v4 if self.family == "ip" else endpoint.addresses.v6, endpoint.port)
            for endpoint in endpoints
        ]
        return [(address, port) for address, port in addresses if address is not None]

    def update(self, before: list[tuple[str, int]], after: list[tuple[str, int]]) -> list[str]:
        lines: list[str] = []
        for address, port in after:
            chain = f"{self.family} {self.name} {_chain(address, port)}"
            target = f"{address}:{port}" if self.family == "ip" else f"[{address}]:{port}"
            lines += [f"add chain {chain}", f"flush chain {chain}"]
            lines.append(f"add rule {chain} meta l4proto tcp dnat to {target}")
        lines.append(f"flush chain {self.family} {self.name} service")
        if after:
            choices = ", ".join(f"{n} : goto {_chain(*address)}" for n, address in enumerate(after))
            lines.append(
                f"add rule {self.family} {self.name} service numgen random mod {len(after)} vmap {{ {choices} }}"
            )
        if bool(before) != bool(after):
            gone, come = ("service-ips", "no-endpoint-services")[:: -1 if after else 1]
            verdict = {"service-ips": "goto service", "no-endpoint-services": "goto reject-chain"}
            for action, map_name in (("delete", gone), ("add", come)):
                element = f"{self._element} : {verdict[map_name]}"
                lines.append(f"{action} element {self.family} {self.name} {map_name} {{ {element} }}")
        return lines

    def chain_deletion(self, endpoint: tuple[str, int]) -> str:
        return f"delete chain {self.family} {self.name} {_chain(*endpoint)}"

    @property
    def _element(self) -> str:
        return f"{self.address} . tcp . {self.port}"


def _chain(address: str, port: int) -> str:
    return f"endpoint-{re.sub('[.:]', '-', address)}-{port}"
