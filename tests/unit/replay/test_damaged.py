"""Damaged recordings and folders: what is whole is replayed, the rest is named, and nothing raises."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.cli import main
from agent.core.observation import Observation
from agent.core.orders import Order
from agent.core.recording import RecordingHeader, entry_line, header_line
from agent.core.records import EndpointTerminating, PodsListed, Record
from agent.replay.watch_folder import read_watch_folder
from tests.recordings.reader import RECORDINGS
from tests.unit.core.test_recorded_lives import streams

FOLDER = RECORDINGS / "deletions" / "prestop-fails"
FORMS = ("text", "json", "metrics")
HEADER = RecordingHeader("node1", "1", 600.0)


def whole_recording() -> list[str]:
    cluster, kernel = streams("prestop-sleep")
    records = sorted([*cluster, *kernel], key=lambda record: record.at_ns)
    return [header_line(HEADER), *map(entry_line, records)]


WHOLE = whole_recording()
READY = {"ready": True, "terminating": False}
TERMINATING = {"ready": False, "terminating": True}
HOSTILE: st.SearchStrategy[Any] = st.sampled_from(
    [
        *(None, True, -1, 0, 2**31, 2**63, 2**64, 10**30, 10**400, 0.5, 1e300),
        *("", "x\ny", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "\ud800"),
        *([], {}, [[]], {"a": {}}),
    ]
)


def damaged_value(data: st.DataObject, value: Any) -> Any:
    """The value with something hostile somewhere in it."""
    if isinstance(value, dict) and value and data.draw(st.integers(0, 3)):
        key = data.draw(st.sampled_from(sorted(value)))
        if data.draw(st.integers(0, 6)):
            return {**value, key: damaged_value(data, value[key])}
        return {name: content for name, content in value.items() if name != key}
    if isinstance(value, list) and value and data.draw(st.integers(0, 3)):
        index = data.draw(st.integers(0, len(value) - 1))
        return [*value[:index], damaged_value(data, value[index]), *value[index + 1 :]]
    return data.draw(HOSTILE)


def damaged_line(data: st.DataObject, line: str) -> str:
    match data.draw(st.sampled_from(["value", "value", "value", "cut", "junk", "twice", "lost"])):
        case "value":
            return json.dumps(damaged_value(data, json.loads(line))) + "\n"
        case "cut":
            return line[: data.draw(st.integers(0, len(line)))]
        case "junk":
            return data.draw(st.text(max_size=20)) + "\n"
        case "twice":
            return line * 2
    return ""


def damaged(data: st.DataObject, lines: list[str]) -> bytes:
    places = data.draw(st.sets(st.integers(0, len(lines) - 1), min_size=1, max_size=4))
    written = [damaged_line(data, line) if at in places else line for at, line in enumerate(lines)]
    return "".join(written).encode(errors="surrogatepass")


def replayed_without_a_traceback(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for form in FORMS:
        assert main(["replay", str(path), "-o", form]) in (0, 1)
        told = capsys.readouterr()
        assert "Error:" not in told.err, told.err
        assert all(line.startswith("agent replay: ") for line in told.err.splitlines())


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_damage_to_a_recording_raises(capsys: pytest.CaptureFixture[str], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "recording"
        file.write_bytes(damaged(data, WHOLE))
        replayed_without_a_traceback(file, capsys)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_damage_to_a_folder_raises(capsys: pytest.CaptureFixture[str], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in data.draw(st.lists(st.sampled_from(sorted(FOLDER.iterdir())), min_size=1, unique=True)):
            lines = name.read_text().splitlines(keepends=True)
            (Path(folder) / name.name).write_bytes(damaged(data, lines))
        replayed_without_a_traceback(Path(folder), capsys)


def test_a_record_that_the_agent_could_not_join_is_passed_over_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = Observation.apply

    def fails_at_lists(observation: Observation, record: Record) -> list[Order]:
        if isinstance(record, PodsListed):
            raise KeyError("web")
        return joined(observation, record)

    monkeypatch.setattr(Observation, "apply", fails_at_lists)
    file = tmp_path / "recording"
    file.write_text("".join([WHOLE[0], entry_line(PodsListed(1)), *WHOLE[1:], entry_line(PodsListed(2))]))
    assert main(["replay", str(file)]) == 0
    told = capsys.readouterr()
    assert told.err == (
        f"agent replay: {file}: passed over 2 records, as the agent did; please report the first: "
        "PodsListed: KeyError: 'web'\n"
    )
    assert "1 termination in " in told.out


def test_a_file_of_junk_costs_ten_lines_and_a_sum(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)
    (tmp_path / "watch-events.jsonl").write_text("junk\n" * 5000)
    assert main(["replay", str(tmp_path)]) == 0
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 11
    assert told[-1] == f"agent replay: {tmp_path}/watch-events.jsonl: 5000 lines are passed over in all"


def test_services_of_the_same_name_in_two_namespaces_are_told_apart(tmp_path: Path) -> None:
    def a_slice(namespace: str, version: int, *conditions: dict[str, bool]) -> str:
        endpoints = [
            {
                "addresses": [f"10.0.0.{number}"],
                "conditions": each,
                "nodeName": "node1",
                "targetRef": {"kind": "Pod", "uid": f"{namespace}-{number}"},
            }
            for number, each in enumerate(conditions)
        ]
        metadata = {
            "name": "web-1",
            "namespace": namespace,
            "uid": f"slice-{namespace}",
            "resourceVersion": str(version),
            "labels": {"kubernetes.io/service-name": "web"},
        }
        event = {"type": "MODIFIED", "object": {"metadata": metadata, "endpoints": endpoints}}
        return json.dumps({"recv_ns": version, "event": event}) + "\n"

    lines = [a_slice("one", 1, READY), a_slice("two", 2, READY), a_slice("one", 3, TERMINATING)]
    (tmp_path / "watch-endpointslices.jsonl").write_text("".join(lines))
    a_pod = {"recv_ns": 0, "event": {"type": "ADDED", "object": {"spec": {"nodeName": "node1"}}}}
    (tmp_path / "watch-pods.jsonl").write_text(json.dumps(a_pod))
    assert list(read_watch_folder(tmp_path).records()) == [
        EndpointTerminating(3, "one-0", "web", removed=False, ready_left=0)
    ]
