"""The node's processes, as far as they belong to pods: read from /proc."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.core.cgroup_path import CgroupIdentity, identity_of_process

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class PodProcess:
    """A process of a pod. `namespace_inode` tells network namespaces apart while the process lives.

    `parent` is a pid on the node, 0 where the parent is not seen from there; `inner_pid` is the process's pid
    in its own pid namespace.
    """

    pid: int
    pod_uid: str
    container_id: str | None
    namespace_inode: int
    parent: int
    inner_pid: int
    name: str


def identity_of(pid: int) -> CgroupIdentity:
    """What the process's cgroup path says; nothing for a process that is gone or no workload."""
    try:
        lines = (PROC / str(pid) / "cgroup").read_text(errors="replace")
    except OSError:
        return CgroupIdentity()
    identity = identity_of_process(lines)
    return CgroupIdentity() if identity.monitor else identity


def pod_of_process(pid: int) -> str | None:
    """The UID in the process's cgroup path; None for a process that is gone or belongs to no pod."""
    return identity_of(pid).pod_uid


def pod_processes() -> Iterator[PodProcess]:
    """Every process of every pod on the node that has not ended."""
    for entry in os.listdir(PROC):
        if not entry.isdigit():
            continue
        pid = int(entry)
        identity = identity_of(pid)
        if identity.pod_uid is None:
            continue
        status = _status(pid)
        try:
            inode = (PROC / entry / "ns/net").stat().st_ino
        except OSError:
            continue
        yield PodProcess(
            pid=pid,
            pod_uid=identity.pod_uid,
            container_id=identity.container_id,
            namespace_inode=inode,
            parent=int(status.get("PPid", "0")),
            inner_pid=int(status.get("NSpid", "0").split()[-1]),
            name=status.get("Name", ""),
        )


def own_namespace_inode() -> int:
    """The inode of this process's own network namespace."""
    return (PROC / "self/ns/net").stat().st_ino


def started_at(pid: int) -> int:
    """Clock ticks from the start of the node to that of the process (field 22 of stat); 0 when it is gone."""
    try:
        line = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return 0
    # The name, in parentheses, can hold anything.
    return int(line.rpartition(")")[2].split()[19])


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
    return len(_status(pid).get("NSpid", "").split())


def _parent(pid: int) -> int:
    return int(_status(pid).get("PPid", "0"))


def _status(pid: int) -> dict[str, str]:
    """The fields of /proc/PID/status; none when the process is gone."""
    try:
        text = (PROC / str(pid) / "status").read_text(errors="replace")
    except OSError:
        return {}
    fields = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, _, value in fields}


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
