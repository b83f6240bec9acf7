"""Counts of source addresses become names by way of the API server; needs loopback only."""

import time
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest

from agent.cluster.source_lookup import SourceLookup
from agent.core.counts import Count, CountKey, KernelCounts
from agent.core.kinds import Kind
from agent.core.observation import Observation
from agent.core.orders import IdentifySources
from agent.core.phases import Fact
from agent.core.records import ClusterRecord, NamespaceIdentified, PodChanged, SourceIdentified, Workload
from agent.core.source_book import SourceName
from agent.core.tally import WorkloadKey
from agent.lab.controlplane.api import ApiServer
from agent.lab.controlplane.resources import PODS, JsonObject
from tests.cluster.api_server import a_pod, connection_to
from tests.cluster.collected import Collected
from tests.unit.core.lives import NETNS
from tests.unit.core.lives import a_pod as a_pod_here

WEB = WorkloadKey("shop", Workload("Deployment", "web"))
REFUSED = CountKey(NETNS, 8080, Kind.REFUSED, Fact.LISTENED | Fact.DELETED | Fact.CLOSED)


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


def a_pod_at(name: str, address: str, owner: str | None = None, **status: object) -> JsonObject:
    pod = a_pod(name, node="another")
    pod["status"] |= {"podIP": address, "startTime": "2026-01-01T00:00:00Z", **status}
    if owner:
        reference = {"kind": "StatefulSet", "name": owner, "controller": True}
        pod["metadata"]["ownerReferences"] = [reference]
    return pod


def counts(connections: int, *addresses: str) -> KernelCounts:
    sources = {(NETNS, ip_address(address)): connections for address in addresses}
    return KernelCounts({REFUSED: Count(connections * len(addresses), 1, 2)}, sources)


class Named:
    """An agent's counting of one dying pod, and its questions to the API server."""

    def __init__(self, api: ApiServer, folder: Path) -> None:
        self.told: Collected[ClusterRecord] = Collected()
        self.lookup = SourceLookup(connection_to(api, folder), self.told)
        self.observation = Observation(600 * 10**9)
        self.observation.apply(PodChanged(0, a_pod_here()))
        self.observation.apply(NamespaceIdentified(0, NETNS, "uid-1"))
        self.lookup.start()

    def ask(self, read: KernelCounts) -> None:
        for order in self.observation.settle(time.time_ns(), read):
            if isinstance(order, IdentifySources):
                self.lookup.ask(order.sources)

    def take(self, answers: int) -> None:
        for record in self.told.wait_for(lambda records: len(records) == answers):
            assert isinstance(record, SourceIdentified)
            self.observation.apply(record)

    def names(self, read: KernelCounts) -> dict[SourceName | None, int]:
        return self.observation.read(read).sources[WEB]


@pytest.fixture
def named(api: ApiServer, tmp_path: Path) -> Iterator[Named]:
    running = Named(api, tmp_path)
    yield running
    running.lookup.stop()


def test_pods_nodes_and_others_are_told_apart_with_one_question_for_each_address(
    api: ApiServer, named: Named
) -> None:
    api.store.create(PODS, a_pod_at("load-0", "10.7.0.1", "load"))
    api.store.create(PODS, a_pod_at("load-1", "fd00::7", "load"))
    proxy = a_pod_at("proxy", "192.0.2.9")
    proxy["spec"]["hostNetwork"] = True
    api.store.create(PODS, proxy)
    api.store.create(PODS, a_pod_at("done", "10.7.0.2", phase="Succeeded"))
    api.store.create(PODS, a_pod_at("since", "10.7.0.3", startTime="2126-01-01T00:00:00Z"))
    addresses = ("10.7.0.1", "fd00::7", "192.0.2.9", "10.7.0.2", "10.7.0.3", "203.0.113.5")
    for connections in (1, 2):
        named.ask(counts(connections, *addresses))
        named.ask(counts(connections, *addresses))
    assert all(name and name.kind == "unknown" for name in named.names(counts(2, *addresses)))
    named.take(len(addresses))
    for connections in (2, 3):
        named.ask(counts(connections, *addresses))
    assert named.names(counts(3, *addresses)) == {
        SourceName("pod", "shop/StatefulSet/load"): 6,
        SourceName("node", "another"): 3,
        SourceName("unknown", "10.7.0.2"): 3,
        SourceName("unknown", "10.7.0.3"): 3,
        SourceName("external", "203.0.113.5"): 3,
    }
    assert api.traffic().requests == {("list", "pods"): len(addresses)}


def test_a_flood_of_clients_costs_no_more_questions_than_sources_that_are_shown(
    api: ApiServer, named: Named
) -> None:
    addresses = [str(ip_address(0x0A000001 + number)) for number in range(1, 3001)]
    for _ in range(2):
        named.ask(counts(1, *addresses))
        named.take(20)
    shown = named.names(counts(1, *addresses))
    assert shown.pop(None) == 2980
    assert len(shown) == 20
    assert api.traffic().requests == {("list", "pods"): 20}
