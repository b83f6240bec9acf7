"""What was there before the agent is known to it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent.core.kinds import Kind
from agent.core.orders import MarkPortsServed
from agent.core.phases import Phase
from agent.core.records import ListenerClosed, ListenerOpened, NamespaceIdentified, Record
from agent.kernel.kernel_side import KernelSide
from agent.kernel.layout import PortKey
from agent.lab.node.client_namespace import ClientNamespace
from agent.lab.node.node import Node
from tests.kernel.scripted_pod import REQUEST, ScriptedPod, client_of, discard, scripted_pod
from tests.kernel.scripted_server import PORT

OTHER_PORT = 9090
OWN_PORT = 9191
"""Served by no other pod of this machine."""


@dataclass
class Younger:
    """A kernel side that began when the pod was there already, and what it has told."""

    kernel: KernelSide
    records: list[Record] = field(default_factory=list)

    def opened(self, pod: ScriptedPod) -> list[tuple[int, int]]:
        """Port and init process of each listener of the pod that it told of."""
        return sorted(
            (record.port, record.init_pid)
            for record in self.records
            if isinstance(record, ListenerOpened) and record.netns == pod.netns
        )

    def owners(self, pod: ScriptedPod) -> set[str]:
        """Whose the pod's namespace is."""
        return {
            record.pod_uid
            for record in self.records
            if isinstance(record, NamespaceIdentified) and record.netns == pod.netns
        }

    def closed_ports(self, pod: ScriptedPod) -> list[int]:
        """Ports whose last listener closed."""
        return [
            record.port
            for record in self.records
            if isinstance(record, ListenerClosed) and record.netns == pod.netns
        ]


@contextmanager
def younger_than(pod: ScriptedPod, cache: Path) -> Iterator[Younger]:
    """Begins now; the pod's counts are read from it from then on."""
    records: list[Record] = []
    side = KernelSide(cache, records.append)
    try:
        side.start()
        pod.kernel = side
        yield Younger(side, records)
    finally:
        side.stop()


def test_listeners_older_than_the_agent_are_known_with_their_pod_and_container(
    kernel: KernelSide, bridge: Node, tmp_path: Path
) -> None:
    with scripted_pod(kernel, bridge) as pod:
        pod.tell(f"open_listener {OTHER_PORT}")
        with younger_than(pod, tmp_path / "cache") as younger:
            assert younger.owners(pod) == {pod.pod.uid}
            assert younger.opened(pod) == [(PORT, pod.container.pid), (OTHER_PORT, pod.container.pid)]


@pytest.mark.parametrize("host", ["0.0.0.0", "::"], ids=["IPv4", "dual stack"])
def test_refusals_after_an_older_listener_closed_have_their_phase(
    kernel: KernelSide, bridge: Node, outside: ClientNamespace, tmp_path: Path, host: str
) -> None:
    with (
        scripted_pod(kernel, bridge, host) as pod,
        younger_than(pod, tmp_path / "cache"),
        client_of(outside, pod.pod.addresses.v4) as client,
    ):
        pod.delete()
        client.connect()
        pod.tell("accept 1")
        pod.container.stop_signal(15)
        client.connect()
        pod.tell("accept 1")
        pod.tell("close_listener")
        assert client.refused(2) == 2
        pod.tell("exit")
        pod.container.wait(5)
        assert client.refused(3) == 3
        tally = pod.tally()
        assert tally.late == {Phase.TERMINATING: 1, Phase.STOPPING: 1}
        assert tally.dropped == {(Kind.REFUSED, Phase.CLOSED): 2, (Kind.REFUSED, Phase.EXITED): 3}


def test_a_port_with_two_older_listeners_closes_with_the_last(
    kernel: KernelSide, bridge: Node, outside: ClientNamespace, tmp_path: Path
) -> None:
    """Two sockets on one port (SO_REUSEPORT), each with a queue of its own."""
    with scripted_pod(kernel, bridge) as pod:
        pod.tell("open_listener")
        with (
            younger_than(pod, tmp_path / "cache") as younger,
            client_of(outside, pod.pod.addresses.v4) as client,
        ):
            assert younger.opened(pod) == [(PORT, pod.container.pid)]
            pod.delete()
            pod.tell("close_listener")
            client.connect()
            pod.tell("accept 1")
            assert pod.tally().late == {Phase.TERMINATING: 1}
            assert younger.closed_ports(pod) == []
            pod.tell("close_listener")
            assert client.refused(2) == 2
            assert pod.dropped() == {(Kind.REFUSED, Phase.CLOSED): 2}
            assert younger.closed_ports(pod) == [PORT]


def test_an_older_and_a_younger_listener_of_one_port_are_counted_together(
    kernel: KernelSide, bridge: Node, outside: ClientNamespace, tmp_path: Path
) -> None:
    with (
        scripted_pod(kernel, bridge) as pod,
        younger_than(pod, tmp_path / "cache") as younger,
        client_of(outside, pod.pod.addresses.v4) as client,
    ):
        pod.tell("open_listener")
        pod.delete()
        pod.tell("close_listener")
        client.connect()
        assert pod.tally().late == {Phase.TERMINATING: 1}
        assert younger.closed_ports(pod) == []
        pod.tell("close_listener")
        assert client.refused(1) == 1
        assert pod.dropped() == {(Kind.UNACCEPTED, Phase.TERMINATING): 1, (Kind.REFUSED, Phase.CLOSED): 1}
        assert younger.closed_ports(pod) == [PORT]


def test_a_listener_that_the_programs_saw_open_stays_known_when_an_older_one_is_found_beside_it(
    kernel: KernelSide, bridge: Node, tmp_path: Path
) -> None:
    with scripted_pod(kernel, bridge) as pod:
        side = KernelSide(tmp_path / "cache", discard)
        try:
            pod.tell("open_listener")
            seen = side.maps.ports.get(PortKey(pod.netns, PORT))
            side.start()
            found = side.maps.ports.get(PortKey(pod.netns, PORT))
            assert seen is not None
            assert found is not None
            assert (seen.listeners, found.listeners) == (1, 2)
            assert found.listener == seen.listener != 0
            assert found.opened_ns == seen.opened_ns != 0
        finally:
            side.stop()


def test_a_port_that_closed_before_the_agent_came_is_known_by_its_declaration(
    kernel: KernelSide, bridge: Node, outside: ClientNamespace
) -> None:
    with scripted_pod(kernel, bridge, listening=False) as pod:
        pod.delete()
        kernel.carry_out([MarkPortsServed(pod.netns, frozenset({PORT}))])
        with client_of(outside, pod.pod.addresses.v4) as client:
            assert client.refused(2) == 2
        assert pod.dropped() == {(Kind.REFUSED, Phase.CLOSED): 2}


def test_what_was_accepted_before_the_port_closed_and_the_agent_came_can_still_be_cut(
    kernel: KernelSide, bridge: Node, outside: ClientNamespace, tmp_path: Path
) -> None:
    with (
        scripted_pod(kernel, bridge, listening=False) as pod,
        client_of(outside, pod.pod.addresses.v4) as client,
    ):
        pod.tell(f"open_listener {OWN_PORT}")
        client.connect(2, OWN_PORT)
        pod.tell("accept 2")
        pod.tell("close_listener")
        with younger_than(pod, tmp_path / "cache") as younger:
            pod.delete()
            younger.kernel.carry_out([MarkPortsServed(pod.netns, frozenset({OWN_PORT}))])
            for connection in client.sockets:
                connection.sendall(REQUEST)
            pod.tell("read")
            pod.tell("close")
            assert pod.dropped() == {(Kind.UNANSWERED, Phase.CLOSED): 2}
