"""The kubelet's connections to a pod that declares an HTTP hook, and their ends."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from agent.core.orders import HookEvidence, SetPodFacts
from agent.core.phases import Fact
from agent.core.records import KubeletConnected, KubeletDisconnected
from agent.lab.node.client_namespace import ClientNamespace
from agent.lab.node.node import Node
from tests.kernel.recording_kernel import RecordingKernel
from tests.kernel.scripted_pod import ScriptedPod, client_of, scripted_pod
from tests.kernel.scripted_server import PORT

KUBELET = """
import socket, sys
open("/proc/self/comm", "w").write("kubelet")
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5)
print(connection.getsockname()[1], flush=True)
sys.stdin.readline()
"""
"""Connects, prints its port, and closes the connection once its standard input ends."""


class Kubelet:
    """One connection of a process of this name on the node."""

    def __init__(self, address: str | None) -> None:
        assert address is not None
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", KUBELET, address, str(PORT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture
def pod(recording: RecordingKernel, node: Node) -> Iterator[ScriptedPod]:
    with scripted_pod(recording.side, node, "::") as started:
        recording.carry_out(SetPodFacts(started.netns, Fact.DELETED, HookEvidence.KUBELET_CONNECTION))
        yield started


@pytest.fixture(params=["v4", "v6"])
def kubelet(request: pytest.FixtureRequest, pod: ScriptedPod) -> Iterator[Kubelet]:
    connected = Kubelet(getattr(pod.pod.addresses, request.param))
    yield connected
    connected.close()


def begun(recording: RecordingKernel, pod: ScriptedPod) -> list[tuple[int, int]]:
    """Port and source port of each."""
    told = recording.after_silence(KubeletConnected, lambda record: record.netns == pod.netns)
    return [(record.port, record.source_port) for record in told]


def ended(recording: RecordingKernel, pod: ScriptedPod) -> list[tuple[int, int]]:
    told = recording.after_silence(KubeletDisconnected, lambda record: record.netns == pod.netns)
    return [(record.port, record.source_port) for record in told]


def test_a_connection_of_the_kubelet_is_told_of_and_ends_when_the_kubelet_closes_it(
    recording: RecordingKernel, pod: ScriptedPod, kubelet: Kubelet
) -> None:
    pod.tell("accept 1")
    assert begun(recording, pod) == [(PORT, kubelet.port)]
    assert ended(recording, pod) == []
    kubelet.close()
    assert ended(recording, pod) == [(PORT, kubelet.port)]
    pod.tell("close")
    assert begun(recording, pod) == ended(recording, pod) == [(PORT, kubelet.port)]


@pytest.mark.parametrize("how", ["close", "abort", "kill"])
def test_a_connection_of_the_kubelet_ends_when_the_pod_ends_it(
    recording: RecordingKernel, pod: ScriptedPod, kubelet: Kubelet, how: str
) -> None:
    pod.tell("accept 1")
    if how == "kill":
        pod.kill()
    else:
        pod.tell(how)
    assert begun(recording, pod) == ended(recording, pod) == [(PORT, kubelet.port)]


def test_connections_at_the_same_time_are_told_apart(recording: RecordingKernel, pod: ScriptedPod) -> None:
    first, second = Kubelet(pod.pod.addresses.v4), Kubelet(pod.pod.addresses.v4)
    second.close()
    assert begun(recording, pod) == [(PORT, first.port), (PORT, second.port)]
    assert ended(recording, pod) == [(PORT, second.port)]
    first.close()
    assert ended(recording, pod) == [(PORT, second.port), (PORT, first.port)]


def test_connections_of_others_are_not_told_of(
    recording: RecordingKernel, pod: ScriptedPod, namespace: ClientNamespace
) -> None:
    with client_of(namespace, pod.pod.addresses.v4) as client:
        client.connect(3)
    assert begun(recording, pod) == ended(recording, pod) == []
    assert pod.tally().late


def test_the_kubelet_is_not_told_of_where_no_http_hook_is_declared(
    recording: RecordingKernel, pod: ScriptedPod
) -> None:
    recording.carry_out(SetPodFacts(pod.netns, Fact.DELETED, HookEvidence.PROCESS))
    Kubelet(pod.pod.addresses.v4).close()
    assert begun(recording, pod) == ended(recording, pod) == []


def test_a_pod_that_is_not_deleted_has_no_late_connection_of_others_or_the_kubelet(
    recording: RecordingKernel, pod: ScriptedPod, namespace: ClientNamespace
) -> None:
    recording.carry_out(SetPodFacts(pod.netns, Fact.PRESTOP_DECLARED, HookEvidence.KUBELET_CONNECTION))
    connected = Kubelet(pod.pod.addresses.v4)
    connected.close()
    with client_of(namespace, pod.pod.addresses.v4) as client:
        client.connect()
    assert begun(recording, pod) == ended(recording, pod) == [(PORT, connected.port)]
    assert not pod.tally().late
