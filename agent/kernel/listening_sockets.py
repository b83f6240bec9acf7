"""The TCP listeners of a network namespace, as /proc/PID/net/tcp and tcp6 list them."""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

_LISTEN = "0A"


@dataclass(frozen=True, slots=True)
class ListeningSocket:
    """One listening socket that is reachable from outside its namespace."""

    port: int
    inode: int


def listening_sockets(pid: int) -> list[ListeningSocket]:
    """The listeners of a process's namespace, without those on a loopback address; none when it is gone."""
    found: list[ListeningSocket] = []
    for table in ("tcp", "tcp6"):
        try:
            text = Path(f"/proc/{pid}/net/{table}").read_text()
        except OSError:
            continue
        found += listeners_of_table(text)
    return found


def listeners_of_table(text: str) -> Iterator[ListeningSocket]:
    """The listeners in the text of one table; lines that do not fit its form are passed over."""
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 10 or fields[3] != _LISTEN:
            continue
        address, _, port = fields[1].partition(":")
        try:
            if not _loopback(address):
                yield ListeningSocket(int(port, 16), int(fields[9]))
        except ValueError:
            continue


def _loopback(address: str) -> bool:
    """Addresses are printed as native words of 4 bytes."""
    raw = bytes.fromhex(address)
    words = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
    if len(words) == 4:
        return IPv4Address(words).is_loopback
    parsed = IPv6Address(words)
    return (parsed.ipv4_mapped or parsed).is_loopback
