import fcntl
import json
import os
import tempfile
from pathlib import Path
from typing import Self

from agent.lab.node import host_command
from agent.lab.node.address_plan import RUNS, AddressPlan, plan_of_run
from agent.lab.node.errors import NodeError
from agent.lab.node.leftover import Leftover, LeftoverKind, leftover_from_json, remove

LEASES = Path("/run/lastcall-lab")


class Lease:
    """One run's claim on a number, and with it on names and addresses.

    The claim is a lock on a file, so the kernel drops it when the process dies. The file lists everything
    the run puts on the host; whoever finds it unlocked may remove that.
    """

    def __init__(self, index: int, descriptor: int) -> None:
        self.index = index
        self.plan: AddressPlan = plan_of_run(index)
        self._descriptor = descriptor
        self._noted: list[Leftover] = []
        self.directory = Path(tempfile.mkdtemp(prefix=f"lastcall-lab-{index}-"))
        self.note(LeftoverKind.DIRECTORY, str(self.directory))

    @classmethod
    def claim(cls) -> Self:
        """Remove what dead runs left and claim a free number. Raises NodeError if not root.

        The search starts at the process id, so that a run does not meet the connection tracking entries of
        the run before it, which live for minutes.
        """
        if os.geteuid() != 0:
            raise NodeError("the lab makes network namespaces and needs root: run it with sudo")
        LEASES.mkdir(mode=0o755, exist_ok=True)
        remove_leftovers_of_dead_runs()
        used = networks_of_host()
        for step in range(RUNS):
            index = (os.getpid() + step) % RUNS
            if plan_of_run(index).overlaps(used):
                continue
            descriptor = os.open(_lease_file(index), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if _lock(descriptor) and _still_linked(descriptor, index):
                return cls(index, descriptor)
            os.close(descriptor)
        raise NodeError(
            "no free address range for the lab: every 10.200.0.0/13 block is in use on this machine"
        )

    def note(self, kind: LeftoverKind, name: str) -> None:
        """Write down what is about to be made; returns only when it is in the file."""
        leftover = Leftover(kind, name)
        os.write(self._descriptor, f"{leftover.to_json()}\n".encode())
        self._noted.append(leftover)

    def close(self) -> None:
        """Remove everything noted, newest first, and give the number back."""
        for leftover in reversed(self._noted):
            remove(leftover)
        self._noted.clear()
        _lease_file(self.index).unlink(missing_ok=True)
        os.close(self._descriptor)


def remove_leftovers_of_dead_runs() -> list[Leftover]:
    """Remove what runs whose process is gone left on this host, and say what their lists held."""
    removed: list[Leftover] = []
    for file in sorted(LEASES.glob("*.lease")):
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            if not _lock(descriptor):
                continue
            leftovers = [leftover_from_json(line) for line in file.read_text().splitlines() if line]
            for leftover in reversed(leftovers):
                remove(leftover)
            removed.extend(leftovers)
            file.unlink(missing_ok=True)
        finally:
            os.close(descriptor)
    return removed


def networks_of_host() -> list[str]:
    """Every destination in the host's main routing tables."""
    routes: list[dict[str, str]] = []
    for family in ("-4", "-6"):
        routes.extend(json.loads(host_command.run(["ip", family, "-j", "route", "show"]) or "[]"))
    return [route["dst"] for route in routes if route["dst"] != "default"]


def _lease_file(index: int) -> Path:
    return LEASES / f"{index}.lease"


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _still_linked(descriptor: int, index: int) -> bool:
    """False if another run removed the file between our open and our lock."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(_lease_file(index)))
    except FileNotFoundError:
        return False
