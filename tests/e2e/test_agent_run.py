"""`agent run`, seen from outside: readiness, metrics, what it costs, what it survives, a clean end."""

import contextlib
import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.lab.controlplane.api import ApiServer
from agent.lab.controlplane.kubeconfig import write_kubeconfig
from agent.lab.controlplane.resources import PODS
from tests.cluster.api_server import a_pod, deleted_at
from tests.cluster.scripted_server import ok, scripted
from tests.e2e.running_agent import RunningAgent, running_agent
from tests.unit.outputs.test_prometheus import CONTRACT

LARGEST_MEGABYTES = 100
SLOWEST_ATTACH_SECONDS = 10
"""Above the 3 s that are promised: other work on the machine is not the agent's fault."""
NO_KUBE_PROXY = "http://127.0.0.1:9/metrics"
LATER = {
    "lastcall_kube_proxy_last_sync_timestamp_seconds",
    "lastcall_program_run_seconds_total",
    "lastcall_program_runs_total",
}
"""Families that are absent while no kube-proxy answers and the kernel keeps no BPF statistics."""
FILLED_LATER = {
    "lastcall_pod_propagation_lag_seconds",
    "lastcall_pod_termination_timestamp_seconds",
    "lastcall_propagation_lag_seconds",
    "lastcall_dropped_connections_by_source_total",
}
"""Families without a sample while no pod has died."""


@contextmanager
def an_api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        server.store.create(PODS, a_pod("web-0"))
        yield server


def flags_for(api: ApiServer, folder: Path) -> list[str]:
    kubeconfig = write_kubeconfig(folder / "kubeconfig", api.url, api.token)
    return ["--kubeconfig", str(kubeconfig), "--kube-proxy-metrics", NO_KUBE_PROXY]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningAgent]:
    """A ready agent that tests only look at."""
    with an_api() as api, running_agent(*flags_for(api, tmp_path_factory.mktemp("undisturbed"))) as started:
        started.await_status("/readyz", 200)
        yield started


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with an_api() as server:
        yield server


@pytest.fixture
def flags(api: ApiServer, tmp_path: Path) -> list[str]:
    return flags_for(api, tmp_path)


@pytest.fixture
def agent(flags: list[str]) -> Iterator[RunningAgent]:
    with running_agent(*flags) as started:
        started.await_status("/readyz", 200)
        yield started


def held_by(pid: int) -> set[tuple[str, int]]:
    """Kind and id of what a process holds in the kernel: its descriptors, and all maps of its programs.

    The kernel gives no id twice, so that agents of other tests do not disturb.
    """
    held: set[tuple[str, int]] = set()
    for description in Path(f"/proc/{pid}/fdinfo").iterdir():
        # A connection may be closed while its descriptor is looked at; those of the kernel side stay.
        with contextlib.suppress(FileNotFoundError):
            found = re.findall(r"^(prog|map|link)_id:\s+(\d+)$", description.read_text(), re.MULTILINE)
            held.update((kind, int(number)) for kind, number in found)
    programs = [program for program in shown("prog") if ("prog", program["id"]) in held]
    return held | {("map", number) for program in programs for number in program["map_ids"]}


def shown(kind: str) -> list[dict[str, Any]]:
    """What the kernel has of a kind, by bpftool."""
    done = subprocess.run(["bpftool", "--json", kind, "show"], capture_output=True, check=True)
    listed: list[dict[str, Any]] = json.loads(done.stdout)
    return listed


def in_kernel() -> set[tuple[str, int]]:
    return {(kind, each["id"]) for kind in ("prog", "map", "link") for each in shown(kind)}


def test_the_page_has_the_families_of_the_contract_with_their_types_and_labels(
    undisturbed: RunningAgent,
) -> None:
    undisturbed.await_metrics(lambda families: "lastcall_kube_proxy_up" in families)
    found: dict[str, str] = {}
    for family in undisturbed.families().values():
        name = family.name + "_total" * (family.type == "counter")
        found[name] = family.type
        labels = {frozenset(sample.labels.keys() - {"le"}) for sample in family.samples}
        assert labels == (set() if name in FILLED_LATER else {frozenset(CONTRACT[name][1])}), name
    assert found == {
        name: metric_type for name, (metric_type, _) in CONTRACT.items() if name in found or name not in LATER
    }


def test_a_known_pod_has_its_series_at_zero(undisturbed: RunningAgent) -> None:
    for family in ("lastcall_pod_dropped_connections", "lastcall_pod_late_connections"):
        samples = undisturbed.families()[family].samples
        assert {sample.labels["pod"] for sample in samples} == {"web-0"}
        assert {sample.value for sample in samples} == {0.0}


def test_a_pod_that_is_created_later_has_its_series_too(agent: RunningAgent, api: ApiServer) -> None:
    api.store.create(PODS, a_pod("web-1"))
    agent.await_metrics(
        lambda families: (
            {sample.labels["pod"] for sample in families["lastcall_pod_dropped_connections"].samples}
            == {"web-0", "web-1"}
        )
    )


def test_every_hook_is_attached(undisturbed: RunningAgent) -> None:
    attached = undisturbed.families()["lastcall_hook_attached"].samples
    assert len(attached) >= 8
    assert {sample.value for sample in attached} == {1.0}


def test_it_stays_within_its_memory(undisturbed: RunningAgent) -> None:
    undisturbed.get("/metrics")
    held = undisturbed.resident_megabytes()
    print(f"resident memory once ready: {held:.1f} MB")
    assert held <= LARGEST_MEGABYTES


def test_a_node_without_tracefs_is_no_hindrance(flags: list[str]) -> None:
    """Raw tracepoints need none."""
    script = 'umount -l /sys/kernel/tracing; umount -l /sys/kernel/debug; exec "$@"'
    with running_agent(*flags, around=("unshare", "-m", "sh", "-c", script, "sh")) as agent:
        agent.await_status("/readyz", 200)
        attached = {
            sample.labels["hook"]
            for sample in agent.families()["lastcall_hook_attached"].samples
            if sample.labels["variant"] == "raw_tp" and sample.value
        }
    assert {"inet_sock_set_state", "kfree_skb", "signal_generate"} <= attached


def test_hooks_are_attached_soon_after_the_start(flags: list[str]) -> None:
    with running_agent(*flags) as agent:
        agent.await_status("/healthz", 200, SLOWEST_ATTACH_SECONDS)
        took = time.monotonic() - agent.started
        assert {s.value for s in agent.families()["lastcall_hook_attached"].samples} == {1.0}
    print(f"hooks attached after {took:.2f} s")
    assert took < SLOWEST_ATTACH_SECONDS


def test_a_deleted_pod_is_dying_from_the_request_on(agent: RunningAgent, api: ApiServer) -> None:
    api.store.update(PODS, "shop", "web-0", lambda pod: deleted_at(pod, "2026-01-02T00:00:30Z", 30))
    agent.await_metrics(
        lambda families: (
            [
                sample.labels["event"]
                for sample in families["lastcall_pod_termination_timestamp_seconds"].samples
            ]
            == ["deletion_requested"]
        )
    )


def test_an_api_server_that_goes_away_again_and_again_is_survived(
    agent: RunningAgent, api: ApiServer
) -> None:
    for _ in range(3):
        api.pause()
        assert "watch" in agent.await_status("/readyz", 503)
        assert agent.get("/healthz") == (200, "ok\n")
        api.start()
        assert agent.await_status("/readyz", 200) == "ready\n"
    restarts = agent.families()["lastcall_watch_restarts"].samples
    assert {s.labels["resource"]: s.value for s in restarts}["pods"] >= 3


def test_it_is_not_ready_before_the_api_server_has_listed_the_pods(api: ApiServer, flags: list[str]) -> None:
    api.pause()
    with running_agent(*flags) as agent:
        assert "not listed" in agent.await_status("/readyz", 503)
        assert agent.get("/healthz")[0] == 200
        assert agent.families()["lastcall_pod_dropped_connections"].samples == []
        api.start()
        agent.await_status("/readyz", 200)


@pytest.mark.parametrize("junk", [b"\xff\x00" * 1000, b"<html></html>", b""], ids=["binary", "html", "empty"])
def test_junk_from_kube_proxy_is_no_reason_to_end(flags: list[str], junk: bytes) -> None:
    with (
        scripted(lambda head: iter([ok(junk)])) as kube_proxy,
        running_agent(*flags, "--kube-proxy-metrics", f"{kube_proxy.url}/metrics") as agent,
    ):
        agent.await_status("/readyz", 200)
        agent.await_metrics(lambda families: "lastcall_kube_proxy_up" in families)
        assert kube_proxy.requests
        assert [sample.value for sample in agent.families()["lastcall_kube_proxy_up"].samples] == [0]
        assert "lastcall_kube_proxy_last_sync_timestamp_seconds" not in agent.families()
        code, written = agent.stop()
    assert code == 0
    assert written.count("is not kube-proxy's metrics") == 1
    assert "Traceback" not in written


def test_a_name_that_no_node_has_is_said_and_is_no_reason_to_end(flags: list[str]) -> None:
    with running_agent(*flags, "--node-name", "no-such-node") as agent:
        agent.await_status("/readyz", 200)
        code, written = agent.stop()
    assert code == 0
    assert written.count("the API server knows no node no-such-node, ") == 1


def test_sigterm_ends_it_cleanly_and_leaves_nothing_in_the_kernel(agent: RunningAgent) -> None:
    held = held_by(agent.process.pid)
    kinds = [kind for kind, _ in held]
    assert min(kinds.count("prog"), kinds.count("link"), kinds.count("map")) >= 8
    assert held <= in_kernel()
    code, written = agent.stop()
    assert code == 0
    assert "Traceback" not in written
    await_gone(held)


def test_a_killed_agent_leaves_nothing_in_the_kernel(agent: RunningAgent) -> None:
    held = held_by(agent.process.pid)
    assert held <= in_kernel()
    agent.process.kill()
    agent.process.communicate()
    await_gone(held)


def await_gone(held: set[tuple[str, int]]) -> None:
    """The kernel frees maps a moment after their last program."""
    deadline = time.monotonic() + 5
    while left := held & in_kernel():
        assert time.monotonic() < deadline, f"still in the kernel: {left}"
        time.sleep(0.05)


def test_sigterm_before_it_is_ready_ends_it_cleanly_too(flags: list[str]) -> None:
    with running_agent(*flags) as agent:
        loader = await_child(agent.process.pid)
        code, written = agent.stop()
    assert code == 0
    assert "Traceback" not in written
    assert not Path(f"/proc/{loader}").exists()


def await_child(pid: int) -> int:
    """The loader, which runs for a second or two."""
    deadline = time.monotonic() + 10
    while not (children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return int(children[0])
