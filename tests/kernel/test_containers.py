"""Which container an init process is, told before anything else about it."""

import secrets
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.core.orders import FindNamespaces, ForgetNamespace
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
from agent.lab.node.node import Node
from agent.lab.node.pod import Pod
from tests.kernel.recording_kernel import RecordingKernel
from tests.kernel.scripted_pod import ScriptedPod, scripted_pod

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


@contextmanager
def container_in_the_pause_containers_pid_namespace(pod: Pod) -> Iterator[tuple[int, str]]:
    """As with shareProcessNamespace: pid of a shell that has a child, and the container's id."""
    container_id = secrets.token_hex(32)
    entered = subprocess.Popen(
        ["nsenter", "-t", str(pod.pause_pid), "-n", "-p", "sh", "-c", "sleep 600; :"], start_new_session=True
    )
    shell = _only_child(entered.pid)
    sleeper = _only_child(shell)
    # Beside the cgroup of another container of the pod.
    cgroup = pod.start_container(IDLE).cgroup_path.with_name(container_id)
    cgroup.mkdir()
    try:
        for pid in (sleeper, shell):
            (cgroup / "cgroup.procs").write_text(str(pid))
        yield shell, container_id
    finally:
        for pid in (shell, sleeper):
            (cgroup.parent / "cgroup.procs").write_text(str(pid))
        cgroup.rmdir()
        subprocess.run(["kill", "-9", str(sleeper), str(shell)], check=True)
        entered.wait()


def _only_child(pid: int) -> int:
    deadline = time.monotonic() + 5
    while True:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if children:
            return int(children[0])
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_init_of_a_container_that_shares_the_pods_pid_namespace_is_the_one_started_from_outside(
    recording: RecordingKernel, pod: Pod
) -> None:
    with container_in_the_pause_containers_pid_namespace(pod) as (shell, container_id):
        recording.carry_out(FindNamespaces())
        assert (shell, container_id) in containers_told(recording.records, netns_of(pod))
    exited = recording.wait(ContainerExited, lambda record: record.init_pid == shell)
    assert exited.exit_code == 9
