"""Which container an init process is, told before anything else about it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.core.kinds import Kind
from agent.core.orders import FindNamespaces, ForgetNamespace
from agent.core.phases import Phase
from agent.core.records import (
    ContainerExited,
    ContainerIdentified,
    KernelRecord,
    ListenerOpened,
    NamespaceIdentified,
    StopSignalSent,
)
from agent.kernel.kernel_side import KernelSide
from agent.kernel.namespaces import view_namespace
from agent.lab.node.client_namespace import ClientNamespace
from agent.lab.node.node import Node
from agent.lab.node.pod import Pod
from tests.kernel.recording_kernel import RecordingKernel
from tests.kernel.scripted_pod import ScriptedPod, client_of, scripted_container, scripted_pod

IDLE = ["sleep", "600"]


@pytest.fixture
def pod(bridge: Node) -> Iterator[Pod]:
    started = bridge.start_pod("contained")
    yield started
    started.remove()


def netns_of(pod: Pod) -> int:
    view = view_namespace(pod.pause_pid)
    assert view is not None
    return view.cookie


def containers_told(records: list[KernelRecord], netns: int) -> list[tuple[int, str]]:
    """Init process and container of each record, in their order."""
    return [
        (record.init_pid, record.container_id)
        for record in tuple(records)
        if isinstance(record, ContainerIdentified) and record.netns == netns
    ]


def test_containers_that_serve_nothing_are_identified_at_the_start(
    bridge: Node, pod: Pod, tmp_path: Path
) -> None:
    idle = pod.start_container(IDLE)
    records: list[KernelRecord] = []
    side = KernelSide(tmp_path / "cache", records.append)
    try:
        side.start()
        assert set(containers_told(records, netns_of(pod))) == {
            (pod.pause_pid, pod.pause_id),
            (idle.pid, idle.container_id),
        }
    finally:
        side.stop()


def test_a_look_finds_the_new_containers_of_a_known_pod_and_tells_none_twice(
    recording: RecordingKernel, pod: Pod
) -> None:
    netns = netns_of(pod)
    first = pod.start_container(IDLE)
    recording.carry_out(FindNamespaces())
    second = pod.start_container(IDLE)
    recording.carry_out(FindNamespaces(), FindNamespaces())
    told = containers_told(recording.records, netns)
    assert sorted(told[:2]) == sorted([(pod.pause_pid, pod.pause_id), (first.pid, first.container_id)])
    assert told[2:] == [(second.pid, second.container_id)]
    assert len(recording.told(NamespaceIdentified, lambda record: record.netns == netns)) == 1


def test_the_stop_and_the_exit_of_a_container_that_serves_nothing_are_told(
    recording: RecordingKernel, pod: Pod
) -> None:
    idle = pod.start_container(IDLE)
    recording.carry_out(FindNamespaces())
    idle.kill()
    exited = recording.wait(ContainerExited, lambda record: record.init_pid == idle.pid)
    signalled = recording.wait(StopSignalSent, lambda record: record.init_pid == idle.pid)
    assert (signalled.netns, signalled.signal) == (netns_of(pod), 9)
    assert (exited.netns, exited.exit_code) == (netns_of(pod), 9)


def test_a_container_is_identified_before_its_listener_is_told_of(
    recording: RecordingKernel, kernel: KernelSide, bridge: Node
) -> None:
    with scripted_pod(kernel, bridge) as scripted:
        init_pid = scripted.container.pid
        opened = recording.wait(ListenerOpened, lambda record: record.netns == scripted.netns)
        identified = recording.wait(ContainerIdentified, lambda record: record.init_pid == init_pid)
        assert identified.container_id == scripted.container.container_id
        assert identified.netns == scripted.netns
        assert recording.records.index(identified) < recording.records.index(opened)


def test_a_container_that_nobody_looked_for_is_identified_before_its_stop_signal_is_told_of(
    recording: RecordingKernel, bridge: Node, pod: Pod
) -> None:
    idle = pod.start_container(IDLE)
    idle.stop_signal(15)
    signalled = recording.wait(StopSignalSent, lambda record: record.init_pid == idle.pid)
    identified = recording.wait(ContainerIdentified, lambda record: record.init_pid == idle.pid)
    assert identified.container_id == idle.container_id
    assert recording.records.index(identified) < recording.records.index(signalled)


def test_a_process_that_an_exec_hook_started_is_no_container(
    recording: RecordingKernel, kernel: KernelSide, bridge: Node
) -> None:
    with scripted_pod(kernel, bridge) as scripted:
        scripted.container.exec_in(IDLE)
        recording.carry_out(FindNamespaces())
        assert (scripted.container.pid, scripted.container.container_id) in container_ids(recording, scripted)
        assert len(container_ids(recording, scripted)) == 2


def container_ids(recording: RecordingKernel, scripted: ScriptedPod) -> set[tuple[int, str]]:
    return set(containers_told(recording.records, scripted.netns))


def test_a_namespace_that_was_forgotten_is_found_again_with_its_containers(
    recording: RecordingKernel, pod: Pod
) -> None:
    netns = netns_of(pod)
    recording.carry_out(FindNamespaces(), ForgetNamespace(netns), FindNamespaces())
    assert containers_told(recording.records, netns) == [(pod.pause_pid, pod.pause_id)] * 2


def test_in_a_shared_pid_namespace_the_init_is_the_process_that_the_runtime_started(
    recording: RecordingKernel, pod: Pod
) -> None:
    shell = pod.start_container(["sh", "-c", "sleep 600; :"], share_process_namespace=True)
    shell.exec_in(IDLE)
    recording.carry_out(FindNamespaces())
    assert sorted(containers_told(recording.records, netns_of(pod))) == sorted(
        [(pod.pause_pid, pod.pause_id), (shell.pid, shell.container_id)]
    )
    shell.kill()
    exited = recording.wait(ContainerExited, lambda record: record.init_pid == shell.pid)
    assert exited.exit_code == 9


@pytest.mark.parametrize("found_before", [True, False], ids=["found before", "found by its listener"])
def test_phases_of_a_port_follow_its_container_in_a_shared_pid_namespace(
    recording: RecordingKernel, bridge: Node, outside: ClientNamespace, pod: Pod, found_before: bool
) -> None:
    with (
        scripted_container(recording.side, bridge, pod, share_process_namespace=True) as scripted,
        client_of(outside, pod.addresses.v4) as client,
    ):
        if found_before:
            recording.carry_out(FindNamespaces())
        scripted.tell("open_listener")
        scripted.delete()
        opened = recording.wait(ListenerOpened, lambda record: record.netns == scripted.netns)
        assert opened.init_pid == scripted.container.pid
        client.connect()
        scripted.tell("accept 1")
        scripted.container.stop_signal(15)
        client.connect()
        scripted.tell("accept 1")
        scripted.kill()
        assert client.refused(1) == 1
        tally = scripted.tally()
        assert tally.late == {Phase.TERMINATING: 1, Phase.STOPPING: 1}
        assert tally.dropped == {(Kind.REFUSED, Phase.EXITED): 1}
        identified = (scripted.container.pid, scripted.container.container_id)
        assert containers_told(recording.records, scripted.netns).count(identified) == 1


def test_a_listener_of_a_process_that_was_entered_is_its_containers(
    recording: RecordingKernel, pod: Pod
) -> None:
    idle = pod.start_container(IDLE)
    listen = "import socket, time; held = socket.create_server(('', 8099)); time.sleep(600)"
    idle.exec_in(["sh", "-c", f'{sys.executable} -S -c "{listen}"; :'])
    opened = recording.wait(ListenerOpened, lambda record: record.netns == netns_of(pod))
    assert opened.init_pid == idle.pid
