"""What one termination costs the API server: the same, whatever else the cluster holds."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path

from agent.cluster.events import watch_events
from agent.cluster.pods import watch_pods
from agent.cluster.slices import watch_slices
from agent.cluster.source_lookup import SourceLookup
from agent.core.orders import FollowNamespace, UnfollowNamespace
from agent.core.records import (
    ClusterRecord,
    EndpointTerminating,
    PodChanged,
    PodEventSeen,
    PodRemoved,
    PodsListed,
    SourceIdentified,
)
from agent.core.tracker import Tracker
from agent.core.wanted_source import WantedSource
from agent.lab.controlplane.api import ApiServer
from agent.lab.controlplane.event_objects import Reason, pod_event
from agent.lab.controlplane.faults import Traffic
from agent.lab.controlplane.resources import ENDPOINT_SLICES, EVENTS, PODS, JsonObject, Resource
from tests.cluster.api_server import NODE, QUICK, a_pod, connection_to, deleted_at
from tests.cluster.collected import PATIENCE_SECONDS, Collected
from tests.cluster.test_slices import a_slice

PODS_ELSEWHERE = 5000
SLICES_ELSEWHERE = 2000
EVENTS_ELSEWHERE = 2000
FOREIGN_SOURCES = 3


def elsewhere() -> Iterator[tuple[Resource, JsonObject]]:
    """Pods on other nodes, slices and events of other namespaces."""
    for number in range(PODS_ELSEWHERE):
        pod = a_pod(f"other-{number}", node=f"node-{number % 100}")
        pod["status"]["podIP"] = f"10.8.{number // 250}.{number % 250}"
        yield PODS, pod
    for number in range(SLICES_ELSEWHERE):
        slice_object = a_slice(f"other-{number}", (f"pod-{number}", True, False))
        slice_object["metadata"]["namespace"] = f"namespace-{number % 200}"
        yield ENDPOINT_SLICES, slice_object
    for number in range(EVENTS_ELSEWHERE):
        pod = a_pod(f"other-{number}")
        pod["metadata"] |= {"namespace": f"namespace-{number % 200}", "resourceVersion": "1"}
        yield EVENTS, pod_event(pod, Reason.STARTED, "Started", "node-1", 10**18 + number)


def fill(api: ApiServer, *, keep: bool) -> None:
    """Create what is elsewhere; without `keep` it is gone again, and only the versions have grown as much."""
    for resource, item in elsewhere():
        api.store.create(resource, item)
        metadata = item["metadata"]
        if keep:
            # As many writes either way: the length of a version is part of every answer.
            api.store.update(resource, metadata["namespace"], metadata["name"], lambda found: found)
        else:
            api.store.delete(resource, metadata["namespace"], metadata["name"])


class Followed:
    """The cluster side of an agent: its watches, and the tracker's orders carried out."""

    def __init__(self, api: ApiServer, folder: Path) -> None:
        connection = connection_to(api, folder)
        self.told: Collected[ClusterRecord] = Collected()
        self.tracker = Tracker()
        self.pods = watch_pods(connection, NODE, self.told, timing=QUICK)
        self.slices = watch_slices(connection, NODE, self.told, timing=QUICK)
        self.events = watch_events(connection, self.told, timing=QUICK)
        self.sources = SourceLookup(connection, self.told)
        self._taken = 0

    def until(self, kind: type, count: int = 1) -> None:
        """Take in what is told until that many records of the kind have been."""
        self.told.wait_for(lambda items: sum(isinstance(item, kind) for item in items) >= count)
        while self._taken < len(self.told.items):
            record = self.told.items[self._taken]
            self._taken += 1
            for order in self.tracker.apply(record):
                match order:
                    case FollowNamespace():
                        self.slices.follow(order.namespace)
                        self.events.follow(order.namespace)
                    case UnfollowNamespace():
                        self.slices.unfollow(order.namespace)
                        self.events.unfollow(order.namespace)

    def stop(self) -> None:
        self.sources.stop()
        self.slices.stop()
        self.events.stop()
        self.pods.stop()


def await_watches(api: ApiServer, *plurals: str) -> None:
    """Wait until these are being watched, so that what comes now comes as an event and not in a list."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not {("watch", plural) for plural in plurals} <= api.traffic().requests.keys():
        assert time.monotonic() < deadline, api.traffic()
        time.sleep(0.01)


@contextmanager
def followed(api: ApiServer, folder: Path) -> Iterator[Followed]:
    agent = Followed(api, folder)
    agent.pods.start()
    agent.sources.start()
    try:
        yield agent
    finally:
        agent.stop()


def one_termination(api: ApiServer, folder: Path) -> Traffic:
    """A pod of this node is deleted, followed and gone; its foreign clients are looked up."""
    pod = a_pod("web-0")
    api.store.create(PODS, pod)
    api.store.create(ENDPOINT_SLICES, a_slice("web", ("uid-of-web-0", True, False), ("other", True, False)))
    before = api.traffic()
    with followed(api, folder) as agent:
        agent.until(PodsListed)
        await_watches(api, "pods")
        api.store.update(PODS, "shop", "web-0", lambda pod: deleted_at(pod, "2026-01-02T00:00:30Z", 30))
        agent.until(PodChanged, 2)
        await_watches(api, "pods", "endpointslices", "events")
        dying = a_slice("web", ("uid-of-web-0", False, True), ("other", True, False))
        api.store.update(ENDPOINT_SLICES, "shop", "web", lambda _: dying)
        agent.until(EndpointTerminating)
        stored = api.store.get(PODS, "shop", "web-0")
        assert stored is not None
        event = pod_event(stored, Reason.KILLING, "Stopping container app", NODE, 10**18)
        api.store.create(EVENTS, event)
        agent.until(PodEventSeen)
        agent.sources.ask(
            WantedSource(ip_address(f"10.7.0.{number}"), 10**18) for number in range(FOREIGN_SOURCES)
        )
        agent.until(SourceIdentified, FOREIGN_SOURCES)
        api.store.delete(PODS, "shop", "web-0")
        agent.until(PodRemoved)
        assert agent.slices.followed == agent.events.followed == frozenset()
    after = api.traffic()
    spent = {key: count - before.requests.get(key, 0) for key, count in after.requests.items()}
    return Traffic(spent, after.bytes_sent - before.bytes_sent)


def test_a_large_cluster_costs_no_more_requests_and_no_more_bytes(tmp_path: Path) -> None:
    costs = []
    for name, keep in (("small", False), ("large", True)):
        folder = tmp_path / name
        folder.mkdir()
        with ApiServer() as api:
            fill(api, keep=keep)
            costs.append(one_termination(api, folder))
    small, large = costs
    print(
        f"requests {large.requests}, {large.bytes_sent} bytes; in the small cluster {small.bytes_sent} bytes"
    )
    assert small == large
    assert large.requests == {
        ("list", "pods"): 1 + FOREIGN_SOURCES,
        ("watch", "pods"): 1,
        ("list", "endpointslices"): 1,
        ("watch", "endpointslices"): 1,
        ("list", "events"): 1,
        ("watch", "events"): 1,
    }
