import re
from collections.abc import Sequence
from dataclasses import dataclass

EndpointAddress = tuple[str, int]

CREATION = """
table {family} {name} {{
  map service-ips {{ type {key} : verdict; }}
  map no-endpoint-services {{ type {key} : verdict; elements = {{ {element} : goto reject-chain }} }}
  chain reject-chain {{ reject; }}
  chain service {{ }}
  chain services {{ {destination} vmap @service-ips; }}
  chain service-endpoints-check {{ {destination} vmap @no-endpoint-services; }}
  chain nat-prerouting {{ type nat hook prerouting priority -100; jump services; }}
  chain nat-output {{ type nat hook output priority -100; jump services; }}
  chain filter-prerouting {{
    type filter hook prerouting priority -110; ct state new jump service-endpoints-check;
  }}
  chain filter-output {{
    type filter hook output priority -110; ct state new jump service-endpoints-check;
  }}
}}
"""


@dataclass(frozen=True)
class ServiceTable:
    """The nftables table of one Service in one family (`ip`, `ip6`), laid out as kube-proxy's.

    A verdict map leads from the Service address to a chain that jumps to a random endpoint's chain, which
    does the DNAT; a Service without endpoints is in a second map instead, which leads to `reject`.
    kube-proxy rejects when forwarding; here it is done before routing, so that a host without a default
    route rejects too (https://kubernetes.io/docs/reference/networking/virtual-ips/#proxy-mode-nftables).
    """

    family: str
    name: str
    address: str
    port: int

    def creation(self) -> str:
        """Commands that make the table, its Service without endpoints."""
        return CREATION.format(
            family=self.family,
            name=self.name,
            element=self._element,
            key=f"{'ipv4_addr' if self.family == 'ip' else 'ipv6_addr'} . inet_proto . inet_service",
            destination=f"{self.family} daddr . meta l4proto . th dport",
        )

    def update(self, before: Sequence[EndpointAddress], after: Sequence[EndpointAddress]) -> list[str]:
        """Commands that replace the endpoints. Chains of endpoints that left stay: `chain_deletion`."""
        lines: list[str] = []
        for endpoint in after:
            chain = f"{self.family} {self.name} {chain_name(endpoint)}"
            host = endpoint[0] if self.family == "ip" else f"[{endpoint[0]}]"
            lines += [f"add chain {chain}", f"flush chain {chain}"]
            lines.append(f"add rule {chain} meta l4proto tcp dnat to {host}:{endpoint[1]}")
        service = f"{self.family} {self.name} service"
        lines.append(f"flush chain {service}")
        if after:
            choices = ", ".join(f"{n} : goto {chain_name(endpoint)}" for n, endpoint in enumerate(after))
            lines.append(f"add rule {service} numgen random mod {len(after)} vmap {{ {choices} }}")
        if bool(before) != bool(after):
            maps = f"element {self.family} {self.name}"
            serving = f"{maps} service-ips {{ {self._element} : goto service }}"
            empty = f"{maps} no-endpoint-services {{ {self._element} : goto reject-chain }}"
            gone, come = (empty, serving) if after else (serving, empty)
            lines += [f"delete {gone}", f"add {come}"]
        return lines

    def chain_deletion(self, endpoint: EndpointAddress) -> str:
        return f"delete chain {self.family} {self.name} {chain_name(endpoint)}"

    @property
    def _element(self) -> str:
        return f"{self.address} . tcp . {self.port}"


def chain_name(endpoint: EndpointAddress) -> str:
    return f"endpoint-{re.sub('[.:]', '-', endpoint[0])}-{endpoint[1]}"
