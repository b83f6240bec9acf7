from dataclasses import dataclass
from pathlib import Path

from agent.lab.node.network import Addresses


@dataclass(frozen=True)
class ClientNamespace:
    """A network namespace on the pod network that belongs to no pod: where load generators and nginx run.

    `path` is its file in /run/netns.
    """

    path: Path
    addresses: Addresses
