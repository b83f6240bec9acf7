"""Recorded pod watches -> records; needs nothing."""

import itertools

import pytest

from agent.cluster.pods import NodePods
from agent.cluster.watch_event import Change
from agent.core.records import ClusterRecord, PodChanged, PodRemoved, PodsListed
from tests.cluster.api_server import a_pod
from tests.recordings.reader import recorded_deletions, recorded_events


def played(case: str) -> list[ClusterRecord]:
    told: list[ClusterRecord] = []
    pods = NodePods(told.append)
    for event in recorded_events(f"deletions/{case}/watch-pods.jsonl"):
        pods.changed(Change(event.type), event.object, event.at_ns)
    return told


def first_deletions(told: list[ClusterRecord]) -> dict[str, tuple[int, int]]:
    """By pod name: (requested, seen) in nanoseconds of the record that first told of the deletion."""
    found: dict[str, tuple[int, int]] = {}
    for record in told:
        if isinstance(record, PodChanged) and record.pod.deletion_requested_ns is not None:
            found.setdefault(record.pod.name, (record.pod.deletion_requested_ns, record.at_ns))
    return found


@pytest.mark.parametrize("case", recorded_deletions())
def test_each_deleted_pod_is_told_within_its_second_and_removed_last(case: str) -> None:
    told = played(case)
    removed = {record.uid for record in told if isinstance(record, PodRemoved)}
    last = {record.pod.name: record.pod for record in told if isinstance(record, PodChanged)}
    for name, (requested_ns, seen_ns) in first_deletions(told).items():
        assert 0 <= seen_ns - requested_ns < 1_100_000_000
        assert last[name].deletion_requested_ns == requested_ns
        gone = [
            index for index, record in enumerate(told) if record == PodRemoved(record.at_ns, last[name].uid)
        ]
        assert len(gone) == (last[name].uid in removed)
    assert removed <= {last[name].uid for name in first_deletions(told)}


def test_events_that_change_nothing_of_interest_are_not_told() -> None:
    told = played("prestop-sleep")
    assert len(told) < len(list(recorded_events("deletions/prestop-sleep/watch-pods.jsonl")))
    changed = [record.pod for record in told if isinstance(record, PodChanged)]
    assert all(one != other for one, other in itertools.pairwise(changed))


def test_a_force_deleted_pod_is_removed_while_it_runs() -> None:
    told = played("force-delete")
    assert [type(record) for record in told] == [PodChanged, PodRemoved]
    assert isinstance(told[0], PodChanged)
    assert told[0].pod.grace_seconds == 0
    assert told[0].pod.containers[0].running


def test_an_agent_that_missed_the_deletion_learns_it_from_the_last_state() -> None:
    *_, last = recorded_events("deletions/exits-at-once/watch-pods.jsonl")
    told: list[ClusterRecord] = []
    NodePods(told.append).changed(Change.DELETED, last.object, last.at_ns)
    assert [type(record) for record in told] == [PodChanged, PodRemoved]


def test_what_a_list_no_longer_has_is_removed() -> None:
    told: list[ClusterRecord] = []
    pods = NodePods(told.append)
    first, *_ = recorded_events("deletions/liveness-restart/watch-pods.jsonl")
    pods.listed((first.object,), 1)
    pods.listed((), 2)
    uid = first.object["metadata"]["uid"]
    assert told[1:] == [PodsListed(1), PodRemoved(2, uid), PodsListed(2)]


def test_a_listed_pod_that_is_no_longer_understood_is_not_taken_for_gone() -> None:
    told: list[ClusterRecord] = []
    pods = NodePods(told.append)
    first, *_ = recorded_events("deletions/liveness-restart/watch-pods.jsonl")
    pods.listed((first.object,), 1)
    pods.listed(({**first.object, "spec": "junk"},), 2)
    assert told[1:] == [PodsListed(1), PodsListed(2)]


def test_a_pod_on_the_nodes_own_network_is_said_to_be_left_out_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    pod = a_pod("kube-proxy-x")
    pod["spec"]["hostNetwork"] = True
    told: list[ClusterRecord] = []
    pods = NodePods(told.append)
    for at_ns in (1, 2):
        pods.listed((pod,), at_ns)
    assert [record.getMessage() for record in caplog.records] == [
        "left out, being on the node's own network: pod shop/kube-proxy-x"
    ]
