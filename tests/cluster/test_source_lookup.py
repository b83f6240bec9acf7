"""Source addresses -> whose they were; needs loopback only."""

import json
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

import pytest
from kubernetes.client import Configuration

from agent.cluster.backoff import Backoff
from agent.cluster.connection import ApiConnection
from agent.cluster.failures import StatusFailure
from agent.cluster.source_lookup import WAITING_AT_MOST, SourceLookup, owner_of
from agent.core.fields import Fields
from agent.core.records import ClusterRecord, SourceIdentified, SourceKind, Workload
from agent.core.wanted_source import WantedSource
from tests.cluster.collected import Collected
from tests.cluster.scripted_server import ScriptedServer, ok, scripted

SECOND = 10**9
ADDRESS = ip_address("10.9.0.7")
SEEN = 1796001100 * SECOND
"""2026-11-30T01:11:40Z"""
WANTED = WantedSource(ADDRESS, SEEN)


def a_pod(name: str = "load-7", *, started: str = "2026-11-30T01:00:00Z", **spec: object) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": "u",
            "ownerReferences": [{"kind": "Job", "name": "load", "controller": True}],
        },
        "spec": {"nodeName": "node-2", **spec},
        "status": {"phase": "Running", "podIP": str(ADDRESS), "startTime": started},
    }


def finished(pod: dict[str, Any]) -> dict[str, Any]:
    pod["status"]["phase"] = "Succeeded"
    return pod


def owner(*pods: dict[str, Any]) -> SourceIdentified:
    return owner_of(WANTED, [Fields.of(pod, "pod") for pod in pods], 5)


def test_a_pod_is_named_with_its_workload() -> None:
    assert owner(a_pod()) == SourceIdentified(
        5, ADDRESS, SourceKind.POD, namespace="shop", pod="load-7", workload=Workload("Job", "load")
    )


def test_an_address_that_only_a_finished_pod_lists_is_unknown_and_not_external() -> None:
    assert owner(finished(a_pod())).kind is SourceKind.UNKNOWN


def test_a_finished_pod_does_not_have_its_address_any_more() -> None:
    assert owner(finished(a_pod()), a_pod("load-8")).pod == "load-8"


def test_an_address_with_pods_on_the_hosts_network_is_the_nodes() -> None:
    found = owner(a_pod(), a_pod("proxy", hostNetwork=True))
    assert (found.kind, found.name, found.pod) == (SourceKind.NODE, "node-2", None)


def test_a_pod_that_has_the_address_only_since_is_not_who_was_seen() -> None:
    assert owner(a_pod(started="2026-11-30T01:11:41Z")).kind is SourceKind.UNKNOWN


def test_an_address_of_no_pod_is_external() -> None:
    assert owner() == SourceIdentified(5, ADDRESS, SourceKind.EXTERNAL)


def answer_with(*pods: dict[str, Any]) -> bytes:
    return ok(json.dumps({"metadata": {"resourceVersion": "9"}, "items": list(pods)}).encode())


def connection_to(server: ScriptedServer) -> ApiConnection:

    configuration = Configuration()
    configuration.host = server.url
    return ApiConnection(configuration)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted(lambda _: iter([answer_with(a_pod())])) as running:
        yield running


def lookup_at(server: ScriptedServer, told: Collected[ClusterRecord]) -> SourceLookup:
    lookup = SourceLookup(connection_to(server), told, first_retry_seconds=0.02)
    lookup.start()
    return lookup


def test_an_address_is_asked_for_once_from_the_cache_of_the_api_server(server: ScriptedServer) -> None:
    told: Collected[ClusterRecord] = Collected()
    lookup = lookup_at(server, told)
    lookup.ask([WANTED])
    told.wait_for(lambda items: len(items) == 1)
    lookup.stop()
    (request,) = server.requests
    target = request.split(b" ")[1].decode()
    assert target == "/api/v1/pods?fieldSelector=status.podIP%3D10.9.0.7&resourceVersion=0"


def test_a_failure_is_tried_again_and_costs_no_answer(server: ScriptedServer) -> None:
    broken = b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    good = server.answer
    server.answer = lambda _: iter([broken if len(server.requests) < 3 else answer_with(a_pod())])
    told: Collected[ClusterRecord] = Collected()
    lookup = lookup_at(server, told)
    lookup.ask([WANTED])
    lookup.ask([WANTED])
    (record,) = told.wait_for(lambda items: items)
    lookup.stop()
    server.answer = good
    assert isinstance(record, SourceIdentified)
    assert (record.pod, len(server.requests)) == ("load-7", 3)


@pytest.mark.parametrize("junk", [b"", b"{}", b"[]", b'{"items": [7]}'])
def test_junk_from_the_api_server_is_no_answer(server: ScriptedServer, junk: bytes) -> None:
    server.answer = lambda _: iter([ok(junk) if len(server.requests) < 2 else answer_with()])
    told: Collected[ClusterRecord] = Collected()
    lookup = lookup_at(server, told)
    lookup.ask([WANTED])
    (record,) = told.wait_for(lambda items: items)
    lookup.stop()
    assert isinstance(record, SourceIdentified)
    assert record.kind is SourceKind.EXTERNAL


def test_a_flood_of_addresses_is_bounded_and_what_is_passed_over_is_counted(server: ScriptedServer) -> None:
    lookup = SourceLookup(connection_to(server), Collected[ClusterRecord]())
    lookup.ask(WantedSource(ip_address(number), SEEN) for number in range(100_000))
    assert lookup.passed_over == 100_000 - WAITING_AT_MOST
    lookup.stop()
    assert server.requests == []


def test_an_address_that_is_never_answered_does_not_keep_others_from_being(server: ScriptedServer) -> None:
    stuck, fine = ADDRESS, ip_address("10.9.0.8")

    def answer(head: bytes) -> Iterator[bytes]:
        yield ok(b"junk") if f"D{stuck}&".encode() in head else answer_with()

    server.answer = answer
    told: Collected[ClusterRecord] = Collected()
    lookup = lookup_at(server, told)
    lookup.ask([WantedSource(stuck, SEEN), WantedSource(fine, SEEN)])
    (record,) = told.wait_for(len)
    lookup.stop()
    assert record == SourceIdentified(record.at_ns, fine, SourceKind.EXTERNAL)


def test_a_record_that_cannot_be_delivered_does_not_end_the_looking_up(server: ScriptedServer) -> None:
    told: Collected[ClusterRecord] = Collected()
    faults = [RuntimeError("first")]

    def emit(record: ClusterRecord) -> None:
        if faults:
            raise faults.pop()
        told(record)

    lookup = SourceLookup(connection_to(server), emit, first_retry_seconds=0.02)
    lookup.start()
    lookup.ask([WANTED])
    told.wait_for(len)
    lookup.stop()


def test_an_address_of_a_second_family_is_asked_for_as_kubernetes_writes_it(server: ScriptedServer) -> None:
    told: Collected[ClusterRecord] = Collected()
    lookup = lookup_at(server, told)
    lookup.ask([WantedSource(ip_address("FD00:0::0:7"), SEEN)])
    told.wait_for(len)
    lookup.stop()
    assert b"fieldSelector=status.podIP%3Dfd00%3A%3A7&" in server.requests[0]


def test_the_wait_is_no_shorter_than_the_api_server_asks_for() -> None:
    backoff = Backoff(0.01, 0.02)
    assert backoff.seconds_after(StatusFailure(429, "slow down", 7)) == 7
    assert backoff.seconds_after(StatusFailure(429, "slow down", 3600)) == 60
    assert backoff.seconds_after(StatusFailure(429, "slow down")) < 1
