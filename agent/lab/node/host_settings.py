"""Kernel settings that the lab changes for the whole host, shared by all runs and put back by the last.

ICMP errors are limited in rate per destination (`icmp_ratelimit`), which turns a Service's quick rejects
into connect timeouts that no pod caused; the lab lifts the limit. IPv6 has no forwarding switch per
interface before `force_forwarding` (Linux 6.17), and `net.ipv6.conf.all.forwarding` makes interfaces with
accept_ra=1 drop their learned default routes, so those get accept_ra=2 first
(Documentation/networking/ip-sysctl.rst).
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.lab.node.lease import LEASES

SAVED = LEASES / "settings.json"
ICMP_RATE_LIMITS = (Path("/proc/sys/net/ipv4/icmp_ratelimit"), Path("/proc/sys/net/ipv6/icmp/ratelimit"))
IPV6 = Path("/proc/sys/net/ipv6/conf")


def ipv6_available() -> bool:
    return IPV6.is_dir()


def forwards_per_interface() -> bool:
    return (IPV6 / "all" / "force_forwarding").exists()


def lift_icmp_rate_limits() -> None:
    """Let the host answer every packet that it rejects."""
    with _saved() as saved:
        for limit in ICMP_RATE_LIMITS:
            if limit.exists() and (value := limit.read_text().strip()) != "0":
                saved.setdefault(str(limit), value)
                limit.write_text("0")


def enable_ipv6_forwarding() -> None:
    """Let the host forward IPv6 between pods; does nothing where interfaces can be switched one by one."""
    if not ipv6_available() or forwards_per_interface():
        return
    with _saved() as saved:
        for accept_ra in IPV6.glob("*/accept_ra"):
            if accept_ra.parent.name not in ("all", "default") and accept_ra.read_text().strip() == "1":
                saved.setdefault(str(accept_ra), "1")
                accept_ra.write_text("2")
        forwarding = IPV6 / "all" / "forwarding"
        if forwarding.read_text().strip() != "1":
            saved.setdefault(str(forwarding), forwarding.read_text().strip())
            forwarding.write_text("1")


def restore_if_unused() -> None:
    """Put the host's settings back unless another run still holds a lease."""
    if not SAVED.exists():
        return
    with _saved() as saved:
        if any(_is_held(file) for file in LEASES.glob("*.lease")):
            return
        for name, value in reversed(saved.items()):
            if Path(name).exists():
                Path(name).write_text(value)
        saved.clear()


@contextmanager
def _saved() -> Iterator[dict[str, str]]:
    """The saved values under an exclusive lock; what the block leaves in them is written back."""
    descriptor = os.open(SAVED, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        saved: dict[str, str] = json.loads(file.read() or "{}")
        yield saved
        file.seek(0)
        file.truncate()
        json.dump(saved, file)


def _is_held(lease_file: Path) -> bool:
    with lease_file.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
