"""The lab's node on both pod networks: what serves, what fails, what is counted, and what is left behind."""

import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import agent
from agent.lab.node.address_plan import plan_of_run
from agent.lab.node.cgroup import CgroupDriver
from agent.lab.node.client_namespace import ClientNamespace
from agent.lab.node.clients import LoadPlan, LoadResult
from agent.lab.node.errors import NodeError
from agent.lab.node.ingress import Ingress
from agent.lab.node.network import Cni
from agent.lab.node.nginx_conf import IngressSettings
from agent.lab.node.node import Node
from agent.lab.node.outcome import Outcome, Via
from agent.lab.node.probe import ProbeKind, ProbeResult, ProbeTarget
from agent.lab.node.server import OnStop, ServerSettings, server_argv
from agent.lab.node.service import Endpoint, Service
from agent.lab.node.sweep import sweep
from tests.e2e.lab_node import PORT, Client, Served, serving

ADDRESS_FAMILIES = ("v4", "v6")
HOST_HAS_DEFAULT_ROUTE = any(
    line.split()[1] == "00000000" for line in Path("/proc/net/route").read_text().splitlines()
)


@pytest.fixture(scope="module", params=list(Cni))
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    with Node.start(request.param) as node:
        yield node


@pytest.fixture(scope="module")
def clients(node: Node) -> ClientNamespace:
    return node.client_namespace("clients")


SERVICE_NUMBERS = itertools.count(1)


@pytest.fixture
def service(node: Node) -> Iterator[Service]:
    service = node.service(f"web-{next(SERVICE_NUMBERS)}", port=80)
    yield service
    service.remove()


def load(node: Node, clients: ClientNamespace, plan: LoadPlan) -> LoadResult:
    """Run one load generator to its end."""
    running = node.start_load(clients, plan)
    assert running.wait(30.0)
    return running.result()


def outcomes(result: LoadResult) -> Counter[Outcome]:
    return Counter(failure.outcome for failure in result.failures)


def links_of(node: Node) -> int:
    """How many pod interfaces the run has on the host."""
    return len(list(Path("/proc/sys/net/ipv4/conf").glob(f"lc{node.lease.index}v*")))


def endpoint(served: Served) -> Endpoint:
    return Endpoint(served.addresses, PORT)


@pytest.mark.parametrize("family", ADDRESS_FAMILIES)
def test_every_pod_answers_through_the_service(
    node: Node, clients: ClientNamespace, service: Service, family: str
) -> None:
    with serving(node, name="a") as a, serving(node, name="b") as b:
        service.sync([endpoint(a), endpoint(b)])
        host = getattr(service, family)
        result = load(node, clients, LoadPlan(host, 80, Via.SERVICE, seconds=5.0, rate=200.0, requests=40))
    assert (result.sent, result.answered, result.connections) == (40, 40, 40)
    assert result.by_pod.keys() == {"a", "b"}
    assert sum(result.by_pod.values()) == 40
    assert result.delayed == []


@pytest.mark.parametrize("family", ADDRESS_FAMILIES)
def test_every_pod_answers_through_nginx(node: Node, clients: ClientNamespace, family: str) -> None:
    with serving(node, name="a") as a, serving(node, name="b") as b:
        settings = IngressSettings(ipv6=family == "v6")
        ingress = Ingress.start(node, clients, [endpoint(a), endpoint(b)], settings)
        host = getattr(ingress, family)
        plan = LoadPlan(
            host, 80, Via.INGRESS, seconds=5.0, rate=200.0, requests=40, method="POST", body_bytes=9
        )
        result = load(node, clients, plan)
        ingress.stop()
    assert (result.sent, result.answered) == (40, 40)
    assert result.by_pod == {"a": 20, "b": 20}
    assert len(ingress.requests()) == 40
    assert ingress.failures() == []


def test_kept_alive_connections_carry_many_requests(
    node: Node, clients: ClientNamespace, service: Service
) -> None:
    with serving(node) as served:
        service.sync([endpoint(served)])
        plan = LoadPlan(
            service.v4, 80, Via.SERVICE, seconds=5.0, rate=200.0, requests=60, keep_alive=True, connections=4
        )
        result = load(node, clients, plan)
    assert (result.sent, result.answered, result.connections) == (60, 60, 4)


@pytest.mark.skipif(not HOST_HAS_DEFAULT_ROUTE, reason="a host without a default route reaches no Service")
def test_a_host_process_reaches_the_service_too(node: Node, service: Service) -> None:
    with serving(node, name="a") as served:
        service.sync([Endpoint(served.addresses, PORT)])
        with socket.create_connection((service.v4, 80), 2.0) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("family", ADDRESS_FAMILIES)
def test_a_service_without_endpoints_rejects_and_no_pod_is_blamed(
    node: Node, clients: ClientNamespace, service: Service, family: str
) -> None:
    plan = LoadPlan(getattr(service, family), 80, Via.SERVICE, seconds=5.0, rate=200.0, requests=40)
    result = load(node, clients, plan)
    assert outcomes(result) == {Outcome.REJECTED: 40}
    assert not any(failure.outcome.of_a_pod for failure in result.failures)


def test_a_service_follows_its_endpoints(node: Node, clients: ClientNamespace, service: Service) -> None:
    def answering() -> set[str]:
        plan = LoadPlan(service.v4, 80, Via.SERVICE, seconds=5.0, rate=300.0, requests=20)
        return set(load(node, clients, plan).by_pod)

    with serving(node, name="a") as a, serving(node, name="b") as b:
        assert service.sync([endpoint(a)])
        assert not service.sync([endpoint(a)])
        assert answering() == {"a"}
        service.sync([endpoint(b)])
        assert answering() == {"b"}
        service.sync([endpoint(a), endpoint(b)])
        assert answering() == {"a", "b"}
        service.sync([])
        assert answering() == set()
        service.sync([endpoint(a)])
        assert answering() == {"a"}


def test_connections_to_a_killed_server_are_counted_as_the_pods_kernel_reset_them(
    node: Node, clients: ClientNamespace, service: Service
) -> None:
    with serving(node) as served:
        service.sync([endpoint(served)])
        plans = [
            LoadPlan(host, 80, Via.SERVICE, seconds=1.0, rate=150.0, method=method, body_bytes=50)
            for host in (service.v4, str(service.v6))
            for method in ("GET", "POST")
        ]
        loads = [node.start_load(clients, plan) for plan in plans]
        time.sleep(0.7)
        served.container.kill()
        assert served.container.wait(1.0) == -signal.SIGKILL
        assert all(running.wait(20.0) for running in loads)
        results = [running.result() for running in loads]
        resets = served.resets_sent()
    for result in results:
        assert result.sent == result.answered + len(result.failures)
        assert result.answered > 0
        assert outcomes(result)[Outcome.REFUSED] > 0
    counts = sum((outcomes(result) for result in results), Counter[Outcome]())
    assert counts.keys() <= {Outcome.REFUSED, Outcome.RESET, Outcome.TRUNCATED}
    assert counts[Outcome.REFUSED] + counts[Outcome.RESET] == resets


def test_requests_cut_by_an_exit_are_truncated_and_cost_no_reset(
    node: Node, clients: ClientNamespace, service: Service
) -> None:
    settings = ServerSettings(on_stop=OnStop.EXIT, answer_after_ms=3000.0)
    with serving(node, settings) as served:
        service.sync([endpoint(served)])
        plan = LoadPlan(service.v4, 80, Via.SERVICE, seconds=5.0, rate=200.0, requests=30)
        running = node.start_load(clients, plan)
        time.sleep(1.2)
        served.container.stop_signal(signal.SIGTERM)
        assert running.wait(10.0)
        resets = served.resets_sent()
    assert outcomes(running.result()) == {Outcome.TRUNCATED: 30}
    assert resets == 0


def test_large_requests_that_are_not_read_are_one_failed_connection_each(
    node: Node, clients: ClientNamespace, service: Service
) -> None:
    settings = ServerSettings(on_stop=OnStop.STALL, exit_after_s=1.5)
    with serving(node, settings) as served:
        service.sync([endpoint(served)])
        served.container.stop_signal(signal.SIGTERM)
        time.sleep(0.1)
        plan = LoadPlan(
            service.v4,
            80,
            Via.SERVICE,
            seconds=5.0,
            rate=200.0,
            requests=20,
            method="POST",
            body_bytes=400_000,
        )
        result = load(node, clients, plan)
    assert outcomes(result) == {Outcome.RESET: 20}


def test_a_request_on_a_connection_closed_while_idle_fails_only_if_the_client_does_not_look(
    node: Node, clients: ClientNamespace, service: Service
) -> None:
    def play(*, check_idle: bool) -> LoadResult:
        with serving(node, name="old") as old, serving(node, name="new") as new:
            service.sync([endpoint(old)])
            plan = LoadPlan(
                service.v4,
                80,
                Via.SERVICE,
                2.0,
                rate=20.0,
                keep_alive=True,
                connections=10,
                check_idle=check_idle,
            )
            running = node.start_load(clients, plan)
            time.sleep(1.0)
            service.sync([endpoint(new)])
            old.container.stop_signal(signal.SIGTERM)
            assert running.wait(20.0)
            result = running.result()
            assert old.resets_sent() == len(result.failures)
            return result

    looking = play(check_idle=True)
    assert looking.failures == []
    assert looking.idle_closed == 10
    blind = play(check_idle=False)
    assert len(blind.failures) == 10
    assert all(failure.reused and failure.closed_before_request for failure in blind.failures)
    assert outcomes(blind).keys() <= {Outcome.TRUNCATED, Outcome.RESET}


@pytest.mark.parametrize("family", ADDRESS_FAMILIES)
def test_connections_to_a_pod_whose_network_is_gone_time_out(
    node: Node, clients: ClientNamespace, service: Service, family: str
) -> None:
    host = getattr(service, family)
    with serving(node) as served:
        service.sync([endpoint(served)])
        load(node, clients, LoadPlan(host, 80, Via.SERVICE, seconds=5.0, rate=200.0, requests=5))
        served.pod.remove()
        result = load(
            node, clients, LoadPlan(host, 80, Via.SERVICE, 5.0, 100.0, requests=20, connect_timeout_s=1.5)
        )
    assert outcomes(result) == {Outcome.TIMED_OUT: 20}
    assert all(failure.time_ns - failure.started_ns >= 1_500_000_000 for failure in result.failures)


def test_a_request_under_way_when_the_network_goes_gets_no_answer(
    node: Node, clients: ClientNamespace, service: Service
) -> None:
    with serving(node, ServerSettings(answer_after_ms=3000.0)) as served:
        service.sync([endpoint(served)])
        plan = LoadPlan(
            service.v4, 80, Via.SERVICE, seconds=5.0, rate=200.0, requests=5, answer_timeout_s=1.5
        )
        running = node.start_load(clients, plan)
        time.sleep(0.8)
        served.pod.remove_network()
        assert running.wait(10.0)
    assert outcomes(running.result()) == {Outcome.NO_ANSWER: 5}


def test_a_first_choice_that_is_gone_delays_a_routed_connection_and_fails_a_bridged_one(
    node: Node, clients: ClientNamespace, service: Service
) -> None:
    with serving(node, name="dead") as dead, serving(node, name="live") as live:
        service.sync([endpoint(dead), endpoint(live)])
        load(node, clients, LoadPlan(service.v4, 80, Via.SERVICE, seconds=5.0, rate=200.0, requests=20))
        dead.pod.remove()
        running = node.start_load(
            clients, LoadPlan(service.v4, 80, Via.SERVICE, seconds=5.0, rate=300.0, requests=30)
        )
        time.sleep(0.8)
        service.sync([endpoint(live)])
        assert running.wait(10.0)
    result = running.result()
    hit = len(result.delayed) + outcomes(result)[Outcome.TIMED_OUT]
    assert 0 < hit < 30
    assert result.sent == result.answered + len(result.failures)
    if node.network.cni is Cni.ROUTED:
        assert len(result.delayed) == hit
    else:
        assert outcomes(result) == {Outcome.TIMED_OUT: hit}


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_nginx_retries_a_get_on_another_pod_and_turns_a_post_into_a_502(
    node: Node, clients: ClientNamespace, method: str
) -> None:
    slow = ServerSettings(on_stop=OnStop.EXIT, answer_after_ms=3000.0)
    with serving(node, slow, name="dying") as dying, serving(node, name="live") as live:
        ingress = Ingress.start(node, clients, [endpoint(dying), endpoint(live)])
        plan = LoadPlan(ingress.v4, 80, Via.INGRESS, seconds=3.0, rate=100.0, requests=10, method=method)
        running = node.start_load(clients, plan)
        time.sleep(1.0)
        dying.container.stop_signal(signal.SIGTERM)
        assert running.wait(10.0)
        ingress.stop()
    result = running.result()
    cut = ingress.failures()
    assert [(failure.outcome, failure.remote) for failure in cut] == [
        (Outcome.TRUNCATED, dying.addresses.v4)
    ] * 5
    assert result.by_pod == {"live": 10 if method == "GET" else 5}
    assert outcomes(result) == ({} if method == "GET" else {Outcome.HTTP_ERROR: 5})


def test_nginx_answers_503_without_upstreams_and_follows_a_reload(
    node: Node, clients: ClientNamespace
) -> None:
    with serving(node) as served:
        ingress = Ingress.start(node, clients, [])
        plan = LoadPlan(ingress.v4, 80, Via.INGRESS, seconds=3.0, rate=200.0, requests=10)
        before = load(node, clients, plan)
        ingress.reload([endpoint(served)])
        after = load(node, clients, plan)
        ingress.stop()
    assert [failure.detail for failure in before.failures] == ["503"] * 10
    assert after.answered == 10
    assert ingress.failures() == []


def test_two_runs_at_once_do_not_meet(node: Node) -> None:
    with serving(node) as served:
        with Node.start(node.network.cni) as other:
            assert other.lease.plan != node.lease.plan
            with serving(other) as theirs, Client(theirs.addresses.v4) as client:
                assert client.ask().startswith("HTTP/1.1 200")
        with Client(served.addresses.v4) as client:
            assert client.ask().startswith("HTTP/1.1 200")


def test_containers_are_where_the_kubelet_would_put_them(node: Node) -> None:
    with serving(node) as served:
        container, pod = served.container, served.pod
        status = Path(f"/proc/{container.pid}/status").read_text()
        namespaces = next(line for line in status.splitlines() if line.startswith("NSpid:"))
        assert namespaces.split()[-1] == "1"
        assert os.stat(f"/proc/{container.pid}/ns/net").st_ino == pod.netns_inode
        assert os.stat(f"/proc/{pod.pause_pid}/ns/net").st_ino == pod.netns_inode
        assert Path(f"/proc/{pod.pause_pid}/comm").read_text() == "pause\n"
        suffix = f"/kubepods/burstable/pod{pod.uid}/{container.container_id}"
        assert str(container.cgroup_path).endswith(suffix)
        assert f"0::{suffix}\n" in Path(f"/proc/{container.pid}/cgroup").read_text()
        hook = container.exec_in(["/bin/sh", "-c", "exec sleep 5"])
        assert f"0::{suffix}\n" in Path(f"/proc/{hook.pid}/cgroup").read_text()
        assert os.readlink(f"/proc/{hook.pid}/ns/pid") == os.readlink(f"/proc/{container.pid}/ns/pid")
        assert os.stat(f"/proc/{hook.pid}/ns/net").st_ino == pod.netns_inode
        assert container.exec_in(["/bin/sh", "-c", "exit 7"]).wait(2.0) == 7
        container.kill()
        container.wait(2.0)
        assert hook.wait(2.0) == -signal.SIGKILL
        with pytest.raises(NodeError, match="not running"):
            container.exec_in(["/bin/true"])


def test_a_program_that_cannot_be_executed_is_one_clear_error(node: Node) -> None:
    with serving(node) as served, pytest.raises(NodeError, match=r"^cannot start /no/such: .*No such file"):
        served.container.exec_in(["/no/such"])


def test_a_second_container_takes_the_first_ones_place_in_the_pod(node: Node) -> None:
    with serving(node) as served:
        first = served.container
        first.stop_signal(signal.SIGTERM)
        assert first.wait(2.0) == 0
        second = served.pod.start_container(server_argv(ServerSettings()), {"POD_NAME": "web"})
        assert second.container_id != first.container_id
        time.sleep(0.3)
        with Client(served.addresses.v4) as client:
            assert client.ask().startswith("HTTP/1.1 200")


def test_a_removed_pod_leaves_nothing(node: Node) -> None:
    with serving(node) as served:
        pod = served.pod
        cgroup = served.container.cgroup_path
        links = links_of(node)
        pids = [served.container.pid, pod.pause_pid]
    assert not pod.netns_path.exists()
    assert not cgroup.parent.exists()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert links_of(node) == links - 1


def test_a_prober_is_named_kubelet_and_reports_what_a_kubelet_would(node: Node) -> None:
    results: list[ProbeResult] = []
    prober = node.prober()
    with serving(node) as served:
        target = ProbeTarget("web/ready", ProbeKind.HTTP_GET, served.addresses.v4, PORT, "/readyz", 0.1)
        prober.watch(target, results.append)
        tcp = ProbeTarget("web/tcp", ProbeKind.TCP_SOCKET, served.addresses.v4, PORT, period_s=0.1)
        prober.watch(tcp, results.append)
        time.sleep(0.8)
        assert Path(f"/proc/{prober.pid}/comm").read_text() == "kubelet\n"
        served.container.kill()
        served.container.wait(1.0)
        time.sleep(0.3)
        prober.forget("web/ready")
        prober.forget("web/tcp")
        seen = len(results)
    for name, detail in (("web/ready", "200"), ("web/tcp", "connected")):
        own = [result for result in results if result.name == name]
        assert {result.detail for result in own if result.success} == {detail}
        assert (own[-1].success, own[-1].detail) == (False, "ECONNREFUSED")
    time.sleep(0.3)
    assert len(results) == seen


DYING_RUN = """
import os, signal
from agent.lab.node.address_plan import plan_of_run
from agent.lab.node.cgroup import CgroupDriver
from agent.lab.node.network import Cni
from agent.lab.node.node import Node
from agent.lab.node.server import ServerSettings, server_argv
node = Node.start(Cni("{cni}"), CgroupDriver("{driver}"))
node.client_namespace("clients")
node.service("web", 80)
pod = node.start_pod("web")
container = pod.start_container(server_argv(ServerSettings()))
print(node.lease.index, node.directory, pod.netns_path, container.pid, pod.pause_pid, flush=True)
print(container.cgroup_path, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("cni", "driver"), list(zip(Cni, CgroupDriver, strict=True)))
def test_what_a_killed_run_left_is_swept(cni: Cni, driver: CgroupDriver) -> None:
    dead = subprocess.run(
        [sys.executable, "-c", DYING_RUN.format(cni=cni, driver=driver)],
        capture_output=True,
        text=True,
        timeout=20.0,
        env={**os.environ, "PYTHONPATH": str(Path(agent.__file__).parents[1])},
        check=False,
    )
    assert dead.returncode == -signal.SIGKILL
    index, directory, netns, pid, pause, cgroup = dead.stdout.split()
    deadline = time.monotonic() + 2.0
    while Path(f"/proc/{pid}").exists() or Path(f"/proc/{pause}").exists():
        assert time.monotonic() < deadline, "the pods outlived their run"
        time.sleep(0.01)
    sweep()
    assert not any(Path(path).exists() for path in (directory, netns, cgroup))
    assert not list(Path("/proc/sys/net/ipv4/conf").glob(f"lc{index}[bv]*"))
    tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
    assert f"lastcall-lab-{index}-" not in tables
    routes = subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout
    assert str(plan_of_run(int(index)).pods_v4) not in routes
