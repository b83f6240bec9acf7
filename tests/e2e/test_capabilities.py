"""The agent with no more capabilities than the DaemonSet's overlay gives it, and what it keeps of them."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.kernel.capabilities import CAPABILITY_BITS, KEPT_ONCE_ATTACHED
from agent.lab.controlplane.api import ApiServer
from agent.lab.controlplane.kubeconfig import write_kubeconfig
from agent.lab.controlplane.resources import PODS, JsonObject
from agent.lab.node.client_namespace import ClientNamespace
from agent.lab.node.node import Node
from agent.lab.node.pod import Container, Pod
from tests.cluster.api_server import a_pod, deleted_at
from tests.deploy.manifests import least_capabilities
from tests.e2e.lab_node import PORT
from tests.e2e.running_agent import RunningAgent, running_agent
from tests.kernel.scripted_pod import Client, client_of

NO_KUBE_PROXY = "http://127.0.0.1:9/metrics"
NOBODY = "65534"
LISTENS = f"import socket, time; listener = socket.create_server(('', {PORT})); time.sleep(600)"
SETTLE_SECONDS = 0.1
AS_IN_A_CONTAINER = (
    "unshare",
    "--mount",
    "sh",
    "-ec",
    "for at in tracing debug; do umount -l /sys/kernel/$at 2>/dev/null || true; done; "
    'mount -t tmpfs none /mnt; mount -o remount,bind,ro /; exec "$@"',
    "sh",
)
"""No tracefs, a root file system that is read-only, and one place to write."""
CACHE = "/mnt/lastcall"

LOOK = """
import ctypes, json, socket, sys
from pathlib import Path
from agent.kernel.errors import KernelSideError
from agent.kernel.loader import load_programs
from agent.kernel.loader_child import consumed_syn_range
from agent.kernel.namespaces import cookie_here, view_namespace
from agent.kernel.processes import pod_processes, socket_inodes

pause, server = int(sys.argv[1]), int(sys.argv[2])
can = {"sees_sockets": bool(socket_inodes(server)), "sees_addresses": consumed_syn_range() is not None}
can["sees_namespaces"] = server in {process.pid for process in pod_processes()}
view = view_namespace(pause)
can["enters_namespaces"] = view is not None and view.cookie != cookie_here()
with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as rules:
    try:
        rules.bind((0, 1 << 6))
        can["hears_rules"] = True
    except PermissionError:
        can["hears_rules"] = False
try:
    programs = load_programs(cookie_here(), Path(sys.argv[3]))
    can["loads"] = all(status.attached or status.hook.name == "consume_skb" for status in programs.statuses)
except KernelSideError:
    can["loads"] = False
print(json.dumps(can))
"""


def with_capabilities(names: tuple[str, ...]) -> tuple[str, ...]:
    """A command that runs another as root with these capabilities and no way to more."""
    given = ",".join(["-all", *(f"+{name.lower()}" for name in names)])
    return ("setpriv", f"--bounding-set={given}")


@contextmanager
def pod_of_nobody(node: Node, name: str) -> Iterator[tuple[Pod, Container]]:
    """A pod that listens and is not root's. Only the system's own Python is every user's to run."""
    pod = node.start_pod(name)
    try:
        user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        container = pod.start_container([*user, "/usr/bin/python3", "-S", "-c", LISTENS])
        deadline = time.monotonic() + 5
        while not listens(pod):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield pod, container
    finally:
        pod.remove()


def listens(pod: Pod) -> bool:
    lines = Path(f"/proc/{pod.pause_pid}/net/tcp").read_text().splitlines()[1:]
    return any(fields[1].endswith(f":{PORT:04X}") and fields[3] == "0A" for fields in map(str.split, lines))


def object_of(pod: Pod) -> JsonObject:
    made = a_pod(pod.name)
    made["metadata"]["uid"] = pod.uid
    made["spec"]["containers"][0]["ports"] = [{"containerPort": PORT}]
    made["status"]["podIP"] = pod.addresses.v4
    return made


@contextmanager
def agent_of(api: ApiServer, folder: Path, around: tuple[str, ...]) -> Iterator[RunningAgent]:
    kubeconfig = write_kubeconfig(folder / "kubeconfig", api.url, api.token)
    flags = ("--kubeconfig", str(kubeconfig), "--kube-proxy-metrics", NO_KUBE_PROXY, "--cache-dir", CACHE)
    with running_agent(*flags, around=(*AS_IN_A_CONTAINER, *around)) as agent:
        agent.await_status("/readyz", 200)
        yield agent


def die(agent: RunningAgent, api: ApiServer, pod: Pod, container: Container, client: Client) -> None:
    """Refuses 3 connections once its process has ended, and leaves 2 unanswered once its network is gone."""
    api.store.update(PODS, "shop", pod.name, lambda each: deleted_at(each, "2026-01-02T00:00:30Z", 30))
    agent.await_metrics(
        lambda families: (
            pod.name
            in {s.labels["pod"] for s in families["lastcall_pod_termination_timestamp_seconds"].samples}
        )
    )
    container.kill()
    container.wait(5)
    assert client.refused(3) == 3
    pod.kill_pause()
    pod.remove_network()
    time.sleep(SETTLE_SECONDS)
    assert client.unanswered(2, 0.3) == 2
    time.sleep(SETTLE_SECONDS)


LOST = {("refused", "exited"): 3, ("unreachable", "gone"): 2}


@pytest.mark.parametrize(
    "around", [with_capabilities(least_capabilities()), ()], ids=["least capabilities", "every capability"]
)
def test_pods_older_and_younger_than_the_agent_are_counted(
    node: Node, outside: ClientNamespace, api: ApiServer, tmp_path: Path, around: tuple[str, ...]
) -> None:
    with pod_of_nobody(node, "older") as (pod, container):
        api.store.create(PODS, object_of(pod))
        with agent_of(api, tmp_path, around) as agent:
            assert {s.value for s in agent.families()["lastcall_hook_attached"].samples} == {1.0}
            with client_of(outside, pod.addresses.v4) as client:
                die(agent, api, pod, container, client)
            assert agent.dropped("older") == LOST
            with pod_of_nobody(node, "younger") as (young, process):
                api.store.create(PODS, object_of(young))
                agent.await_metrics(
                    lambda families: (
                        "younger"
                        in {s.labels["pod"] for s in families["lastcall_pod_dropped_connections"].samples}
                    )
                )
                with client_of(outside, young.addresses.v4) as client:
                    die(agent, api, young, process, client)
                assert agent.dropped("younger") == LOST
            code, written = agent.stop()
    assert code == 0
    assert "without CAP_" not in written


@pytest.mark.parametrize(
    "around", [with_capabilities(least_capabilities()), ()], ids=["least capabilities", "every capability"]
)
def test_every_thread_of_a_ready_agent_has_only_what_it_still_needs(
    api: ApiServer, tmp_path: Path, around: tuple[str, ...]
) -> None:
    kept = sum(1 << CAPABILITY_BITS[name] for name in KEPT_ONCE_ATTACHED)
    given = sum(1 << CAPABILITY_BITS[f"CAP_{name}"] for name in least_capabilities())
    with agent_of(api, tmp_path, around) as agent:
        threads = list(Path(f"/proc/{agent.process.pid}/task").iterdir())
        assert len(threads) > 3
        for thread in threads:
            status = dict(line.split(":\t") for line in (thread / "status").read_text().splitlines())
            assert int(status["CapEff"], 16) == kept, status["Name"]
            assert int(status["CapPrm"], 16) == kept, status["Name"]
            assert int(status["CapInh"], 16) == int(status["CapAmb"], 16) == 0, status["Name"]
            # Without CAP_SETPCAP the bounding set cannot be shrunk; no_new_privs holds either way.
            assert int(status["CapBnd"], 16) == (given if around else kept), status["Name"]
            assert status["NoNewPrivs"] == "1", status["Name"]


def abilities(capabilities: tuple[str, ...], pod: Pod, container: Container, cache: Path) -> dict[str, bool]:
    done = subprocess.run(
        [
            *with_capabilities(capabilities),
            *(sys.executable, "-c", LOOK),
            *(str(pod.pause_pid), str(container.pid), str(cache)),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, bool] = json.loads(done.stdout)
    return found


def addresses_are_hidden() -> bool:
    """From processes without CAP_SYSLOG, by kernel/kallsyms.c."""
    restrict, paranoid = (
        int(Path(f"/proc/sys/kernel/{name}").read_text()) for name in ("kptr_restrict", "perf_event_paranoid")
    )
    return restrict == 1 or (restrict == 0 and paranoid > 1)


@pytest.mark.parametrize(
    ("dropped", "lost"),
    [
        (None, set()),
        ("SYS_ADMIN", {"loads", "enters_namespaces"}),
        ("SYS_PTRACE", {"sees_namespaces", "enters_namespaces", "sees_sockets"}),
        ("DAC_READ_SEARCH", {"sees_sockets"}),
        ("NET_ADMIN", {"hears_rules"}),
        ("SYSLOG", {"sees_addresses"}),
    ],
)
def test_each_capability_of_the_overlay_is_needed_for_something(
    node: Node, tmp_path: Path, dropped: str | None, lost: set[str]
) -> None:
    if dropped == "SYSLOG" and not addresses_are_hidden():
        pytest.skip("this kernel shows its addresses to everybody: kernel.perf_event_paranoid is below 2")
    given = tuple(name for name in least_capabilities() if name != dropped)
    with pod_of_nobody(node, "web") as (pod, container):
        found = abilities(given, pod, container, tmp_path / "cache")
    assert {name for name, able in found.items() if not able} == lost


def test_bpf_and_perfmon_load_the_programs_but_enter_no_namespace(node: Node, tmp_path: Path) -> None:
    """Which is why the overlay has SYS_ADMIN, and neither of them beside it."""
    narrower = tuple(name for name in least_capabilities() if name != "SYS_ADMIN")
    with pod_of_nobody(node, "web") as (pod, container):
        found = abilities((*narrower, "BPF", "PERFMON"), pod, container, tmp_path / "cache")
    assert {name for name, able in found.items() if not able} == {"enters_namespaces"}
