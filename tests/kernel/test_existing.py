"""What was there before the agent is known to it."""

from pathlib import Path

from agent.core.kinds import Kind
from agent.core.orders import MarkPortsServed
from agent.core.phases import Phase
from agent.core.records import ListenerOpened, NamespaceIdentified, Record
from agent.kernel.kernel_side import KernelSide
from agent.lab.node.client_namespace import ClientNamespace
from agent.lab.node.node import Node
from tests.kernel.scripted_pod import client_of, scripted_pod
from tests.kernel.scripted_server import PORT


def test_a_listener_older_than_the_agent_is_known_with_its_pod_and_container(
    kernel: KernelSide, bridge: Node, outside: ClientNamespace, tmp_path: Path
) -> None:
    with scripted_pod(kernel, bridge) as pod, client_of(outside, pod.pod.addresses.v4) as client:
        pod.tell("open_listener")
        records: list[Record] = []
        younger = KernelSide(tmp_path / "cache", records.append)
        try:
            younger.start()
            pod.kernel = younger
            found = [record for record in records if isinstance(record, NamespaceIdentified)]
            assert pod.pod.uid in {record.pod_uid for record in found if record.netns == pod.netns}
            opened = [record for record in records if isinstance(record, ListenerOpened)]
            assert (pod.netns, PORT, pod.container.pid) in {(o.netns, o.port, o.init_pid) for o in opened}
            pod.delete()
            pod.tell("close_listener")
            client.connect()
            pod.tell("close_listener")
            assert client.refused(2) == 2
            pod.tell("exit")
            pod.container.wait(5)
            assert client.refused(1) == 1
            tally = pod.tally()
            # The second of two listeners on the port was still open, and its queue was flushed with it.
            assert tally.late == {Phase.TERMINATING: 1}
            assert tally.dropped == {
                (Kind.UNACCEPTED, Phase.TERMINATING): 1,
                (Kind.REFUSED, Phase.CLOSED): 2,
                (Kind.REFUSED, Phase.EXITED): 1,
            }
        finally:
            younger.stop()


def test_a_port_that_closed_before_the_agent_came_is_known_by_its_declaration(
    kernel: KernelSide, bridge: Node, outside: ClientNamespace
) -> None:
    with scripted_pod(kernel, bridge, listening=False) as pod:
        pod.delete()
        kernel.carry_out([MarkPortsServed(pod.netns, frozenset({PORT}))])
        with client_of(outside, pod.pod.addresses.v4) as client:
            assert client.refused(2) == 2
        assert pod.dropped() == {(Kind.REFUSED, Phase.CLOSED): 2}
