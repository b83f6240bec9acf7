import errno
import re
import time
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from agent.lab.node.errors import NodeError
from agent.lab.node.lease import Lease
from agent.lab.node.leftover import LeftoverKind

REMOVAL_TIMEOUT_S = 2.0


class CgroupDriver(StrEnum):
    """How the kubelet names cgroups: by itself, or through systemd."""

    CGROUPFS = "cgroupfs"
    SYSTEMD = "systemd"


def cgroup2_mount(mountinfo: str) -> Path | None:
    """The mount point of the cgroup v2 hierarchy in the text of /proc/self/mountinfo (see proc(5))."""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        if after.split(" ", 1)[0] == "cgroup2":
            mount_point = before.split(" ")[4]
            return Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), mount_point))
    return None


def pod_cgroup(driver: CgroupDriver, uid: str) -> Path:
    """A burstable pod's cgroup, relative to the hierarchy's root."""
    if driver is CgroupDriver.CGROUPFS:
        return Path("kubepods", "burstable", f"pod{uid}")
    slice_name = f"kubepods-burstable-pod{uid.replace('-', '_')}.slice"
    return Path("kubepods.slice", "kubepods-burstable.slice", slice_name)


def container_cgroup(driver: CgroupDriver, uid: str, container_id: str) -> Path:
    """A container's cgroup, relative to the hierarchy's root."""
    name = container_id if driver is CgroupDriver.CGROUPFS else f"cri-containerd-{container_id}.scope"
    return pod_cgroup(driver, uid) / name


class Cgroups:
    """The pods' cgroups on this machine's v2 hierarchy."""

    def __init__(self, lease: Lease, driver: CgroupDriver = CgroupDriver.CGROUPFS) -> None:
        """Raises NodeError if no cgroup v2 hierarchy is mounted."""
        root = cgroup2_mount(Path("/proc/self/mountinfo").read_text())
        if root is None:
            raise NodeError("cgroup v2 is not mounted: mount -t cgroup2 none /sys/fs/cgroup/unified")
        self.root = root
        self.driver = driver
        self._lease = lease

    def create_container(self, uid: str, container_id: str) -> Path:
        """Make the container's cgroup and those above it; returns its absolute path."""
        relative = container_cgroup(self.driver, uid, container_id)
        for folder in [*reversed(relative.parents[:-1]), relative]:
            path = self.root / folder
            if not path.is_dir():
                self._lease.note(LeftoverKind.CGROUP, str(path))
                try:
                    path.mkdir(exist_ok=True)
                except OSError as error:
                    raise NodeError(f"cannot make the cgroup {path}: {error.strerror}") from None
        return self.root / relative

    def remove_container(self, path: Path) -> None:
        """Remove a container's cgroup once its last process is reaped; else the lease does it."""
        deadline = time.monotonic() + REMOVAL_TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                path.rmdir()
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                time.sleep(0.01)
            else:
                return

    def remove_pod(self, uid: str) -> None:
        """Remove the pod's own cgroup if its containers' are gone."""
        with suppress(OSError):
            (self.root / pod_cgroup(self.driver, uid)).rmdir()
