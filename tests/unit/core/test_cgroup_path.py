"""Cgroup paths as kubelets and runtimes write them; needs nothing."""

import csv

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.cgroup_path import CgroupIdentity, identity_of_path, identity_of_process
from tests.recordings.reader import RECORDINGS

UID = "52fcb0a0-6d78-402e-96ea-509af98f4722"
CONTAINER = "3f05ee050f82c0145f1d88c94269c39dff0f07dbf8bba20aafd54b3a75dcaecc"
OTHER = "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"

with open(RECORDINGS / "node/cgroup-lines.tsv", encoding="utf-8", newline="") as table:
    REPORTED = list(csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.mark.parametrize("row", REPORTED, ids=[f"{row['n']} {row['source']}" for row in REPORTED])
def test_a_reported_path_gives_its_pod_and_container(row: dict[str, str]) -> None:
    text = row["text"].replace("\\n", "\n")
    found = identity_of_path(text) if row["form"] == "path" else identity_of_process(text)
    assert (found.pod_uid or "", found.container_id or "") == (row["pod_uid"], row["container_id"])
    assert found.monitor == (row["role"] == "conmon")


@pytest.mark.parametrize("line", (RECORDINGS / "node/qos-cgroup-paths.txt").read_text().splitlines())
def test_containers_of_a_real_node_are_found(line: str) -> None:
    path = line.split("\t")[2]
    found = identity_of_path(path)
    assert found.pod_uid == path.split("/pod")[1][:36]
    assert found.container_id == path.rpartition("/")[2]


@pytest.mark.parametrize("line", (RECORDINGS / "node/systemd-driver-names.txt").read_text().splitlines())
def test_both_drivers_names_of_a_pod_give_the_same_uid(line: str) -> None:
    paths = [word for word in line.split() if word.startswith("/")]
    assert paths
    assert {identity_of_path(path) for path in paths} == {CgroupIdentity(pod_uid=UID)}


def test_a_container_id_before_the_pod_is_the_nodes() -> None:
    assert identity_of_path(f"/docker/{OTHER}/kubepods/pod{UID}") == CgroupIdentity(pod_uid=UID)


def test_a_removed_cgroup_keeps_its_identity() -> None:
    found = identity_of_process(f"0::/kubepods/pod{UID}/{CONTAINER} (deleted)\n")
    assert found == CgroupIdentity(pod_uid=UID, container_id=CONTAINER)


def test_the_version_2_line_alone_is_not_trusted() -> None:
    lines = (
        f"0::/system.slice/containerd.service\n4:memory:/kubepods/pod{UID}/{CONTAINER}\n1:name=systemd:/\n"
    )
    assert identity_of_process(lines) == CgroupIdentity(pod_uid=UID, container_id=CONTAINER)


def test_a_line_with_a_container_wins_over_one_of_the_pod_alone() -> None:
    lines = f"5:pids:/kubepods/pod{UID}\n4:memory:/kubepods/pod{UID}/{CONTAINER}\n"
    assert identity_of_process(lines) == CgroupIdentity(pod_uid=UID, container_id=CONTAINER)


def test_a_monitor_inside_the_pods_slice_is_not_the_workload() -> None:
    slice_ = f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice"
    assert identity_of_path(f"{slice_}/crio-conmon-{CONTAINER}.scope").monitor
    assert not identity_of_path(f"{slice_}/crio-{CONTAINER}.scope").monitor


@pytest.mark.parametrize("text", ["", "\n", "0::", "nonsense", "1:2", ":::", "12:memory", "0::/\0"])
def test_what_is_no_cgroup_file_says_nothing(text: str) -> None:
    assert identity_of_process(text) == CgroupIdentity()


@given(st.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    for found in (identity_of_path(text), identity_of_process(text)):
        assert found.pod_uid is None or len(found.pod_uid) in (32, 36)
        assert found.container_id is None or len(found.container_id) == 64


@given(
    prefix=st.lists(st.sampled_from(["kubelet", "system.slice", OTHER, f"pod{UID[::-1]}", ".."])),
    suffix=st.sampled_from(["", "/container", "/init/x", " (deleted)"]),
    uid=st.uuids(),
    systemd=st.booleans(),
)
def test_any_nesting_gives_the_innermost_pod(
    prefix: list[str], suffix: str, uid: object, systemd: bool
) -> None:
    own = (
        f"kubepods-burstable-pod{str(uid).replace('-', '_')}.slice/cri-containerd-{CONTAINER}.scope"
        if systemd
        else f"kubepods/burstable/pod{uid}/{CONTAINER}"
    )
    path = "/".join(["", *prefix, own]) + suffix
    expected = CgroupIdentity(pod_uid=str(uid), container_id=CONTAINER)
    assert identity_of_path(path) == expected
    assert identity_of_process(f"0::/\n7:cpu,cpuacct:{path}\n") == expected


@given(
    row=st.sampled_from(REPORTED),
    around=st.lists(st.text(max_size=40).filter(lambda line: "pod" not in line), max_size=6),
    place=st.integers(0, 6),
)
def test_lines_of_other_hierarchies_do_not_hide_a_reported_line(
    row: dict[str, str], around: list[str], place: int
) -> None:
    if row["form"] == "path" or not (row["pod_uid"] and row["container_id"]):
        return
    own = row["text"].replace("\\n", "\n")
    found = identity_of_process("\n".join([*around[:place], own, *around[place:]]))
    assert (found.pod_uid, found.container_id) == (row["pod_uid"], row["container_id"])


@given(
    row=st.sampled_from(REPORTED), start=st.integers(0, 400), cut=st.integers(0, 60), put=st.text(max_size=8)
)
def test_a_damaged_line_gives_no_identity_that_is_not_written_in_it(
    row: dict[str, str], start: int, cut: int, put: str
) -> None:
    whole = row["text"].replace("\\n", "\n")
    text = whole[:start] + put + whole[start + cut :]
    found = identity_of_process(text)
    assert found.container_id is None or found.container_id in text
    assert found.pod_uid is None or found.pod_uid in text.replace("_", "-")
