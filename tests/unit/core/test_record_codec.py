"""Records as lines of a recording and back: every record, and nothing else."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.record_codec import ENTRIES, RecordedEntry, UnknownEntryError, from_json, to_json
from agent.core.recording import (
    PassedOver,
    RecordingHeader,
    entry_line,
    header_line,
    parse_entries,
    parse_header,
)
from agent.core.records import NamespaceIdentified, PodChanged
from tests.unit.core.lives import a_pod
from tests.unit.core.test_recorded_lives import cluster_records

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
st.register_type_strategy(str, TEXT)
st.register_type_strategy(float, st.floats(-1e15, 1e15))
st.register_type_strategy(int, st.integers(-(2**63), 2**64 - 1))
ENTRY = st.one_of([st.from_type(kind) for kind in ENTRIES.values()])


@settings(max_examples=300, deadline=None)
@given(ENTRY)
def test_every_record_comes_back_as_it_was(entry: RecordedEntry) -> None:
    assert from_json(json.loads(entry_line(entry))) == entry


def test_recorded_lives_come_back_as_they_were() -> None:
    records = cluster_records("rollout-no-prestop")
    assert [from_json(to_json(record)) for record in records] == records


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(ENTRY, st.data())
def test_a_damaged_record_is_refused_in_one_line_or_read(entry: RecordedEntry, data: st.DataObject) -> None:
    value: dict[str, Any] = json.loads(entry_line(entry))
    field = data.draw(st.sampled_from(sorted(value)))
    if data.draw(st.booleans()):
        value[field] = data.draw(JUNK)
    else:
        del value[field]
    passed_over = PassedOver()
    read = list(parse_entries([json.dumps(value) + "\n"], passed_over))
    assert len(read) + passed_over.unknown + passed_over.damaged == 1
    assert "\n" not in (passed_over.first_damage or "")


@given(JUNK)
def test_what_is_no_record_is_refused_in_one_line(value: object) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        from_json(value)


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "1e999", "1e300", "1" * 400, "18446744073709551616"]
)
@pytest.mark.parametrize("field", ["at_ns", "netns"])
def test_a_number_that_no_agent_writes_is_refused(field: str, number: str) -> None:
    passed_over = PassedOver()
    line = entry_line(NamespaceIdentified(1, 2, "uid"))
    damaged = line.replace(f'"{field}":{1 if field == "at_ns" else 2}', f'"{field}":{number}')
    assert damaged != line
    assert list(parse_entries([damaged], passed_over)) == []
    assert passed_over.damaged == 1


@pytest.mark.parametrize("seconds", ["NaN", "Infinity", "1e300", "1" * 400, "true", '"30"'])
def test_a_length_of_time_that_no_agent_writes_is_refused(seconds: str) -> None:
    line = entry_line(PodChanged(1, a_pod()))
    damaged = line.replace('"grace_seconds":30', f'"grace_seconds":{seconds}')
    assert damaged != line
    with pytest.raises(ValueError, match=r"^PodChanged\.pod\.grace_seconds is not what it should be: .*$"):
        from_json(json.loads(damaged))


def test_a_text_that_cannot_be_written_out_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^NamespaceIdentified\.pod_uid is not what it should be: .*ud800'$"
    ):
        from_json({"record": "NamespaceIdentified", "at_ns": 1, "netns": 2, "pod_uid": "\ud800"})


def test_a_record_of_a_newer_version_is_told_apart_from_a_damaged_one() -> None:
    with pytest.raises(UnknownEntryError, match=r"^unknown record 'PodSneezed'$"):
        from_json({"record": "PodSneezed", "at_ns": 1})


def test_what_a_newer_version_has_added_to_a_record_is_passed_over() -> None:
    record = NamespaceIdentified(1, 2, "uid")
    assert from_json({**to_json(record), "mood": "calm"}) == record


HEADER = RecordingHeader("node-1", "1.2.3", 600.0)


def test_the_header_comes_back_as_it_was() -> None:
    assert parse_header(header_line(HEADER)) == HEADER


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("", "this is no recording of agent run --record"),
        ("[" * 100_000, "this is no recording of agent run --record"),
        ('{"recv_ns": 1}', "this is no recording of agent run --record"),
        ('{"lastcall_recording": 2}', "the recording has format 2, this version reads 1"),
        ('{"lastcall_recording": 1, "node": "n"}', "the header of the recording is damaged"),
        *(
            (header_line(HEADER).replace(whole, broken), "the header of the recording is damaged")
            for whole, broken in (
                ("600.0", "Infinity"),
                ("600.0", "NaN"),
                ("600.0", "-1"),
                ("600.0", "1" * 400),
                ("600.0", "true"),
                ("[]", '["10.0.0.256"]'),
                ("[]", "[1]"),
                ("[]", "null"),
                ('"node-1"', "[]"),
            )
        ),
    ],
)
def test_a_file_that_is_no_recording_is_refused_in_one_line(line: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=f"^{complaint}$"):
        parse_header(line)


def test_lines_that_cannot_be_used_are_counted_and_cost_no_others() -> None:
    good = entry_line(NamespaceIdentified(1, 2, "uid"))
    passed_over = PassedOver()
    lines = [
        good,
        "junk\n",
        '{"record":"PodSneezed"}\n',
        '{"record":"PodRemoved","at_ns":"x"}\n',
        good,
        good[:-9],
    ]
    assert len(list(parse_entries(lines, passed_over))) == 2
    assert (passed_over.unknown, passed_over.damaged, passed_over.torn) == (1, 2, True)
    assert passed_over.first_damage is not None
    assert passed_over.first_damage.startswith("line 3: ")
