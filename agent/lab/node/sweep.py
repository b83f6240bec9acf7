"""Remove what dead runs left on the host.

`python3 -m agent.lab.node.sweep` does it by hand; every run does it at its start.
"""

import sys

from agent.lab.node.errors import NodeError
from agent.lab.node.host_settings import restore_if_unused
from agent.lab.node.lease import LEASES, remove_leftovers_of_dead_runs
from agent.lab.node.leftover import Leftover


def sweep() -> list[Leftover]:
    """Remove what dead runs left and return what their lists held. Runs that live are left alone."""
    if not LEASES.is_dir():
        return []
    removed = remove_leftovers_of_dead_runs()
    restore_if_unused()
    return removed


if __name__ == "__main__":
    try:
        for leftover in sweep():
            print(f"removed {leftover.kind} {leftover.name}")
    except (NodeError, PermissionError) as error:
        sys.exit(f"sweep: {error}")
