"""`agent run` beside a real pod: what it counts when it comes late, and while the API server is away."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.metrics_core import Metric

from agent.core.ledger import NAMED_SOURCES
from agent.lab.controlplane.api import ApiServer
from agent.lab.controlplane.kubeconfig import write_kubeconfig
from agent.lab.controlplane.resources import PODS, JsonObject
from agent.lab.node.client_namespace import ClientNamespace
from agent.lab.node.node import Node
from agent.lab.node.server import OnStop, ServerSettings
from tests.cluster.api_server import a_pod, deleted_at
from tests.e2e.lab_node import PORT, Served, serving
from tests.e2e.running_agent import RunningAgent, running_agent
from tests.kernel.client_addresses import add_addresses
from tests.kernel.scripted_pod import Client, client_of

NAME = "web-0"
NO_KUBE_PROXY = "http://127.0.0.1:9/metrics"
STAYS = ServerSettings(on_stop=OnStop.SLEEP, exit_after_s=60)
"""At its stop signal it closes its listener and lives on."""
SETTLE_SECONDS = 0.05


@pytest.fixture
def served(node: Node) -> Iterator[Served]:
    with serving(node, STAYS, name=NAME) as started:
        yield started


@pytest.fixture
def client(served: Served, outside: ClientNamespace) -> Iterator[Client]:
    with client_of(outside, served.addresses.v4) as made:
        yield made


def pod_object(served: Served) -> JsonObject:
    pod = a_pod(NAME)
    pod["metadata"]["uid"] = served.pod.uid
    pod["spec"]["containers"][0]["ports"] = [{"containerPort": PORT}]
    pod["status"]["podIP"] = served.addresses.v4
    return pod


def being_deleted(pod: JsonObject) -> JsonObject:
    """Asked for 10 s ago, with a grace period of 60 s."""
    deadline = datetime.now(UTC) + timedelta(seconds=50)
    return deleted_at(pod, f"{deadline:%Y-%m-%dT%H:%M:%SZ}", 60)


@contextmanager
def agent_of(api: ApiServer, folder: Path) -> Iterator[RunningAgent]:
    kubeconfig = write_kubeconfig(folder / "kubeconfig", api.url, api.token)
    with running_agent("--kubeconfig", str(kubeconfig), "--kube-proxy-metrics", NO_KUBE_PROXY) as agent:
        yield agent


def stop(served: Served) -> None:
    """Send the stop signal, and wait until the listener is closed."""
    served.container.stop_signal(15)
    deadline = time.monotonic() + 5
    while listeners(served):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def listeners(served: Served) -> list[str]:
    lines = [
        line
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{served.pod.pause_pid}/net/{table}").read_text().splitlines()[1:]
    ]
    return [fields[1] for line in lines if (fields := line.split())[3] == "0A"]


def test_a_pod_whose_listener_closed_before_the_agent_came_is_picked_up_as_closed(
    api: ApiServer, served: Served, client: Client, tmp_path: Path
) -> None:
    api.store.create(PODS, being_deleted(pod_object(served)))
    stop(served)
    with agent_of(api, tmp_path) as agent:
        agent.await_status("/readyz", 200)
        assert client.refused(5) == 5
        time.sleep(SETTLE_SECONDS)
        assert agent.dropped(NAME) == {("refused", "closed"): 5}
        lag = agent.families()["lastcall_pod_propagation_lag_seconds"].samples
        assert 9 < lag[0].value < 30


def test_a_dying_pod_that_still_listens_when_the_agent_comes_is_followed_to_its_end(
    api: ApiServer, served: Served, client: Client, tmp_path: Path
) -> None:
    api.store.create(PODS, being_deleted(pod_object(served)))
    with agent_of(api, tmp_path) as agent:
        agent.await_status("/readyz", 200)
        client.connect(2)
        stop(served)
        assert client.refused(3) == 3
        served.container.kill()
        served.container.wait(5)
        assert client.refused(4) == 4
        time.sleep(SETTLE_SECONDS)
        assert agent.late(NAME) == {"terminating": 2}
        assert agent.dropped(NAME) == {("refused", "closed"): 3, ("refused", "exited"): 4}


def test_while_the_api_server_is_away_drops_go_on_being_counted(
    api: ApiServer, served: Served, client: Client, tmp_path: Path
) -> None:
    api.store.create(PODS, pod_object(served))
    with agent_of(api, tmp_path) as agent:
        agent.await_status("/readyz", 200)
        heard, restarts = watch_of_pods(agent)
        api.pause()
        assert "interrupted" in agent.await_status("/readyz", 503)
        stop(served)
        assert client.refused(5) == 5
        time.sleep(SETTLE_SECONDS)
        assert agent.dropped(NAME) == {("refused", "restarting"): 5}
        heard_away, restarts_away = watch_of_pods(agent)
        assert heard_away == heard
        assert restarts_away > restarts
        api.start()
        agent.await_status("/readyz", 200)
        api.store.update(PODS, "shop", NAME, being_deleted)
        agent.await_metrics(
            lambda families: bool(families["lastcall_pod_termination_timestamp_seconds"].samples)
        )
        assert watch_of_pods(agent)[0] > heard
        assert client.refused(3) == 3
        time.sleep(SETTLE_SECONDS)
        assert agent.dropped(NAME) == {("refused", "restarting"): 5, ("refused", "closed"): 3}


def watch_of_pods(agent: RunningAgent) -> tuple[float, float]:
    """When the API server was last heard of pods, and how often their watch failed."""
    families = agent.families()
    names = ("lastcall_last_watch_event_timestamp_seconds", "lastcall_watch_restarts")
    heard, restarts = (
        next(sample.value for sample in families[name].samples if sample.labels["resource"] == "pods")
        for name in names
    )
    return heard, restarts


def test_what_was_counted_before_the_api_server_came_is_the_pods_once_it_is_known(
    api: ApiServer, served: Served, client: Client, tmp_path: Path
) -> None:
    api.store.create(PODS, pod_object(served))
    api.pause()
    with agent_of(api, tmp_path) as agent:
        assert "not listed" in agent.await_status("/readyz", 503)
        assert "lastcall_last_watch_event_timestamp_seconds" not in {
            name for name, family in agent.families().items() if family.samples
        }
        stop(served)
        assert client.refused(4) == 4
        time.sleep(SETTLE_SECONDS)
        unattributed = agent.families()["lastcall_unattributed_dropped_connections"].samples
        assert {s.labels["kind"]: s.value for s in unattributed}["refused"] >= 4
        api.start()
        agent.await_status("/readyz", 200)
        assert agent.dropped(NAME) == {("refused", "restarting"): 4}


def kinds_of_sources(families: dict[str, Metric]) -> set[str]:
    samples = families["lastcall_dropped_connections_by_source"].samples
    return {sample.labels["source_kind"] for sample in samples}


def test_sources_beyond_the_named_ones_add_up_in_other(
    api: ApiServer, node: Node, served: Served, client: Client, outside: ClientNamespace, tmp_path: Path
) -> None:
    addresses = add_addresses(node, outside, NAMED_SOURCES + 5)
    api.store.create(PODS, pod_object(served))
    with agent_of(api, tmp_path) as agent:
        agent.await_status("/readyz", 200)
        stop(served)
        assert client.refused(1) == 1
        for address in addresses:
            for _ in range(2):
                attempt = client.new_socket()
                attempt.bind((address, 0))
                assert attempt.connect_ex((served.addresses.v4, PORT)) == 111
        agent.await_metrics(lambda families: kinds_of_sources(families) == {"external", "other"}, seconds=10)
        samples = agent.families()["lastcall_dropped_connections_by_source"].samples
        assert agent.dropped(NAME).total() == 1 + 2 * len(addresses)
    by_source = Counter({sample.labels["source"]: int(sample.value) for sample in samples})
    assert by_source.total() == 1 + 2 * len(addresses)
    named = {source: count for source, count in by_source.items() if source != "other"}
    assert len(named) == NAMED_SOURCES
    assert set(named) < {*addresses, outside.addresses.v4}
    assert api.traffic().requests["list", "pods"] == 1 + NAMED_SOURCES
    assert all(count == (1 if source == outside.addresses.v4 else 2) for source, count in named.items())
