"""`agent run --record` beside a real pod, and its replay: the same metrics, the whole end."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.lab.controlplane.api import ApiServer
from agent.lab.controlplane.kubeconfig import write_kubeconfig
from agent.lab.controlplane.resources import PODS
from agent.lab.node.network import Cni
from agent.lab.node.node import Node
from agent.lab.node.server import OnStop, ServerSettings
from tests.cluster.api_server import a_pod, deleted_at
from tests.e2e.lab_node import PORT, Served, serving
from tests.e2e.running_agent import running_agent
from tests.kernel.scripted_pod import client_of

NAME = "web-0"
STAYS = ServerSettings(on_stop=OnStop.SLEEP, exit_after_s=60)
GOES_ON = ("lastcall_last_watch_event_timestamp_seconds", "lastcall_events_total", "lastcall_program_")
"""Families that can change between the scrape and the end of the recording."""


def replay(path: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "agent.cli", "replay", str(path), *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def samples(page: str) -> set[str]:
    return {line for line in page.splitlines() if not line.startswith(("#", *GOES_ON))}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A recording of a pod's whole end with drops in it, and the last page of metrics of the live agent."""
    folder = tmp_path_factory.mktemp("recorded")
    with Node.start(Cni.BRIDGE) as node, serving(node, STAYS, name=NAME) as served, ApiServer() as api:
        yield folder / "recording", _live(node, served, api, folder)


def _live(node: Node, served: Served, api: ApiServer, folder: Path) -> str:
    pod = a_pod(NAME)
    pod["metadata"]["uid"] = served.pod.uid
    pod["spec"]["containers"][0]["ports"] = [{"containerPort": PORT}]
    pod["status"]["podIP"] = served.addresses.v4
    api.store.create(PODS, pod)
    kubeconfig = write_kubeconfig(folder / "kubeconfig", api.url, api.token)
    flags = ("--kubeconfig", str(kubeconfig), "--kube-proxy-metrics", "http://127.0.0.1:9/metrics")
    with (
        client_of(node.client_namespace("outside"), served.addresses.v4) as client,
        running_agent(*flags, "--record", str(folder / "recording")) as agent,
    ):
        agent.await_status("/readyz", 200)
        deadline = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(time.time() + 30))}"
        api.store.update(PODS, "shop", NAME, lambda pod: deleted_at(pod, deadline, 30))
        agent.await_metrics(
            lambda families: bool(families["lastcall_pod_termination_timestamp_seconds"].samples)
        )
        client.connect(2)
        served.container.stop_signal(15)
        time.sleep(0.3)
        assert client.refused(3) == 3
        served.container.kill()
        served.container.wait(5)
        assert client.refused(4) == 4
        api.store.delete(PODS, "shop", NAME)
        # Two ticks, so that sources are looked up and named.
        time.sleep(2.5)
        page = agent.get("/metrics")[1]
        code, written = agent.stop()
    assert (code, "Traceback" in written) == (0, False), written
    return page


def test_a_replay_gives_the_metrics_of_the_live_run(recorded: tuple[Path, str]) -> None:
    file, live = recorded
    replayed = replay(file, "-o", "metrics")
    assert (replayed.returncode, replayed.stderr) == (0, "")
    assert samples(replayed.stdout) == samples(live)
    assert 'kind="refused",' in live


def test_a_replay_tells_the_end_of_the_pod_with_its_drops(recorded: tuple[Path, str]) -> None:
    ends: list[dict[str, Any]] = json.loads(replay(recorded[0], "-o", "json").stdout)
    (end,) = ends
    assert (end["pod"], end["reason"], end["over"]) == (NAME, "deleted", False)
    assert end["drops"] == {
        "total": 7,
        "by_kind_and_phase": [
            {"kind": "refused", "phase": "closed", "connections": 3},
            {"kind": "refused", "phase": "exited", "connections": 4},
        ],
    }
    assert end["late"] == {"total": 2, "by_phase": {"terminating": 2}}
    seen_by_kernel = [
        name for name, moment in end["boundaries"].items() if moment and moment["source"] == "kernel"
    ]
    assert seen_by_kernel == ["stop_signal", "listener_closed", "kill_signal", "exited"]
    (container,) = end["containers"]
    assert container["stop_signal"]["name"] == "SIGTERM"
    assert container["exit"]["signal"] == "SIGKILL"
    assert list(container["ports_closed"]) == [str(PORT)]


def test_a_recording_that_was_cut_off_is_replayed_up_to_there(
    recorded: tuple[Path, str], tmp_path: Path
) -> None:
    whole = recorded[0].read_text()
    cut = tmp_path / "cut"
    cut.write_text(whole[: len(whole) * 2 // 3])
    replayed = replay(cut)
    assert replayed.returncode == 0
    assert replayed.stderr == (
        f"agent replay: {cut} ends in the middle of a line: the agent was killed while it wrote\n"
    )
