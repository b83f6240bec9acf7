"""What looks like a drop and is none: each made for real, and nothing counted."""

import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from queue import Queue

import pytest

from agent.core.kinds import Kind
from agent.core.phases import Phase
from agent.kernel.kernel_side import KernelSide
from agent.lab.node.client_namespace import ClientNamespace
from agent.lab.node.node import Node
from agent.lab.node.probe import ProbeKind, Prober, ProbeResult, ProbeTarget
from tests.kernel.raw_segments import Flags, send_segment
from tests.kernel.scripted_pod import REQUEST, Client, ScriptedPod, client_of, scripted_pod
from tests.kernel.scripted_server import PORT


@pytest.fixture
def pod(kernel: KernelSide, bridge: Node) -> Iterator[ScriptedPod]:
    with scripted_pod(kernel, bridge) as started:
        started.delete()
        yield started


def nothing_counted(pod: ScriptedPod) -> bool:
    tally = pod.tally()
    return not tally.dropped and not tally.late


class Probing:
    """Probes of one pod's port by a process named kubelet, and how they ended."""

    def __init__(self, prober: Prober, pod: ScriptedPod) -> None:
        self._prober = prober
        self._target = ProbeTarget(pod.pod.uid, ProbeKind.HTTP_GET, pod.pod.addresses.v4, PORT, timeout_s=3)
        self._results: Queue[ProbeResult] = Queue()

    def start(self, kind: ProbeKind, period_s: float) -> None:
        self._prober.watch(replace(self._target, kind=kind, period_s=period_s), self._results.put)

    def next_success(self) -> bool:
        """How the next probe ended."""
        return self._results.get(timeout=5).success

    def stop(self) -> None:
        self._prober.forget(self._target.name)


@pytest.fixture
def probing(bridge: Node, pod: ScriptedPod) -> Iterator[Probing]:
    prober = bridge.prober()
    started = Probing(prober, pod)
    yield started
    started.stop()
    prober.close()


def test_probes_of_the_kubelet_are_neither_drops_nor_late(pod: ScriptedPod, probing: Probing) -> None:
    probing.start(ProbeKind.TCP_SOCKET, 0.1)
    assert all(probing.next_success() for _ in range(3))
    pod.tell("close_listener")
    while probing.next_success():
        pass
    assert not any(probing.next_success() for _ in range(3))
    assert nothing_counted(pod)


def test_a_probe_that_waits_for_its_answer_when_the_pod_ends_is_no_drop(
    pod: ScriptedPod, probing: Probing
) -> None:
    probing.start(ProbeKind.HTTP_GET, 5)
    pod.tell("accept 1")
    pod.tell("read")
    pod.kill()
    assert not probing.next_success()
    assert nothing_counted(pod)


def test_a_probe_that_was_never_accepted_is_no_drop(pod: ScriptedPod, probing: Probing) -> None:
    probing.start(ProbeKind.HTTP_GET, 5)
    pod.wait_queued(1)
    pod.tell("close_listener")
    assert not probing.next_success()
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


@pytest.mark.parametrize("aborts", [False, True])
def test_a_client_that_left_the_accept_queue_is_no_drop(
    pod: ScriptedPod, client: Client, aborts: bool
) -> None:
    (connection,) = client.connect()
    connection.sendall(REQUEST)
    if aborts:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    time.sleep(0.02)
    pod.tell("close_listener")
    assert pod.dropped() == {}


def test_a_kept_alive_connection_that_the_pod_closes_while_idle_is_no_drop(
    pod: ScriptedPod, client: Client
) -> None:
    (connection,) = client.connect()
    pod.tell("accept 1")
    for _ in range(2):
        connection.sendall(REQUEST)
        pod.tell("read")
        pod.tell("answer")
        connection.recv(100)
    pod.tell("close")
    assert connection.recv(100) == b""
    connection.close()
    assert pod.dropped() == {}


def test_a_scan_of_ports_never_served_is_no_drop(pod: ScriptedPod, client: Client) -> None:
    assert sum(client.refused(1, port) for port in range(9000, 9020)) == 20
    assert pod.dropped() == {}


@pytest.mark.parametrize(
    "flags",
    [Flags.ACK, Flags.FIN, Flags.FIN | Flags.PUSH | Flags.URGENT, Flags.FIN | Flags.ACK, Flags.NONE],
    ids=["ack", "fin", "xmas", "fin-ack", "null"],
)
def test_a_scan_with_segments_that_open_nothing_is_no_drop(
    pod: ScriptedPod, outside: ClientNamespace, flags: Flags
) -> None:
    pod.tell("open_listener 8081")
    pod.tell("close_listener")
    for port in (PORT, 8081):
        send_segment(outside, pod.pod.addresses.v4, port, flags)
    assert nothing_counted(pod)
    assert pod.resets_sent() >= 1


def test_a_half_open_scan_of_a_served_port_is_no_drop(pod: ScriptedPod, outside: ClientNamespace) -> None:
    send_segment(outside, pod.pod.addresses.v4, PORT, Flags.SYN)
    time.sleep(0.02)
    pod.tell("close_listener")
    assert nothing_counted(pod)


@pytest.fixture(params=["127.0.0.1", "127.0.0.2", "own"])
def inside(request: pytest.FixtureRequest, pod: ScriptedPod) -> str:
    """An address by which the pod reaches itself; to 127.0.0.2 it comes from another, 127.0.0.1."""
    return pod.pod.addresses.v4 if request.param == "own" else str(request.param)


def test_a_refusal_inside_the_pod_is_no_drop(pod: ScriptedPod, inside: str) -> None:
    pod.tell("close_listener")
    before = pod.resets_sent()
    pod.tell(f"connect {inside} {PORT}")
    assert pod.resets_sent() > before
    assert nothing_counted(pod)


def test_a_request_inside_the_pod_is_neither_late_nor_dropped(pod: ScriptedPod, inside: str) -> None:
    for _ in range(3):
        pod.tell(f"request {inside} {PORT}")
    pod.tell("accept 2")
    pod.tell("read 1")
    pod.tell("close")
    pod.tell("close_listener")
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


def test_a_request_of_the_pod_that_its_server_resets_is_the_servers_drop(
    kernel: KernelSide, bridge: Node, pod: ScriptedPod
) -> None:
    with scripted_pod(kernel, bridge) as other:
        other.delete()
        pod.tell(f"request {other.pod.addresses.v4} {PORT}")
        other.tell("accept 1")
        other.tell("read")
        other.tell("abort")
        pod.kill()
        assert nothing_counted(pod)
        assert other.dropped() == {(Kind.ABORTED, Phase.TERMINATING): 1}


def test_a_pod_that_ends_with_a_request_of_its_own_under_way_dropped_nothing(
    kernel: KernelSide, bridge: Node, pod: ScriptedPod
) -> None:
    with scripted_pod(kernel, bridge) as other:
        pod.tell(f"request {other.pod.addresses.v4} {PORT}")
        other.tell("accept 1")
        other.tell("read")
        other.tell("answer")
        pod.kill()
        time.sleep(0.02)
        other.kill()
        assert nothing_counted(pod)
        assert nothing_counted(other)


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
