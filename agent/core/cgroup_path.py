"""Which pod and container a cgroup belongs to, read from its path.

The shapes of kubelet's and the runtimes' paths: cgroupfs `.../pod<uid>/<id>`, systemd
`...-pod<uid with _>.slice/<runtime>-<id>.scope`, and the mixed form `...-pod<uid>.slice:<runtime>:<id>`.
"""

import re
from dataclasses import dataclass

_POD_UID = re.compile(
    r"(?<![0-9A-Za-z])pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?![0-9a-f])"
)
_CONTAINER_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_MONITOR = re.compile(r"crio-conmon-[0-9a-f]{64}")
_REMOVED = " (deleted)"


@dataclass(frozen=True, slots=True)
class CgroupIdentity:
    """What a cgroup path says. `pod_uid` has dashes, but a static pod's is 32 hex digits: a hash.

    A container id without a pod UID is not proof of a container outside Kubernetes: inside a cgroup namespace
    the pod's part of the path is cut off. `monitor` marks CRI-O's conmon, which is not the workload.
    """

    pod_uid: str | None = None
    container_id: str | None = None
    monitor: bool = False


def identity_of_path(path: str) -> CgroupIdentity:
    """The identity that one cgroup path carries; the last pod in it wins, since nodes can be containers."""
    path = path.removesuffix(_REMOVED)
    pods = list(_POD_UID.finditer(path))
    start = pods[-1].end() if pods else 0
    containers = _CONTAINER_ID.findall(path, start)
    return CgroupIdentity(
        pod_uid=pods[-1]["uid"].replace("_", "-") if pods else None,
        container_id=containers[-1] if containers else None,
        monitor=_MONITOR.search(path, start) is not None,
    )


def identity_of_process(cgroup_file: str) -> CgroupIdentity:
    """The identity that the lines of /proc/PID/cgroup carry together.

    On a hybrid host the pod may be in the lines of the version 1 hierarchies only, so the line that knows
    most is taken, whichever hierarchy it is of. Lines that are not `id:controllers:path` are passed over.
    """
    identities = [
        identity_of_path(fields[2])
        for line in cgroup_file.splitlines()
        if len(fields := line.split(":", maxsplit=2)) == 3
    ]
    return max(
        identities,
        key=lambda identity: (identity.pod_uid is not None, identity.container_id is not None),
        default=CgroupIdentity(),
    )
