"""What this process may do: root in a container often lacks what the agent needs."""

import logging
from pathlib import Path

from agent.kernel.errors import KernelSideError

logger = logging.getLogger(__name__)

CAPABILITY_BITS = {
    "CAP_DAC_READ_SEARCH": 2,
    "CAP_NET_ADMIN": 12,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYSLOG": 34,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
}
"""From linux/capability.h."""

NEEDED_CAPABILITIES = {
    "CAP_SYS_ADMIN": "load BPF programs and enter the pods' network namespaces",
    "CAP_SYS_PTRACE": "see which namespaces a process is in",
}
"""Each with what cannot be done without it. CAP_SYS_ADMIN stands in for CAP_BPF and CAP_PERFMON
(capabilities(7)), and setns(2) asks for it anyway."""

USEFUL_CAPABILITIES = {
    "CAP_DAC_READ_SEARCH": "see which process listens in a pod that is older than it and not root's",
    "CAP_NET_ADMIN": "see when kube-proxy changes this node's rules",
    "CAP_SYSLOG": "count overflow: kernel addresses are hidden from it",
}

KEPT_ONCE_ATTACHED = frozenset({"CAP_DAC_READ_SEARCH", "CAP_NET_ADMIN", "CAP_SYS_ADMIN", "CAP_SYS_PTRACE"})
"""New pods are looked at as the first were, a netlink socket that overflowed is bound again, and before
Linux 5.19 the kernel may ask for CAP_BPF, or CAP_SYS_ADMIN in its place, to read an open map."""

OWN_STATUS = Path("/proc/self/status")


def effective_capabilities(status: str) -> frozenset[str]:
    """The capabilities of interest that a process has, by its /proc/PID/status."""
    effective = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:"))
    return frozenset(name for name, bit in CAPABILITY_BITS.items() if effective >> bit & 1)


def demand_capabilities() -> None:
    """Raises KernelSideError that names what this process lacks, and warns where it counts less."""
    held = effective_capabilities(OWN_STATUS.read_text())
    missing = [name for name in NEEDED_CAPABILITIES if name not in held]
    if missing:
        added = ", ".join(name.removeprefix("CAP_") for name in missing)
        raise KernelSideError(
            f"not allowed to look into pods without {' and '.join(missing)}: "
            f"add {added} to the container's securityContext.capabilities, or run it as root on the node"
        )
    for name, purpose in USEFUL_CAPABILITIES.items():
        if name not in held:
            logger.warning("without %s the agent cannot %s", name, purpose)
