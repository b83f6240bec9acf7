"""What looks like a drop and is none: each made for real, and nothing counted."""

import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from agent.core.kinds import Kind
from agent.core.phases import Phase
from agent.kernel.kernel_side import KernelSide
from agent.lab.node.client_namespace import ClientNamespace
from agent.lab.node.node import Node
from agent.lab.node.probe import ProbeKind, ProbeResult, ProbeTarget
from tests.kernel.scripted_pod import REQUEST, Client, ScriptedPod, client_of, scripted_pod
from tests.kernel.scripted_server import PORT


@pytest.fixture
def pod(kernel: KernelSide, bridge: Node) -> Iterator[ScriptedPod]:
    with scripted_pod(kernel, bridge) as started:
        started.delete()
        yield started


@pytest.fixture
def client(outside: ClientNamespace, pod: ScriptedPod) -> Iterator[Client]:
    with client_of(outside, pod.pod.addresses.v4) as made:
        yield made


def nothing_counted(pod: ScriptedPod) -> bool:
    tally = pod.tally()
    return not tally.dropped and not tally.late


def test_probes_of_the_kubelet_are_neither_drops_nor_late(bridge: Node, pod: ScriptedPod) -> None:
    results: list[ProbeResult] = []
    some = threading.Event()

    def receive(result: ProbeResult) -> None:
        results.append(result)
        if len(results) >= 3:
            some.set()

    prober = bridge.prober()
    target = ProbeTarget("p", ProbeKind.TCP_SOCKET, pod.pod.addresses.v4, PORT, period_s=0.1)
    prober.watch(target, receive)
    assert some.wait(5)
    assert all(result.success for result in results)
    pod.tell("close_listener")
    results.clear()
    some.clear()
    assert some.wait(5)
    prober.forget("p")
    assert not any(result.success for result in results[1:])
    assert nothing_counted(pod)


def test_a_client_that_aborts_is_no_drop(pod: ScriptedPod, client: Client) -> None:
    (connection,) = client.connect()
    pod.tell("accept 1")
    connection.sendall(REQUEST)
    pod.tell("read")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    time.sleep(0.02)
    pod.tell("close")
    assert pod.dropped() == {}


def test_a_client_that_leaves_an_answer_unread_is_no_drop(pod: ScriptedPod, client: Client) -> None:
    (connection,) = client.connect()
    pod.tell("accept 1")
    connection.sendall(REQUEST)
    pod.tell("read")
    pod.tell("answer")
    time.sleep(0.02)
    connection.close()
    time.sleep(0.02)
    pod.tell("close")
    assert pod.dropped() == {}


def test_a_client_that_closed_before_it_was_answered_is_no_drop(pod: ScriptedPod, client: Client) -> None:
    (connection,) = client.connect()
    connection.sendall(REQUEST)
    connection.close()
    pod.tell("accept 1")
    pod.tell("close")
    assert pod.dropped() == {}


def test_a_scan_of_ports_never_served_is_no_drop(pod: ScriptedPod, client: Client) -> None:
    assert sum(client.refused(1, port) for port in range(9000, 9020)) == 20
    assert pod.dropped() == {}


def test_traffic_inside_the_pod_is_no_drop(pod: ScriptedPod) -> None:
    pod.tell("close_listener")
    pod.tell(f"connect 127.0.0.1 {PORT}")
    pod.tell(f"connect {pod.pod.addresses.v4} {PORT}")
    assert nothing_counted(pod)


def test_an_idle_kept_alive_connection_closed_at_exit_is_no_drop(pod: ScriptedPod, client: Client) -> None:
    (connection,) = client.connect()
    pod.tell("accept 1")
    connection.sendall(REQUEST)
    pod.tell("read")
    pod.tell("answer")
    connection.recv(100)
    pod.tell("exit")
    pod.container.wait(5)
    assert pod.dropped() == {}


def test_a_connection_without_a_request_closed_at_exit_is_no_drop(pod: ScriptedPod, client: Client) -> None:
    client.connect()
    pod.tell("accept 1")
    pod.tell("exit")
    pod.container.wait(5)
    assert pod.dropped() == {}


def test_a_half_close_is_no_drop(pod: ScriptedPod, client: Client) -> None:
    (connection,) = client.connect()
    pod.tell("accept 1")
    connection.sendall(REQUEST)
    pod.tell("read")
    pod.tell("half_close")
    assert pod.dropped() == {}


def test_a_reset_that_the_pod_receives_as_a_client_is_no_drop(
    kernel: KernelSide, bridge: Node, pod: ScriptedPod
) -> None:
    with scripted_pod(kernel, bridge) as other:
        other.delete()
        other.tell("close_listener")
        pod.tell(f"connect {other.pod.addresses.v4} {PORT}")
        assert nothing_counted(pod)
        assert other.dropped() == {(Kind.REFUSED, Phase.CLOSED): 1}


def test_a_reopened_port_is_not_closed(pod: ScriptedPod, client: Client) -> None:
    pod.tell("open_listener")
    pod.tell("close_listener")
    client.connect()
    assert pod.tally().late == {Phase.TERMINATING: 1}


def test_a_signal_from_inside_the_container_is_no_stop_signal(pod: ScriptedPod, client: Client) -> None:
    pod.tell("kill_self")
    client.connect()
    assert pod.tally().late == {Phase.TERMINATING: 1}


def test_a_hangup_of_a_live_pod_is_no_stop_signal(
    kernel: KernelSide, bridge: Node, outside: ClientNamespace
) -> None:
    with scripted_pod(kernel, bridge) as live, client_of(outside, live.pod.addresses.v4) as client:
        live.container.stop_signal(1)
        live.tell("close_listener")
        assert client.refused(1) == 1
        assert live.dropped() == {(Kind.REFUSED, Phase.RUNNING): 1}


@pytest.mark.parametrize("signal_number", [3, 15])
def test_any_stop_signal_from_outside_begins_the_stopping_phase(
    pod: ScriptedPod, client: Client, signal_number: int
) -> None:
    pod.container.stop_signal(signal_number)
    client.connect()
    assert pod.tally().late == {Phase.STOPPING: 1}
