"""What this process may do: root in a container often lacks what the agent needs."""

from pathlib import Path

from agent.kernel.errors import KernelSideError

CAPABILITY_BITS = {
    "CAP_NET_ADMIN": 12,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
}
"""From linux/capability.h."""

WITHOUT_WHICH_NOTHING_WORKS = ("CAP_SYS_ADMIN", "CAP_SYS_PTRACE")
"""CAP_SYS_ADMIN stands in for CAP_BPF and CAP_PERFMON (capabilities(7)), and setns(2) asks for it anyway."""

OWN_STATUS = Path("/proc/self/status")


def effective_capabilities(status: str) -> frozenset[str]:
    """The capabilities of interest that a process has, by its /proc/PID/status."""
    effective = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:"))
    return frozenset(name for name, bit in CAPABILITY_BITS.items() if effective >> bit & 1)


def demand_capabilities() -> None:
    """Raises KernelSideError that names what this process lacks."""
    held = effective_capabilities(OWN_STATUS.read_text())
    missing = [name for name in WITHOUT_WHICH_NOTHING_WORKS if name not in held]
    if missing:
        added = ", ".join(name.removeprefix("CAP_") for name in missing)
        raise KernelSideError(
            f"not allowed to look into pods without {' and '.join(missing)}: "
            f"add {added} to the container's securityContext.capabilities, or run it as root on the node"
        )
