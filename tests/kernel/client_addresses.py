"""More addresses for one client, so that it looks like many."""

import itertools
import subprocess

from agent.lab.node.client_namespace import ClientNamespace
from agent.lab.node.node import Node


def add_addresses(node: Node, namespace: ClientNamespace, count: int) -> list[str]:
    """Give the namespace so many more IPv4 addresses; the bridge's pods reach them directly.

    They are the last of the run's range: the lab hands its own addresses out from the first on.
    """
    plan = list(node.lease.plan.pods_v4.hosts())
    added = [str(address) for address in itertools.islice(reversed(plan), count)]
    for address in added:
        command = ["ip", "-netns", namespace.path.name, "address", "add", f"{address}/32", "dev", "eth0"]
        subprocess.run(command, check=True)
    return added
