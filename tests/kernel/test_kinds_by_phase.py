"""Drops through the life of a pod: each counted in the phase in which it happened."""

import time

from agent.core.kinds import Kind
from agent.core.phases import Fact, Phase
from agent.kernel.kernel_side import KernelSide
from agent.lab.node.client_namespace import ClientNamespace
from agent.lab.node.node import Node
from tests.kernel.scripted_pod import (
    REQUEST,
    Client,
    ScriptedPod,
    client_of,
    scripted_container,
    scripted_pod,
)

ARRIVAL_SECONDS = 0.02
SIGTERM = 15


def leave_unanswered(pod: ScriptedPod, client: Client) -> None:
    """One request, read and then closed upon."""
    client.connect()[0].sendall(REQUEST)
    pod.tell("accept 1")
    pod.tell("read")
    pod.tell("close")


def send_unread(pod: ScriptedPod, client: Client) -> None:
    """One request on an accepted connection that nobody reads."""
    client.connect()[0].sendall(REQUEST)
    pod.tell("accept 1")
    time.sleep(ARRIVAL_SECONDS)


def test_a_deletion_with_a_prestop_hook_counts_in_each_of_its_phases(
    pod: ScriptedPod, client: Client
) -> None:
    pod.delete(Fact.DELETED | Fact.PRESTOP_DECLARED)
    leave_unanswered(pod, client)
    pod.container.stop_signal(SIGTERM)
    leave_unanswered(pod, client)
    pod.tell("close_listener")
    assert client.refused(2) == 2
    pod.tell("exit")
    pod.container.wait(5)
    assert client.refused(3) == 3
    tally = pod.tally()
    assert tally.dropped == {
        (Kind.UNANSWERED, Phase.PRESTOP): 1,
        (Kind.UNANSWERED, Phase.STOPPING): 1,
        (Kind.REFUSED, Phase.CLOSED): 2,
        (Kind.REFUSED, Phase.EXITED): 3,
    }
    assert tally.late == {Phase.PRESTOP: 1, Phase.STOPPING: 1}


def test_a_container_that_is_stopped_in_a_live_pod_is_restarting(pod: ScriptedPod, client: Client) -> None:
    pod.container.stop_signal(SIGTERM)
    leave_unanswered(pod, client)
    pod.tell("close_listener")
    assert client.refused(2) == 2
    pod.tell("exit")
    pod.container.wait(5)
    assert client.refused(1) == 1
    tally = pod.tally()
    assert tally.dropped == {(Kind.UNANSWERED, Phase.RESTARTING): 1, (Kind.REFUSED, Phase.RESTARTING): 3}
    assert tally.late == {}


def test_a_container_that_ends_by_itself_cuts_while_running_and_refuses_while_restarting(
    pod: ScriptedPod, client: Client
) -> None:
    client.connect()[0].sendall(REQUEST)
    pod.tell("accept 1")
    pod.tell("read")
    pod.tell("exit")
    pod.container.wait(5)
    assert client.refused(2) == 2
    assert pod.dropped() == {(Kind.UNANSWERED, Phase.RUNNING): 1, (Kind.REFUSED, Phase.RESTARTING): 2}


def test_a_kill_at_the_end_of_the_grace_period_cuts_while_stopping(pod: ScriptedPod, client: Client) -> None:
    pod.delete()
    for connection in client.connect(2):
        connection.sendall(REQUEST)
    pod.tell("accept 2")
    pod.tell("read")
    send_unread(pod, client)
    client.connect(3)
    pod.container.stop_signal(SIGTERM)
    time.sleep(ARRIVAL_SECONDS)
    pod.kill()
    assert pod.dropped() == {
        (Kind.UNANSWERED, Phase.STOPPING): 2,
        (Kind.UNREAD, Phase.STOPPING): 1,
        (Kind.UNACCEPTED, Phase.STOPPING): 3,
    }


def test_a_kill_of_a_server_that_has_closed_its_listener_cuts_in_phase_closed(
    pod: ScriptedPod, client: Client
) -> None:
    pod.delete()
    client.connect()[0].sendall(REQUEST)
    pod.tell("accept 1")
    pod.tell("read")
    send_unread(pod, client)
    pod.container.stop_signal(SIGTERM)
    pod.tell("close_listener")
    pod.kill()
    assert pod.dropped() == {(Kind.UNANSWERED, Phase.CLOSED): 1, (Kind.UNREAD, Phase.CLOSED): 1}


def test_a_container_that_comes_back_serves_again_and_its_drops_are_of_a_running_pod(
    kernel: KernelSide, bridge: Node, pod: ScriptedPod, client: Client
) -> None:
    pod.tell("exit")
    pod.container.wait(5)
    assert client.refused(1) == 1
    with scripted_container(kernel, bridge, pod.pod) as again:
        again.tell("open_listener")
        client.connect()
        again.tell("accept 1")
        again.tell("close_listener")
        assert client.refused(2) == 2
        assert again.dropped() == {(Kind.REFUSED, Phase.RESTARTING): 1, (Kind.REFUSED, Phase.RUNNING): 2}


def test_a_pod_is_not_affected_by_the_death_of_another(
    kernel: KernelSide, bridge: Node, outside: ClientNamespace, pod: ScriptedPod
) -> None:
    with (
        scripted_pod(kernel, bridge) as dying,
        client_of(outside, dying.pod.addresses.v4) as to_dying,
        client_of(outside, pod.pod.addresses.v4) as to_live,
    ):
        dying.delete()
        dying.kill()
        assert to_dying.refused(2) == 2
        leave_unanswered(pod, to_live)
        pod.tell("close_listener")
        assert to_live.refused(1) == 1
        assert dying.dropped() == {(Kind.REFUSED, Phase.EXITED): 2}
        assert pod.dropped() == {(Kind.REFUSED, Phase.RUNNING): 1}
