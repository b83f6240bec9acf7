"""Which process is the init of which container."""

from collections.abc import Iterable

from agent.core.records import ContainerIdentified
from agent.kernel.processes import PodProcess, started_at

PID_1 = 1
RUNTIME_STAGES = ("runc:[0", "runc:[1")
"""Names of runc's own processes that pass through a container's cgroup and end before its program runs."""


def container_inits(processes: Iterable[PodProcess]) -> dict[str, PodProcess]:
    """The init of each container, by container id: the runtime's child, not one that an exec hook started.

    It is PID 1 of the container's pid namespace. Where the pod shares one namespace (shareProcessNamespace,
    hostPID) it is the oldest process of the container that has its parent outside.
    """
    by_container: dict[str, list[PodProcess]] = {}
    for process in processes:
        if process.container_id is not None and not process.name.startswith(RUNTIME_STAGES):
            by_container.setdefault(process.container_id, []).append(process)
    inits = {}
    for container_id, members in by_container.items():
        pids = {process.pid for process in members}
        entered = [process for process in members if process.parent not in pids]
        # None when the members changed while they were read: the next look finds it.
        init = next((process for process in entered if process.inner_pid == PID_1), None)
        if init is None and entered:
            init = entered[0] if len(entered) == 1 else min(entered, key=lambda each: started_at(each.pid))
        if init is not None:
            inits[container_id] = init
    return inits


class KnownContainers:
    """The init processes that were told of, so that each is told of once, and again when its pid is reused.

    For one thread at a time.
    """

    def __init__(self) -> None:
        self._of_init: dict[int, tuple[int, str]] = {}

    def tell(self, at_ns: int, netns: int, init_pid: int, container_id: str) -> ContainerIdentified | None:
        """The record of an init process that is new; None for one that was told of."""
        if self._of_init.get(init_pid) == (netns, container_id):
            return None
        self._of_init[init_pid] = (netns, container_id)
        return ContainerIdentified(at_ns, netns, init_pid, container_id)

    def netns_of(self, process: PodProcess) -> int | None:
        """Where a process is whose namespace was looked at before: container ids are never reused."""
        netns, container_id = self._of_init.get(process.pid, (None, None))
        return netns if container_id == process.container_id else None

    def keep(self, pids: set[int]) -> None:
        """Forget all but these processes: the others are gone."""
        self._of_init = {pid: known for pid, known in self._of_init.items() if pid in pids}

    def forget(self, netns: int) -> None:
        """Forget the containers of a namespace."""
        self._of_init = {pid: known for pid, known in self._of_init.items() if known[0] != netns}

    def ended(self, init_pid: int) -> None:
        """Forget a process that has ended: its pid can be another's next."""
        self._of_init.pop(init_pid, None)
