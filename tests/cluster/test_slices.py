"""EndpointSlices -> terminating endpoints: recorded ones, and a watch on request; needs loopback only."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.cluster.endpoints import NamespaceEndpoints, slice_of
from agent.cluster.slices import NamespaceSlices, watch_slices
from agent.cluster.watch_event import Change
from agent.core.records import ClusterRecord, EndpointTerminating
from agent.lab.controlplane.api import ApiServer
from agent.lab.controlplane.resources import ENDPOINT_SLICES, JsonObject
from tests.cluster.api_server import NODE, QUICK, connection_to
from tests.cluster.collected import Collected, wait_until
from tests.recordings.reader import recorded_events

MILLISECOND = 1_000_000


def played(case: str, node: str = "node1") -> list[EndpointTerminating]:
    told: list[ClusterRecord] = []
    slices = NamespaceSlices(node, told.append)
    for event in recorded_events(f"deletions/{case}/watch-endpointslices.jsonl"):
        slices.changed(Change(event.type), event.object, event.at_ns)
    return [record for record in told if isinstance(record, EndpointTerminating)]


def pod_names(case: str) -> dict[str, str]:
    return {
        endpoint["targetRef"]["uid"]: endpoint["targetRef"]["name"]
        for event in recorded_events(f"deletions/{case}/watch-endpointslices.jsonl")
        for endpoint in event.object.get("endpoints") or []
    }


def test_a_deletion_is_told_once_per_service_and_again_when_the_endpoint_leaves() -> None:
    deleted_ns = 1796001100039779025
    told = [
        (record.service, record.removed, record.ready_left, (record.at_ns - deleted_ns) // MILLISECOND)
        for record in played("prestop-sleep")
    ]
    assert told == [
        ("web", False, 2, 13),
        ("web-np", False, 2, 21),
        ("web-np", True, 3, 3394),
        ("web", True, 3, 3396),
    ]
    assert {record.pod_uid for record in played("prestop-sleep")} == {"a518d81c-1688-41c8-87b3-d25e4e43f51a"}


def test_scaling_to_zero_tells_when_no_ready_endpoint_is_left() -> None:
    names = pod_names("scale-to-zero")
    told = [
        (names[record.pod_uid][-5:], record.removed, record.ready_left)
        for record in played("scale-to-zero")
        if record.service == "web"
    ]
    assert told == [
        ("xv2zk", False, 2),
        ("5hsc7", False, 0),
        ("m6lrb", False, 0),
        ("xv2zk", False, 0),
        ("xv2zk", True, 0),
        ("5hsc7", True, 0),
        ("m6lrb", True, 0),
    ]


def test_every_pod_of_a_rollout_is_told() -> None:
    names = pod_names("rollout-no-prestop")
    terminating = [record for record in played("rollout-no-prestop") if not record.removed]
    assert {names[record.pod_uid][-5:] for record in terminating} == {"7f99g", "cw5zf", "7f7h5"}
    assert len(terminating) == 6
    assert all(record.ready_left == 3 for record in terminating)


def test_an_endpoint_that_stays_ready_while_it_terminates_is_told() -> None:
    services = {record.service for record in played("eviction") if not record.removed}
    assert services == {"ex", "ex-headless-pnra"}


def test_a_restart_is_no_termination() -> None:
    assert played("liveness-restart") == []
    assert played("readiness-flip") == []


def test_the_endpoints_of_another_node_are_not_told() -> None:
    assert played("rollout-no-prestop", node="another") == []


def a_slice(name: str, *endpoints: tuple[str, bool, bool], service: str = "web") -> JsonObject:
    return {
        "kind": "EndpointSlice",
        "apiVersion": "discovery.k8s.io/v1",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-of-{name}",
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4",
        "endpoints": [
            {
                "addresses": ["10.9.0.7"],
                "conditions": {"ready": ready, "serving": True, "terminating": terminating},
                "targetRef": {"kind": "Pod", "name": uid, "uid": uid},
                "nodeName": NODE,
            }
            for uid, ready, terminating in endpoints
        ],
    }


def told_by(endpoints: NamespaceEndpoints, *slices: JsonObject) -> list[tuple[str, bool, int]]:
    found = [parsed for parsed in map(slice_of, slices) if parsed is not None]
    return [
        (record.pod_uid, record.removed, record.ready_left)
        for record in endpoints.replace_all(found, at_ns=1)
    ]


def test_both_address_families_of_a_service_count_a_pod_once() -> None:
    pods = ("a", False, True), ("b", True, False)
    assert told_by(NamespaceEndpoints(NODE), a_slice("v4", *pods), a_slice("v6", *pods)) == [("a", False, 1)]


def test_a_pod_that_moves_between_slices_is_not_taken_for_removed() -> None:
    endpoints = NamespaceEndpoints(NODE)
    assert told_by(endpoints, a_slice("one", ("a", False, True), ("b", True, False))) == [("a", False, 1)]
    assert told_by(endpoints, a_slice("one", ("b", True, False)), a_slice("two", ("a", False, True))) == []


def test_a_list_without_the_slice_tells_that_its_endpoints_left() -> None:
    endpoints = NamespaceEndpoints(NODE)
    told_by(endpoints, a_slice("one", ("a", False, True)))
    assert told_by(endpoints) == [("a", True, 0)]
    assert told_by(endpoints) == []


def test_an_endpoint_that_says_nothing_of_readiness_is_ready() -> None:
    silent = a_slice("one", ("a", False, True), ("b", True, False))
    silent["endpoints"][1]["conditions"] = {"ready": None}
    assert told_by(NamespaceEndpoints(NODE), silent) == [("a", False, 1)]


def test_an_endpoint_without_a_pod_counts_but_is_not_told() -> None:
    external = a_slice("one", ("a", False, True), ("b", True, True))
    del external["endpoints"][1]["targetRef"]
    assert told_by(NamespaceEndpoints(NODE), external) == [("a", False, 1)]


def test_a_slice_of_no_service_is_passed_over() -> None:
    assert slice_of({"metadata": {"name": "mine"}, "endpoints": []}) is None


@pytest.mark.parametrize(
    "broken",
    [
        [],
        {"metadata": {"labels": {"kubernetes.io/service-name": 3}}},
        {"metadata": {"name": "x", "labels": {"kubernetes.io/service-name": "web"}}, "endpoints": {}},
    ],
)
def test_a_broken_slice_is_refused(broken: Any) -> None:
    with pytest.raises(ValueError, match=r"is not"):
        slice_of(broken)


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


def test_slices_are_watched_only_where_and_while_asked(api: ApiServer, tmp_path: Path) -> None:
    api.store.create(ENDPOINT_SLICES, a_slice("web-1", ("a", True, False), ("b", True, False)))
    told: Collected[ClusterRecord] = Collected()
    watches = watch_slices(connection_to(api, tmp_path), NODE, told, timing=QUICK)
    assert api.traffic().requests == {}
    watches.follow("shop")
    watches.follow("shop")
    assert watches.followed == {"shop"}
    dying = a_slice("web-1", ("a", False, True), ("b", True, False))
    api.store.update(ENDPOINT_SLICES, "shop", "web-1", lambda _: dying)
    (record,) = told.wait_for(len)
    assert record == EndpointTerminating(record.at_ns, "a", "web", removed=False, ready_left=1)
    assert abs(time.time_ns() - record.at_ns) < 5_000_000_000
    assert (watches.last_event_ns or 0) >= record.at_ns
    watches.unfollow("shop")
    watches.unfollow("shop")
    api.store.update(ENDPOINT_SLICES, "shop", "web-1", lambda _: a_slice("web-1"))
    time.sleep(0.2)
    assert told.items == [record]
    assert watches.followed == frozenset()
    assert watches.last_event_ns is None
    assert api.traffic().requests == {("list", "endpointslices"): 1, ("watch", "endpointslices"): 1}
    watches.stop()


def test_an_endpoint_already_terminating_when_the_watch_begins_is_told(
    api: ApiServer, tmp_path: Path
) -> None:
    api.store.create(ENDPOINT_SLICES, a_slice("web-1", ("a", False, True)))
    told: Collected[ClusterRecord] = Collected()
    watches = watch_slices(connection_to(api, tmp_path), NODE, told, timing=QUICK)
    watches.follow("shop")
    try:
        (record,) = told.wait_for(len)
        assert record == EndpointTerminating(record.at_ns, "a", "web", removed=False, ready_left=0)
    finally:
        watches.stop()
    assert watches.followed == frozenset()


def test_the_view_is_as_old_as_that_of_the_namespace_heard_of_longest_ago(
    api: ApiServer, tmp_path: Path
) -> None:
    slice_in_bank = a_slice("pay-1", ("a", True, False))
    slice_in_bank["metadata"]["namespace"] = "bank"
    watches = watch_slices(connection_to(api, tmp_path), NODE, Collected[ClusterRecord](), timing=QUICK)
    watches.follow("shop")
    wait_until(lambda: watches.last_event_ns)
    wait_until(lambda: api.traffic().requests.get(("watch", "endpointslices")))
    of_shop = watches.last_event_ns
    watches.follow("bank")
    wait_until(lambda: api.traffic().requests.get(("watch", "endpointslices")) == 2)
    api.store.create(ENDPOINT_SLICES, slice_in_bank)
    time.sleep(0.2)
    assert watches.last_event_ns == of_shop
    watches.unfollow("shop")
    assert of_shop is not None
    assert (watches.last_event_ns or 0) > of_shop
    watches.stop()
    assert watches.last_event_ns is None


def test_restarts_of_ended_watches_go_on_counting(api: ApiServer, tmp_path: Path) -> None:
    api.pause()
    watches = watch_slices(connection_to(api, tmp_path), NODE, Collected[ClusterRecord](), timing=QUICK)
    watches.follow("shop")
    ends = time.monotonic() + 5
    while watches.restarts < 2 and time.monotonic() < ends:
        time.sleep(0.02)
    watches.unfollow("shop")
    assert watches.restarts >= 2
    assert watches.last_event_ns is None


def test_unfollowing_does_not_wait_for_an_api_server_that_hangs(tmp_path: Path) -> None:
    with ApiServer() as api:
        api.faults.delay_seconds = 3
        watches = watch_slices(connection_to(api, tmp_path), NODE, Collected[ClusterRecord](), timing=QUICK)
        watches.follow("shop")
        time.sleep(0.1)
        began = time.monotonic()
        watches.unfollow("shop")
        assert time.monotonic() - began < 0.5
