"""TCP segments that belong to no connection, as port scanners send them."""

import socket
import struct
from enum import IntFlag
from ipaddress import IPv4Address

from agent.lab.node.client_namespace import ClientNamespace
from tests.kernel.scripted_pod import in_namespace

CLIENT_PORT = 61000


class Flags(IntFlag):
    """The bits of byte 13 of a TCP header (RFC 9293)."""

    NONE = 0
    FIN = 1
    SYN = 2
    PUSH = 8
    ACK = 16
    URGENT = 32


def send_segment(namespace: ClientNamespace, address: str, port: int, flags: Flags) -> None:
    """Send one segment without data from the namespace to an IPv4 address."""
    source = IPv4Address(namespace.addresses.v4).packed
    target = IPv4Address(address).packed
    header = _header(port, flags, 0)
    pseudo = source + target + struct.pack("!HH", socket.IPPROTO_TCP, len(header))
    header = _header(port, flags, _checksum(pseudo + header))

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP) as raw:
            raw.sendto(header, (address, 0))

    in_namespace(namespace.path, send)


def _header(port: int, flags: Flags, checksum: int) -> bytes:
    return struct.pack("!HHIIBBHHH", CLIENT_PORT, port, 1000, 2000, 5 << 4, flags, 1024, checksum, 0)


def _checksum(data: bytes) -> int:
    """The ones' complement of the ones' complement sum of 16-bit words (RFC 1071)."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
