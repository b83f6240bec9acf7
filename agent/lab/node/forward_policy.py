"""Docker and ufw make the host drop what it forwards, so the pods have to be admitted, as by a CNI plugin."""

import shutil

from agent.lab.node import host_command
from agent.lab.node.lease import Lease
from agent.lab.node.leftover import LeftoverKind

DROPPING = "-P FORWARD DROP"


def admit_pods(lease: Lease, interfaces: str) -> None:
    """Where iptables drops forwarded packets by policy, accept those of `interfaces` (name or prefix+)."""
    for tool in ("iptables", "ip6tables"):
        if shutil.which(tool) is None:
            continue
        if DROPPING not in host_command.run([tool, "-S", "FORWARD"]):
            continue
        for direction in ("-i", "-o"):
            rule = f"FORWARD {direction} {interfaces} -j ACCEPT"
            lease.note(LeftoverKind.IPTABLES_RULE, f"{tool} {rule}")
            host_command.run([tool, "-I", *rule.split()])
