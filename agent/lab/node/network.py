import ipaddress
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from threading import Lock

from agent.lab.node import host_command
from agent.lab.node.address_plan import AddressPlan
from agent.lab.node.errors import NodeError
from agent.lab.node.forward_policy import admit_pods
from agent.lab.node.host_settings import (
    enable_ipv6_forwarding,
    forwards_per_interface,
    ipv6_available,
    lift_icmp_rate_limits,
)
from agent.lab.node.lease import Lease
from agent.lab.node.leftover import Leftover, LeftoverKind, remove

POD_INTERFACE = "eth0"
ROUTED_GATEWAY_V4 = "169.254.1.1"
ROUTED_HOST_MAC = "ee:ee:ee:ee:ee:ee"
ROUTED_GATEWAY_V6 = "fe80::ecee:eeff:feee:eeee"


class Cni(StrEnum):
    """The two shapes of a node's pod network: a bridge, or a /32 route per pod as Calico makes them."""

    BRIDGE = "bridge"
    ROUTED = "routed"


@dataclass(frozen=True)
class Addresses:
    """A pod's addresses; `v6` is None on a host without IPv6."""

    v4: str
    v6: str | None


@dataclass(frozen=True)
class _Attachment:
    number: int
    host_interface: str
    addresses: Addresses


class Network:
    """The node's pod network in the current network namespace."""

    def __init__(self, lease: Lease, cni: Cni) -> None:
        self.cni = cni
        self._lease = lease
        self._plan: AddressPlan = lease.plan
        self._lock = Lock()
        self._attached: dict[str, _Attachment] = {}
        self._last_number = 1
        self._attachments_made = 0
        self._ipv6 = ipv6_available()
        self._wiring: _Wiring = (
            _Bridge(lease, self._ipv6) if cni is Cni.BRIDGE else _Routed(lease, self._ipv6)
        )
        lift_icmp_rate_limits()
        if self._ipv6:
            enable_ipv6_forwarding()
        admit_pods(lease, self._wiring.interfaces)
        self._wiring.create()

    def attach(self, namespace: str) -> Addresses:
        """Give the namespace (a name in /run/netns) an eth0 with routes and an address of each family."""
        with self._lock:
            attachment = self._next_attachment()
            self._attached[namespace] = attachment
        self._lease.note(LeftoverKind.LINK, attachment.host_interface)
        self._wiring.attach(namespace, attachment)
        return attachment.addresses

    def detach(self, namespace: str) -> None:
        """Remove the namespace's veth pair and host route, as a CNI DEL does; its address is free again.

        The pod is cut off in one step before that. While a link goes down packets pass in one direction only
        for some milliseconds: a pod could refuse a connection and its client never learn of it.
        """
        with self._lock:
            attachment = self._attached.pop(namespace, None)
        if attachment is not None:
            link = attachment.host_interface
            with suppress(NodeError):
                host_command.ip_batch([*self._wiring.cut(attachment), f"link del {link}"])
            remove(Leftover(LeftoverKind.LINK, link))

    def _next_attachment(self) -> _Attachment:
        """Addresses go round, as with host-local IPAM: one comes back only after all the others."""
        in_use = {attachment.number for attachment in self._attached.values()}
        last = self._plan.pods_v4.num_addresses - 2
        for step in range(1, last):
            number = 2 + (self._last_number - 2 + step) % (last - 1)
            if number not in in_use:
                break
        else:
            raise NodeError(f"all addresses of {self._plan.pods_v4} are in use: remove pods first")
        self._last_number = number
        self._attachments_made += 1
        return _Attachment(
            number,
            f"lc{self._lease.index}v{self._attachments_made}",
            Addresses(
                str(self._plan.pods_v4[number]),
                str(self._plan.pods_v6[number]) if self._ipv6 else None,
            ),
        )


@dataclass(frozen=True)
class _Bridge:
    """veth pairs on a bridge; the bridge has the network's first address and is the pods' gateway.

    A reply from one pod to another must pass the host's connection tracking for the Service address to be
    put back. Bridged packets do so only with br_netfilter; without it pods get no on-link subnet, so all
    goes through the gateway.
    """

    lease: Lease
    ipv6: bool

    @property
    def name(self) -> str:
        return f"lc{self.lease.index}br"

    @property
    def interfaces(self) -> str:
        """Where forwarded packets come in and go out, as iptables writes it."""
        return self.name

    @property
    def filters_bridged_packets(self) -> bool:
        return Path("/proc/sys/net/bridge").is_dir()

    def create(self) -> None:
        plan = self.lease.plan
        self.lease.note(LeftoverKind.LINK, self.name)
        filtering = " nf_call_iptables 1 nf_call_ip6tables 1" if self.filters_bridged_packets else ""
        mac = _mac(plan.pods_v4[1])
        host_command.ip_batch([f"link add {self.name} address {mac} type bridge forward_delay 0{filtering}"])
        _configure(self.name, gateway_settings(self.ipv6) | {"ipv4/conf/{}/send_redirects": "0"})
        host_command.ip_batch(
            [
                f"addr add {plan.pods_v4[1]}/{plan.pods_v4.prefixlen} dev {self.name}",
                *(
                    [f"addr add {plan.pods_v6[1]}/{plan.pods_v6.prefixlen} dev {self.name} nodad"]
                    if self.ipv6
                    else []
                ),
                f"link set {self.name} up",
            ]
        )

    def cut(self, attachment: _Attachment) -> list[str]:
        """`ip` commands after which no packet passes the pod's link: its port is disabled (STP state 0)."""
        return [f"link set {attachment.host_interface} type bridge_slave state 0"]

    def attach(self, namespace: str, attachment: _Attachment) -> None:
        plan, host, addresses = self.lease.plan, attachment.host_interface, attachment.addresses
        host_command.ip_batch(
            [
                f"link add {host} type veth peer name {POD_INTERFACE} address {_mac(addresses.v4)}"
                f" netns {namespace}",
                f"link set {host} master {self.name}",
                f"link set {host} type bridge_slave hairpin on",
                f"link set {host} up",
            ]
        )
        on_link = self.filters_bridged_packets
        v4_length = plan.pods_v4.prefixlen if on_link else 32
        v6_length = plan.pods_v6.prefixlen if on_link else 128
        if not on_link:
            _ignore_redirects(namespace)
        lines = [
            "link set lo up",
            f"addr add {addresses.v4}/{v4_length} dev {POD_INTERFACE}",
            f"link set {POD_INTERFACE} up",
            f"route add default via {plan.pods_v4[1]} dev {POD_INTERFACE} onlink",
        ]
        if addresses.v6:
            lines += [
                f"addr add {addresses.v6}/{v6_length} dev {POD_INTERFACE} nodad",
                f"route add ::/0 via {plan.pods_v6[1]} dev {POD_INTERFACE} onlink",
            ]
        host_command.ip_batch(lines, namespace=namespace)


@dataclass(frozen=True)
class _Routed:
    """A host route per pod; the host answers ARP for the pods' gateway 169.254.1.1, which nobody owns.

    The pod range is a `blackhole`, so packets for an address without a pod vanish instead of leaving the
    node. The host answers ARP by proxy only with a route to the gateway's address, so without a default
    route the pod gets a fixed neighbour entry.
    """

    lease: Lease
    ipv6: bool

    @property
    def interfaces(self) -> str:
        """Where forwarded packets come in and go out, as iptables writes it."""
        return f"lc{self.lease.index}v+"

    def create(self) -> None:
        plan = self.lease.plan
        for network in [str(plan.pods_v4), *([str(plan.pods_v6)] if self.ipv6 else [])]:
            self.lease.note(LeftoverKind.ROUTE, f"blackhole {network}")
            family = "-6" if ":" in network else "-4"
            host_command.run(["ip", family, "route", "add", "blackhole", network])

    def cut(self, attachment: _Attachment) -> list[str]:
        """`ip` commands after which no packet reaches the pod: its host routes are gone."""
        host, addresses = attachment.host_interface, attachment.addresses
        return [
            f"route del {addresses.v4}/32 dev {host}",
            *([f"route del {addresses.v6}/128 dev {host}"] if addresses.v6 else []),
        ]

    def attach(self, namespace: str, attachment: _Attachment) -> None:
        host, addresses = attachment.host_interface, attachment.addresses
        host_command.ip_batch(
            [
                f"link add {host} address {ROUTED_HOST_MAC} type veth"
                f" peer name {POD_INTERFACE} address {_mac(addresses.v4)} netns {namespace}"
            ]
        )
        _configure(
            host,
            gateway_settings(self.ipv6) | {"ipv4/conf/{}/proxy_arp": "1", "ipv4/neigh/{}/proxy_delay": "0"},
        )
        host_command.ip_batch(
            [
                f"link set {host} up",
                f"route add {addresses.v4}/32 dev {host} scope link",
                *([f"route add {addresses.v6}/128 dev {host}"] if addresses.v6 else []),
            ]
        )
        lines = [
            "link set lo up",
            f"addr add {addresses.v4}/32 dev {POD_INTERFACE}",
            f"link set {POD_INTERFACE} up",
            f"route add {ROUTED_GATEWAY_V4} dev {POD_INTERFACE} scope link",
            f"route add default via {ROUTED_GATEWAY_V4} dev {POD_INTERFACE}",
        ]
        if not host_command.run(["ip", "-4", "route", "show", "default"]):
            lines.append(
                f"neigh add {ROUTED_GATEWAY_V4} lladdr {ROUTED_HOST_MAC} dev {POD_INTERFACE} nud permanent"
            )
        if addresses.v6:
            lines += [
                f"addr add {addresses.v6}/128 dev {POD_INTERFACE} nodad",
                f"route add ::/0 via {ROUTED_GATEWAY_V6} dev {POD_INTERFACE}",
            ]
        host_command.ip_batch(lines, namespace=namespace)


_Wiring = _Bridge | _Routed


def gateway_settings(ipv6: bool) -> dict[str, str]:
    """Settings of one interface, `{}` for its name, that let the host forward what comes in there.

    Without duplicate address detection its link-local address, from which neighbours are asked for, is
    usable at once instead of after up to 2 s.
    """
    settings = {"ipv4/conf/{}/forwarding": "1"}
    if ipv6:
        settings |= {"ipv6/conf/{}/disable_ipv6": "0", "ipv6/conf/{}/accept_dad": "0"}
        if forwards_per_interface():
            settings["ipv6/conf/{}/force_forwarding"] = "1"
    return settings


def _configure(interface: str, settings: Mapping[str, str]) -> None:
    for name, value in settings.items():
        Path("/proc/sys/net", name.format(interface)).write_text(value)


def _ignore_redirects(namespace: str) -> None:
    """Let a pod keep to its gateway: ICMP redirects would lead it past the host's address translation."""
    files = " ".join(
        f"/proc/sys/net/{family}/conf/{name}/accept_redirects"
        for family in ("ipv4", "ipv6")
        for name in ("all", POD_INTERFACE)
    )
    script = f"for file in {files}; do [ ! -e $file ] || echo 0 >$file; done"
    host_command.run(["nsenter", f"--net=/run/netns/{namespace}", "sh", "-c", script])


def _mac(address: ipaddress.IPv4Address | str) -> str:
    """A fixed, locally administered MAC, so that neither udev nor chance changes it."""
    return ":".join(["0a", "58", *(f"{byte:02x}" for byte in ipaddress.IPv4Address(address).packed)])
