"""Every kind of drop, made for real: both pod networks; IPv4, IPv6, and IPv4 to a dual-stack listener."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address

import pytest

from agent.core.kinds import Kind
from agent.core.orders import MarkAddressGone
from agent.core.phases import Phase
from agent.kernel.kernel_side import KernelSide
from agent.lab.node.client_namespace import ClientNamespace
from agent.lab.node.node import Node
from tests.kernel.scripted_pod import REQUEST, Client, ScriptedPod, client_of, scripted_pod
from tests.kernel.scripted_server import PORT


@dataclass(frozen=True)
class Family:
    """What the server listens on, and which of the pod's addresses the client takes."""

    name: str
    host: str
    v6: bool


FAMILIES = (
    Family("ipv4", "0.0.0.0", v6=False),
    Family("ipv6", "::", v6=True),
    Family("mapped", "::", v6=False),
)


@pytest.fixture(params=FAMILIES, ids=lambda family: str(family.name))
def family(request: pytest.FixtureRequest) -> Family:
    chosen: Family = request.param
    return chosen


def address_of(pod: ScriptedPod, family: Family) -> str | None:
    return pod.pod.addresses.v6 if family.v6 else pod.pod.addresses.v4


@pytest.fixture
def pod(kernel: KernelSide, node: Node, family: Family) -> Iterator[ScriptedPod]:
    with scripted_pod(kernel, node, family.host) as started:
        yield started


@pytest.fixture
def client(namespace: ClientNamespace, pod: ScriptedPod, family: Family) -> Iterator[Client]:
    with client_of(namespace, address_of(pod, family)) as made:
        yield made


def test_a_syn_to_a_closed_listener_is_refused(pod: ScriptedPod, client: Client) -> None:
    pod.delete()
    pod.tell("close_listener")
    assert client.refused(3) == 3
    assert pod.dropped() == {(Kind.REFUSED, Phase.CLOSED): 3}


def test_a_refusal_before_the_first_listen_counts_once_the_port_is_served(
    kernel: KernelSide, node: Node, namespace: ClientNamespace, family: Family
) -> None:
    with (
        scripted_pod(kernel, node, family.host, listening=False) as pod,
        client_of(namespace, address_of(pod, family)) as client,
    ):
        assert client.refused(2) == 2
        assert pod.dropped() == {}
        pod.tell("open_listener")
        assert pod.dropped() == {(Kind.REFUSED, Phase.STARTING): 2}


def test_data_on_a_connection_that_the_pod_has_closed_is_stale(pod: ScriptedPod, client: Client) -> None:
    pod.delete()
    connections = client.connect(2)
    pod.tell("accept 2")
    for connection in connections:
        connection.sendall(REQUEST)
    pod.tell("read")
    pod.tell("answer")
    pod.tell("close")
    time.sleep(0.02)
    for connection in connections:
        connection.sendall(REQUEST)
    assert pod.dropped() == {(Kind.STALE, Phase.TERMINATING): 2}


def test_two_resets_for_one_large_request_are_one_drop(pod: ScriptedPod, client: Client) -> None:
    (connection,) = client.connect()
    pod.tell("accept 1")
    connection.sendall(REQUEST)
    pod.tell("read")
    pod.tell("answer")
    pod.tell("close")
    time.sleep(0.02)
    connection.setblocking(False)
    connection.send(b"x" * 400_000)
    assert pod.dropped() == {(Kind.STALE, Phase.RUNNING): 1}


def test_a_connection_that_waits_when_the_listener_closes_is_unaccepted(
    pod: ScriptedPod, client: Client
) -> None:
    pod.delete()
    client.connect(3)
    pod.tell("close_listener")
    assert pod.dropped() == {(Kind.UNACCEPTED, Phase.TERMINATING): 3}


def test_a_request_that_nobody_read_is_unread(pod: ScriptedPod, client: Client) -> None:
    pod.delete()
    for connection in client.connect(2):
        connection.sendall(REQUEST)
    pod.tell("accept 2")
    time.sleep(0.02)
    pod.tell("close")
    assert pod.dropped() == {(Kind.UNREAD, Phase.TERMINATING): 2}


def test_a_request_that_was_read_and_not_answered_is_unanswered(pod: ScriptedPod, client: Client) -> None:
    pod.delete()
    for connection in client.connect(2):
        connection.sendall(REQUEST)
    pod.tell("accept 2")
    pod.tell("read")
    pod.tell("close")
    assert pod.dropped() == {(Kind.UNANSWERED, Phase.TERMINATING): 2}


def test_an_unanswered_request_that_goes_on_into_a_reset_is_one_drop(
    pod: ScriptedPod, client: Client
) -> None:
    pod.delete()
    (connection,) = client.connect()
    connection.sendall(REQUEST)
    pod.tell("accept 1")
    pod.tell("read")
    pod.tell("close")
    before = pod.resets_sent()
    with contextlib.suppress(OSError):
        for _ in range(3):
            connection.sendall(b"the rest of the body")
            time.sleep(0.01)
    assert pod.resets_sent() > before
    assert pod.dropped() == {(Kind.UNANSWERED, Phase.TERMINATING): 1}


def test_the_second_request_within_one_clock_tick_is_unanswered_too(pod: ScriptedPod, client: Client) -> None:
    pod.delete()
    (connection,) = client.connect()
    pod.tell("accept 1")
    for _ in range(5):
        connection.sendall(REQUEST)
        pod.tell("read")
        pod.tell("answer")
        connection.recv(100)
    connection.sendall(REQUEST)
    pod.tell("read")
    pod.tell("close")
    assert pod.dropped() == {(Kind.UNANSWERED, Phase.TERMINATING): 1}


def test_a_linger_close_with_a_request_in_flight_is_aborted(pod: ScriptedPod, client: Client) -> None:
    pod.delete()
    for connection in client.connect(2):
        connection.sendall(REQUEST)
    pod.tell("accept 2")
    pod.tell("read")
    pod.tell("abort")
    assert pod.dropped() == {(Kind.ABORTED, Phase.TERMINATING): 2}


def test_a_syn_to_a_removed_pod_is_unreachable_once_for_all_its_retries(
    kernel: KernelSide, node: Node, namespace: ClientNamespace, family: Family
) -> None:
    with scripted_pod(kernel, node, family.host) as pod, scripted_pod(kernel, node):
        address = address_of(pod, family)
        assert address is not None
        with client_of(namespace, address) as client:
            client.connect()
            pod.delete()
            pod.pod.remove_network()
            kernel.carry_out([MarkAddressGone(ip_address(address), pod.netns)])
            assert client.unanswered(4, 1.3) == 4
        assert pod.dropped() == {(Kind.UNREACHABLE, Phase.GONE): 4}


def test_a_connection_that_the_full_accept_queue_turns_away_is_overflow(
    kernel: KernelSide, node: Node, namespace: ClientNamespace, family: Family
) -> None:
    with (
        scripted_pod(kernel, node, family.host, backlog=1) as pod,
        client_of(namespace, address_of(pod, family)) as client,
    ):
        client.connect(2)
        assert client.unanswered(3, 0.3) == 3
        assert pod.dropped() == {(Kind.OVERFLOW, Phase.RUNNING): 3}


def test_an_exit_cuts_in_the_phase_that_it_ends(pod: ScriptedPod, client: Client) -> None:
    pod.delete()
    for connection in client.connect(2):
        connection.sendall(REQUEST)
    pod.tell("accept 2")
    pod.tell("read")
    pod.container.stop_signal(15)
    time.sleep(0.05)
    pod.tell("exit")
    pod.container.wait(5)
    assert client.refused(1, PORT) == 1
    assert pod.dropped() == {
        (Kind.UNANSWERED, Phase.STOPPING): 2,
        (Kind.REFUSED, Phase.EXITED): 1,
    }


def test_a_late_connection_is_one_that_a_dying_pod_accepts(pod: ScriptedPod, client: Client) -> None:
    client.connect()
    pod.delete()
    client.connect(2)
    tally = pod.tally()
    assert tally.late == {Phase.TERMINATING: 2}
    assert tally.dropped == {}
