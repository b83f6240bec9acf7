"""Events -> records of what the kubelet does to containers: recorded ones, junk, and a watch on request."""

import pytest

from agent.cluster.events import NamespaceEvents
from agent.cluster.watch_event import Change
from agent.core.records import ClusterRecord, EventReason, PodEventSeen
from tests.recordings.reader import recorded_events

SECOND = 10**9


def played(case: str) -> list[PodEventSeen]:
    told: list[ClusterRecord] = []
    events = NamespaceEvents(told.append)
    for event in recorded_events(f"deletions/{case}/watch-events.jsonl"):
        events.changed(Change(event.type), event.object, event.at_ns)
    return [record for record in told if isinstance(record, PodEventSeen)]


@pytest.mark.parametrize(
    ("case", "told"),
    [
        ("exits-at-once", [EventReason.KILLING]),
        ("prestop-fails", [EventReason.KILLING, EventReason.FAILED_PRESTOP_HOOK]),
        ("liveness-restart", [EventReason.UNHEALTHY, EventReason.KILLING, EventReason.UNHEALTHY]),
    ],
)
def test_only_what_the_kubelet_says_of_the_end_of_a_container_is_told(
    case: str, told: list[EventReason]
) -> None:
    records = played(case)
    assert [record.reason for record in records] == told
    assert {record.container for record in records} == {"app"}


def test_an_event_keeps_the_time_of_its_receipt_and_its_own() -> None:
    killing = played("prestop-fails")[0]
    assert (killing.at_ns, killing.stamped_ns) == (1796001177732152551, 1796001177 * SECOND)
    assert killing.message == "Stopping container app"


def test_an_event_that_is_repeated_is_told_once_and_a_counted_up_one_again() -> None:
    told: list[ClusterRecord] = []
    events = NamespaceEvents(told.append)
    recorded = list(recorded_events("deletions/readiness-flip/watch-events.jsonl"))
    for event in (*recorded, *recorded):
        events.changed(Change(event.type), event.object, event.at_ns)
    assert len(told) == len(recorded) == 5


def test_an_event_that_the_api_server_forgets_is_not_told() -> None:
    told: list[ClusterRecord] = []
    events = NamespaceEvents(told.append)
    for event in recorded_events("deletions/prestop-fails/watch-events.jsonl"):
        events.changed(Change.DELETED, event.object, event.at_ns)
    assert told == []


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"metadata": {"uid": "u"}, "reason": 7},
        {"metadata": {"uid": "u"}, "reason": "Killing", "involvedObject": []},
        {
            "metadata": {"uid": "u"},
            "reason": "Killing",
            "involvedObject": {"kind": "Pod", "uid": "p"},
            "lastTimestamp": "soon",
        },
    ],
)
def test_junk_is_ignored_with_one_line(event: dict[str, object], caplog: pytest.LogCaptureFixture) -> None:
    told: list[ClusterRecord] = []
    NamespaceEvents(told.append).listed((event,), 1)
    assert told == []
    assert [record.getMessage().startswith("ignoring an event: ") for record in caplog.records] == [True]
