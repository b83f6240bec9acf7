"""Processes that the runtime starts in a pod that declares an exec hook, and their ends."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from agent.core.kinds import Kind
from agent.core.orders import HookEvidence, SetPodFacts
from agent.core.phases import Fact, Phase
from agent.core.records import EnteredProcessEnded, ProcessEntered
from agent.kernel.kernel_side import KernelSide
from agent.kernel.namespaces import view_namespace
from agent.lab.node.client_namespace import ClientNamespace
from agent.lab.node.node import Node
from agent.lab.node.pod import Container, Pod
from tests.kernel.recording_kernel import RecordingKernel
from tests.kernel.scripted_pod import client_of, scripted_pod

IDLE = ["sleep", "600"]


@pytest.fixture
def pod(bridge: Node) -> Iterator[Pod]:
    started = bridge.start_pod("hooked")
    yield started
    started.remove()


@pytest.fixture
def container(pod: Pod) -> Container:
    return pod.start_container(IDLE)


@pytest.fixture
def netns(recording: RecordingKernel, pod: Pod) -> int:
    """Of the pod, whose entered processes are told of."""
    view = view_namespace(pod.pause_pid)
    assert view is not None
    recording.carry_out(SetPodFacts(view.cookie, Fact.DELETED, HookEvidence.PROCESS))
    return view.cookie


def entered_in(recording: RecordingKernel, netns: int) -> list[ProcessEntered]:
    return recording.after_silence(ProcessEntered, lambda record: record.netns == netns)


def ended_in(recording: RecordingKernel, netns: int) -> list[EnteredProcessEnded]:
    return recording.after_silence(EnteredProcessEnded, lambda record: record.netns == netns)


def test_a_command_entered_from_the_node_is_told_of_with_its_end_and_its_children_are_not(
    recording: RecordingKernel, container: Container, netns: int
) -> None:
    hook = ["nsenter", "-t", str(container.pid), "-a", "sh", "-c", "sleep 0.2; exit 7"]
    assert subprocess.run(hook, check=False).returncode == 7
    (ended,) = ended_in(recording, netns)
    (entered,) = entered_in(recording, netns)
    assert (entered.command, ended.pid, ended.exit_code) == ("sh", entered.pid, 7 << 8)
    assert ended.at_ns - entered.at_ns >= 200_000_000


def test_a_hook_that_the_runtime_starts_and_kills_ends_with_its_signal(
    recording: RecordingKernel, container: Container, netns: int
) -> None:
    hook = container.exec_in(IDLE)
    entered = recording.wait(ProcessEntered, lambda record: record.netns == netns)
    assert (entered.pid, entered.command) == (hook.pid, "sleep")
    assert ended_in(recording, netns) == []
    hook.kill()
    (ended,) = ended_in(recording, netns)
    assert (ended.pid, ended.exit_code) == (hook.pid, 9)


def test_a_hook_that_becomes_another_program_is_told_of_once(
    recording: RecordingKernel, container: Container, netns: int
) -> None:
    hook = container.exec_in(["sh", "-c", "exec sh -c 'exec sleep 0.01'"])
    hook.wait(5)
    assert [record.command for record in entered_in(recording, netns)] == ["sh"]
    assert [record.exit_code for record in ended_in(recording, netns)] == [0]


def test_a_hook_with_threads_ends_once_with_the_status_of_the_process(
    recording: RecordingKernel, container: Container, netns: int
) -> None:
    threads = (
        "import os, threading, time\n"
        "for _ in range(4): threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "os._exit(5)"
    )
    container.exec_in([sys.executable, "-S", "-c", threads]).wait(5)
    assert [record.exit_code for record in ended_in(recording, netns)] == [5 << 8]


def test_a_hook_cut_by_the_end_of_its_container_ends(
    recording: RecordingKernel, container: Container, netns: int
) -> None:
    hook = container.exec_in(IDLE)
    container.kill()
    (ended,) = ended_in(recording, netns)
    assert (ended.pid, ended.exit_code) == (hook.pid, 9)


def test_a_container_and_what_it_starts_are_not_entered(
    recording: RecordingKernel, pod: Pod, netns: int
) -> None:
    pod.start_container(["sh", "-c", "sleep 0.01; unshare -p -f sleep 0.01; exec sleep 0.01"]).wait(5)
    assert entered_in(recording, netns) == []


def test_a_pod_that_declares_no_exec_hook_is_not_told_of(
    recording: RecordingKernel, container: Container, netns: int
) -> None:
    recording.carry_out(SetPodFacts(netns, Fact.DELETED, HookEvidence.KUBELET_CONNECTION))
    container.exec_in(["true"]).wait(5)
    recording.carry_out(SetPodFacts(netns, Fact.DELETED))
    container.exec_in(["true"]).wait(5)
    assert entered_in(recording, netns) == []


def test_the_end_of_an_entered_process_is_told_of_whatever_is_told_meanwhile(
    recording: RecordingKernel, container: Container, netns: int
) -> None:
    hook = container.exec_in(IDLE)
    recording.carry_out(SetPodFacts(netns, Fact.DELETED))
    hook.kill()
    assert [record.pid for record in ended_in(recording, netns)] == [hook.pid]


def test_evidence_does_not_change_the_phase_of_a_drop(
    kernel: KernelSide, bridge: Node, outside: ClientNamespace
) -> None:
    with scripted_pod(kernel, bridge) as pod, client_of(outside, pod.pod.addresses.v4) as client:
        evidence = HookEvidence.PROCESS | HookEvidence.KUBELET_CONNECTION
        kernel.carry_out([SetPodFacts(pod.netns, Fact.DELETED | Fact.PRESTOP_DECLARED, evidence)])
        client.connect()
        pod.tell("accept 1")
        pod.tell("close_listener")
        assert client.refused(1) == 1
        assert pod.tally().late == {Phase.PRESTOP: 1}
        assert pod.dropped() == {(Kind.REFUSED, Phase.CLOSED): 1}
