"""`agent replay`: folders of recorded watches, files that are none, and what it says of both."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from agent.cli import main
from agent.core.boundaries import Boundary
from tests.recordings.reader import RECORDINGS, recorded_deletions

FOLDERS = RECORDINGS / "deletions"


def replayed_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert main(["replay", str(folder), "-o", "json"]) == 0
    ends: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return ends


@pytest.mark.parametrize("case", recorded_deletions())
def test_every_recorded_folder_replays_without_a_complaint(
    case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for form in ("text", "json", "metrics"):
        assert main(["replay", str(FOLDERS / case), "-o", form]) == 0
        told = capsys.readouterr()
        assert told.err == ""
        assert max(map(len, told.out.splitlines())) <= 100 or form != "text"


def test_the_json_of_a_termination_has_every_boundary_and_null_for_what_nobody_saw(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (end,) = replayed_json(FOLDERS / "prestop-fails", capsys)
    assert list(end["boundaries"]) == [boundary.value for boundary in Boundary]
    assert end["boundaries"]["stop_signal"] is None
    assert (end["drops"], end["late"]) == (None, None)
    assert end["boundaries"]["prestop_ended"] == {
        "at": "2026-11-30T01:12:57.775837931Z",
        "seconds": 0.061294,
        "source": "event",
        "not_before": "2026-11-30T01:12:57.000000000Z",
    }
    (container,) = end["containers"]
    assert container["prestop"]["outcome"] == "failed"
    assert end["phases"][0] == {"phase": "prestop", "began": 0.0, "ended": None, "seconds": None}
    assert end["stages"]["kube_proxy"] == {
        "seconds": None,
        "witness": None,
        "missing": "nobody watched this node's kube-proxy",
    }


def test_a_missing_watch_is_named_and_what_it_would_tell_stays_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(FOLDERS / "prestop-fails" / "watch-pods.jsonl", tmp_path)
    (tmp_path / "milestones.txt").write_text("not for replay")
    assert main(["replay", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert told.err.splitlines() == [
        f"agent replay: {tmp_path / name} is missing: what it would tell stays unknown"
        for name in ("watch-endpointslices.jsonl", "watch-events.jsonl")
    ]
    assert "lag endpointslice: unknown" in told.out


def test_a_damaged_line_is_named_and_costs_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(FOLDERS / "prestop-fails", tmp_path, dirs_exist_ok=True)
    file = tmp_path / "watch-pods.jsonl"
    good = file.read_text().splitlines(keepends=True)
    damaged = ["{\n", "[]\n", '{"recv_ns": 1, "event": {"type": "SNEEZED", "object": {}}}\n', *good]
    file.write_text("".join(damaged))
    assert main(["replay", str(tmp_path)]) == 0
    told = capsys.readouterr()
    complaints = told.err.splitlines()
    assert [line.split(" is passed over: ")[0] for line in complaints] == [
        f"agent replay: {file}:{number}" for number in (1, 2, 3)
    ]
    assert told.out.endswith("1 termination in 7 records of node node1\n")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "No such file or directory"),
        (b"", "this is no recording of agent run --record"),
        (b"\xff\xfe\x00junk\n", "this is no recording of agent run --record"),
    ],
)
def test_what_is_no_recording_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, complaint: str
) -> None:
    file = tmp_path / "recording"
    if content is not None:
        file.write_bytes(content)
    assert main(["replay", str(file)]) == 1
    assert capsys.readouterr().err == f"agent replay: {file}: {complaint}\n"


def test_a_folder_without_watches_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"agent replay: {tmp_path} has no recorded watches")
    assert told.count("\n") == 1


def copied(case: str, folder: Path, name: str, **spec: object) -> str:
    """The pods of a recorded folder, with another UID and name, and more in their specification."""
    lines = []
    for line in (FOLDERS / case / "watch-pods.jsonl").read_text().splitlines():
        entry = json.loads(line)
        pod = entry["event"]["object"]
        pod["metadata"].update(uid=name, name=name)
        pod["spec"].update(spec)
        lines.append(json.dumps(entry) + "\n")
    file = folder / "watch-pods.jsonl"
    file.write_text((file.read_text() if file.exists() else "") + "".join(lines))
    return str(entry["event"]["object"]["metadata"]["namespace"])


def test_a_folder_with_pods_of_two_nodes_tells_of_both_each_by_its_own_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(FOLDERS / "prestop-fails", tmp_path, dirs_exist_ok=True)
    copied("prestop-fails", tmp_path, "elsewhere", nodeName="node2")
    slices = tmp_path / "watch-endpointslices.jsonl"
    with slices.open("a") as file:
        for line in slices.read_text().splitlines():
            entry = json.loads(line)
            entry["event"]["object"]["metadata"].update(name="elsewhere", uid="slice-elsewhere")
            for endpoint in entry["event"]["object"].get("endpoints") or ():
                endpoint.update(
                    nodeName="node2", targetRef={"kind": "Pod", "uid": "elsewhere", "name": "elsewhere"}
                )
            file.write(json.dumps(entry) + "\n")
    ends = replayed_json(tmp_path, capsys)
    assert {end["node"]: end["pod"] == "elsewhere" for end in ends} == {"node1": False, "node2": True}
    here, there = (end["stages"]["endpointslice"]["seconds"] for end in ends)
    assert here == there is not None
    assert main(["replay", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith(" records of nodes node1, node2\n")


@pytest.mark.parametrize("form", ["text", "json", "metrics"])
def test_pods_on_their_nodes_own_network_are_named_as_left_out(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("watch-endpointslices.jsonl", "watch-events.jsonl"):
        shutil.copy(FOLDERS / "prestop-fails" / name, tmp_path)
    for number in range(4):
        namespace = copied("prestop-fails", tmp_path, f"host-{number}", hostNetwork=True)
    assert main(["replay", "-o", form, str(tmp_path)]) == 0
    names = ", ".join(f"{namespace}/host-{number}" for number in range(3))
    assert capsys.readouterr().err == (
        f"agent replay: left out, being on the node's own network (hostNetwork): {names} and 1 more\n"
    )
