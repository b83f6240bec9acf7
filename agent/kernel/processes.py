"""The node's processes, as far as they belong to pods: read from /proc."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.core.cgroup_path import identity_of_process

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class PodProcess:
    """A process of a pod. `namespace_inode` tells network namespaces apart while the process lives."""

    pid: int
    pod_uid: str
    namespace_inode: int


def pod_of_process(pid: int) -> str | None:
    """The UID in the process's cgroup path; None for a process that is gone or belongs to no pod."""
    try:
        lines = (PROC / str(pid) / "cgroup").read_text(errors="replace")
    except OSError:
        return None
    identity = identity_of_process(lines)
    return None if identity.monitor else identity.pod_uid


def pod_processes() -> Iterator[PodProcess]:
    """Every process of every pod on the node."""
    for entry in os.listdir(PROC):
        if not entry.isdigit():
            continue
        pid = int(entry)
        uid = pod_of_process(pid)
        if uid is None:
            continue
        try:
            inode = (PROC / entry / "ns/net").stat().st_ino
        except OSError:
            continue
        yield PodProcess(pid, uid, inode)


def init_of(pid: int) -> int:
    """The pid, on the host, of the init process of a process's pid namespace; 0 in the host's own or if gone.

    The init process is the oldest ancestor that is in the same pid namespace.
    """
    if _depth(pid) < 2:
        return 0
    while (parent := _parent(pid)) and _depth(parent) == _depth(pid):
        pid = parent
    return pid if _depth(pid) else 0


def _depth(pid: int) -> int:
    """How many pid namespaces see the process: 1 on the host; 0 when it is gone."""
    return len(_status(pid, "NSpid:"))


def _parent(pid: int) -> int:
    return int(next(iter(_status(pid, "PPid:")), "0"))


def _status(pid: int, field: str) -> list[str]:
    try:
        lines = (PROC / str(pid) / "status").read_text(errors="replace").splitlines()
    except OSError:
        return []
    return next((line.split()[1:] for line in lines if line.startswith(field)), [])


def socket_inodes(pid: int) -> set[int]:
    """The inodes of the sockets that a process holds."""
    held = set()
    try:
        for descriptor in os.scandir(PROC / str(pid) / "fd"):
            target = os.readlink(descriptor.path)
            if target.startswith("socket:["):
                held.add(int(target[8:-1]))
    except OSError:
        # The process, or one of its descriptors, went while it was looked at.
        pass
    return held
