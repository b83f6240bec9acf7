from pathlib import Path

import pytest

from agent.lab.node.cgroup import CgroupDriver, cgroup2_mount, container_cgroup

UID = "3b49e717-c994-44e7-a5b7-253464492890"
CONTAINER = "0fd06d34a4e43629a366204c3115bc625e757fd9f6714c00298c1a1f6227f8f6"

HYBRID = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
UNIFIED = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"


@pytest.mark.parametrize(
    ("mountinfo", "mount"),
    [
        (HYBRID, Path("/sys/fs/cgroup/unified")),
        (UNIFIED, Path("/sys/fs/cgroup")),
        ("30 23 0:26 / /a\\040b rw - cgroup2 none rw\n", Path("/a b")),
        ("39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n", None),
    ],
)
def test_the_v2_hierarchy_is_found_wherever_it_is_mounted(mountinfo: str, mount: Path | None) -> None:
    assert cgroup2_mount(mountinfo) == mount


def test_names_are_those_of_the_kubelet() -> None:
    assert str(container_cgroup(CgroupDriver.CGROUPFS, UID, CONTAINER)) == (
        f"kubepods/burstable/pod{UID}/{CONTAINER}"
    )
    assert str(container_cgroup(CgroupDriver.SYSTEMD, UID, CONTAINER)) == (
        f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice/"
        f"cri-containerd-{CONTAINER}.scope"
    )
