"""A connection that fails is counted once, and so is each connection that fails after it."""

import socket
import time
from ipaddress import ip_address

import pytest

from agent.core.kinds import Kind
from agent.core.phases import Phase
from agent.kernel.kernel_side import KernelSide
from agent.lab.node.client_namespace import ClientNamespace
from agent.lab.node.node import Node
from tests.kernel.scripted_pod import REQUEST, Client, ScriptedPod, client_of, scripted_pod
from tests.kernel.scripted_server import PORT

ARRIVAL_SECONDS = 0.02


def answer_all(pod: ScriptedPod, connections: list[socket.socket]) -> None:
    """One request on each connection, answered."""
    for connection in connections:
        connection.sendall(REQUEST)
    pod.tell("read")
    pod.tell("answer")
    for connection in connections:
        connection.recv(100)


def test_a_request_of_many_segments_that_meets_several_resets_is_one_drop(
    pod: ScriptedPod, client: Client
) -> None:
    connections = client.connect(3)
    pod.tell("accept 3")
    answer_all(pod, connections)
    pod.tell("close")
    time.sleep(ARRIVAL_SECONDS)
    before = pod.resets_sent()
    for connection in connections:
        connection.setblocking(False)
        connection.send(b"x" * 400_000)
    assert pod.dropped() == {(Kind.STALE, Phase.RUNNING): 3}
    assert pod.resets_sent() - before > 3


def test_a_refusal_and_the_next_from_the_same_client_port_are_two_drops(
    pod: ScriptedPod, client: Client
) -> None:
    pod.tell("close_listener")
    client_port = 0
    for _ in range(3):
        attempt = client.new_socket()
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        attempt.bind(("0.0.0.0", client_port))
        client_port = attempt.getsockname()[1]
        with pytest.raises(ConnectionRefusedError):
            attempt.connect((pod.pod.addresses.v4, PORT))
        attempt.close()
    assert pod.dropped() == {(Kind.REFUSED, Phase.RUNNING): 3}


@pytest.mark.parametrize("deleted", [False, True])
def test_a_client_port_that_failed_and_connects_again_can_fail_again(
    pod: ScriptedPod, client: Client, deleted: bool
) -> None:
    if deleted:
        pod.delete()
    client_port = 0
    for _ in range(3):
        connection = client.new_socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        connection.bind(("0.0.0.0", client_port))
        client_port = connection.getsockname()[1]
        connection.connect((pod.pod.addresses.v4, PORT))
        connection.sendall(REQUEST)
        pod.tell("accept 1")
        time.sleep(ARRIVAL_SECONDS)
        pod.tell("close")
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
        connection.close()
    assert pod.dropped() == {(Kind.UNREAD, Phase.TERMINATING if deleted else Phase.RUNNING): 3}


def test_requests_that_follow_an_answer_within_a_clock_tick_are_unanswered_and_answered_ones_are_not(
    pod: ScriptedPod, client: Client
) -> None:
    """The kernel's own times of a connection's data cannot tell them apart: a tick is 1 to 10 ms long."""
    pod.delete()
    waiting, idle = 8, 8
    connections = client.connect(waiting + idle)
    pod.tell(f"accept {waiting + idle}")
    for _ in range(3):
        answer_all(pod, connections)
    for connection in connections[:waiting]:
        connection.sendall(REQUEST)
    pod.tell(f"read {waiting}")
    pod.kill()
    assert pod.dropped() == {(Kind.UNANSWERED, Phase.STOPPING): waiting}


def test_the_source_of_a_drop_is_one_address_whatever_the_kind_and_the_listener(
    kernel: KernelSide, bridge: Node, outside: ClientNamespace
) -> None:
    """A reset without a socket carries an IPv4 packet where the socket has an IPv6 address."""
    with (
        scripted_pod(kernel, bridge, "::") as pod,
        client_of(outside, pod.pod.addresses.v4) as client,
    ):
        for connection in client.connect(2):
            connection.sendall(REQUEST)
        pod.tell("accept 2")
        time.sleep(ARRIVAL_SECONDS)
        pod.tell("close")
        pod.tell("close_listener")
        assert client.refused(3) == 3
        assert pod.dropped() == {(Kind.UNREAD, Phase.RUNNING): 2, (Kind.REFUSED, Phase.RUNNING): 3}
        sources = kernel.read_counts().sources
        found = {address: count for (netns, address), count in sources.items() if netns == pod.netns}
        assert found == {ip_address(outside.addresses.v4): 5}


def test_a_connection_from_the_host_that_no_kubelet_made_is_a_drop(bridge: Node, pod: ScriptedPod) -> None:
    """A proxy in the host's network, or traffic that the node masquerades, has the kubelet's address."""
    pod.tell("close_listener")
    for _ in range(2):
        with socket.socket() as attempt, pytest.raises(ConnectionRefusedError):
            attempt.connect((pod.pod.addresses.v4, PORT))
    assert pod.dropped() == {(Kind.REFUSED, Phase.RUNNING): 2}
