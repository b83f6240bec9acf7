"""`agent run`, seen from outside: readiness, metrics, an API server that goes away, a clean end."""

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.lab.controlplane.api import ApiServer
from agent.lab.controlplane.kubeconfig import write_kubeconfig
from agent.lab.controlplane.resources import PODS
from tests.cluster.api_server import a_pod, deleted_at
from tests.e2e.running_agent import RunningAgent, running_agent

LARGEST_MEGABYTES = 100
SLOWEST_READY_SECONDS = 30
"""Far above what docs/architecture.md promises: other work on the machine is not the agent's fault."""
NO_KUBE_PROXY = "http://127.0.0.1:9/metrics"


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        server.store.create(PODS, a_pod("web-0"))
        yield server


@pytest.fixture
def agent(api: ApiServer, port: int, tmp_path: Path) -> Iterator[RunningAgent]:
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", api.url, api.token)
    with running_agent(
        port, "--kubeconfig", str(kubeconfig), "--kube-proxy-metrics", NO_KUBE_PROXY
    ) as started:
        started.await_status("/readyz", 200, SLOWEST_READY_SECONDS)
        yield started


def programs() -> set[int]:
    listed = subprocess.run(["bpftool", "--json", "prog", "list"], capture_output=True, check=True).stdout
    return {program["id"] for program in json.loads(listed) if program.get("name", "").startswith("on_")}


def test_a_known_pod_has_its_series_at_zero(agent: RunningAgent) -> None:
    dropped = agent.families()["lastcall_pod_dropped_connections"].samples
    assert {sample.labels["pod"] for sample in dropped} == {"web-0"}
    assert {sample.value for sample in dropped} == {0.0}
    assert {"namespace", "pod", "workload_kind", "workload", "kind", "phase"} == set(dropped[0].labels)


def test_what_was_not_observed_is_absent(agent: RunningAgent) -> None:
    families = agent.families()
    assert families["lastcall_pod_propagation_lag_seconds"].samples == []
    assert "lastcall_kube_proxy_last_sync_timestamp_seconds" not in families


def test_every_hook_is_attached(agent: RunningAgent) -> None:
    assert {s.value for s in agent.families()["lastcall_hook_attached"].samples} == {1.0}


def test_it_stays_within_its_memory(agent: RunningAgent) -> None:
    assert agent.resident_megabytes() <= LARGEST_MEGABYTES


def test_a_deleted_pod_is_dying_from_the_request_on(agent: RunningAgent, api: ApiServer) -> None:
    api.store.update(PODS, "shop", "web-0", lambda pod: deleted_at(pod, "2026-01-02T00:00:30Z", 30))
    for _ in range(100):
        moments = agent.families()["lastcall_pod_termination_timestamp_seconds"].samples
        if moments:
            break
    assert [sample.labels["event"] for sample in moments] == ["deletion_requested"]


def test_an_api_server_that_goes_away_is_told_and_survived(agent: RunningAgent, api: ApiServer) -> None:
    api.pause()
    assert "watch" in agent.await_status("/readyz", 503)
    assert agent.get("/healthz")[0] == 200
    assert agent.get("/metrics")[0] == 200
    api.start()
    agent.await_status("/readyz", 200)
    restarts = agent.families()["lastcall_watch_restarts"].samples
    assert max(sample.value for sample in restarts) >= 1


def test_an_api_server_that_is_away_at_the_start_is_waited_for(
    api: ApiServer, port: int, tmp_path: Path
) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", api.url, api.token)
    api.pause()
    with running_agent(port, "--kubeconfig", str(kubeconfig), "--kube-proxy-metrics", NO_KUBE_PROXY) as agent:
        assert "not listed" in agent.await_status("/readyz", 503)
        api.start()
        agent.await_status("/readyz", 200)


def test_sigterm_ends_it_cleanly_and_leaves_nothing_in_the_kernel(
    api: ApiServer, port: int, tmp_path: Path
) -> None:
    before = programs()
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", api.url, api.token)
    with running_agent(port, "--kubeconfig", str(kubeconfig), "--kube-proxy-metrics", NO_KUBE_PROXY) as agent:
        agent.await_status("/readyz", 200)
        assert len(programs() - before) >= 8
        code, written = agent.stop()
    assert code == 0
    assert "Traceback" not in written
    assert programs() <= before
