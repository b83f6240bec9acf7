"""The init process of a container among the processes of its cgroup."""

import os
from dataclasses import replace

import pytest

from agent.core.records import ContainerIdentified
from agent.kernel import containers
from agent.kernel.containers import KnownContainers, container_inits
from agent.kernel.processes import PodProcess, started_at

ID = "a" * 64
OTHER = "b" * 64
SHIM = 10
INIT = PodProcess(100, "uid", ID, 1, SHIM, 1, "app")


def pid_of_init(*processes: PodProcess) -> int | None:
    init = container_inits(processes).get(ID)
    return init.pid if init else None


def test_the_init_is_pid_1_and_not_its_child_or_an_older_entered_process() -> None:
    child = replace(INIT, pid=50, parent=100, inner_pid=7)
    entered = replace(INIT, pid=60, parent=SHIM, inner_pid=9)
    assert pid_of_init(child, entered, INIT) == 100


def test_pid_1_of_a_namespace_inside_the_container_is_not_its_init() -> None:
    nested = replace(INIT, pid=50, parent=100, inner_pid=1)
    assert pid_of_init(nested, INIT) == 100


def test_in_a_shared_pid_namespace_the_init_is_the_oldest_that_was_started_from_outside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(containers, "started_at", {100: 5, 60: 6, 50: 1}.__getitem__)
    init = replace(INIT, inner_pid=8)
    child = replace(INIT, pid=50, parent=100, inner_pid=7)
    entered = replace(INIT, pid=60, parent=SHIM, inner_pid=9)
    assert pid_of_init(entered, child, init) == 100


def test_a_process_of_the_runtime_that_passes_through_is_no_init() -> None:
    stage = replace(INIT, pid=50, inner_pid=50, name="runc:[1:CHILD]")
    assert pid_of_init(stage) is None


def test_each_container_has_an_init_of_its_own_and_a_process_outside_of_containers_is_none() -> None:
    other = replace(INIT, pid=200, container_id=OTHER)
    outside = replace(INIT, pid=300, container_id=None)
    assert container_inits([INIT, other, outside]) == {ID: INIT, OTHER: other}


def test_a_container_is_told_once_and_a_reused_pid_again() -> None:
    known = KnownContainers()
    assert known.tell(5, 1, 100, ID) == ContainerIdentified(5, 1, 100, ID)
    assert known.tell(6, 1, 100, ID) is None
    assert known.tell(7, 1, 100, OTHER) == ContainerIdentified(7, 1, 100, OTHER)


@pytest.mark.parametrize("forget", ["ended", "keep", "forget"])
def test_what_is_gone_is_forgotten(forget: str) -> None:
    known = KnownContainers()
    known.tell(5, 1, 100, ID)
    known.tell(5, 2, 200, OTHER)
    match forget:
        case "ended":
            known.ended(100)
        case "keep":
            known.keep({200})
        case "forget":
            known.forget(1)
    assert known.netns_of(INIT) is None
    assert known.netns_of(replace(INIT, pid=200, container_id=OTHER)) == 2


def test_a_pid_in_another_container_says_nothing_about_the_namespace() -> None:
    known = KnownContainers()
    known.tell(5, 1, 100, OTHER)
    assert known.netns_of(INIT) is None


def test_a_child_started_after_its_parent_and_a_process_that_is_gone_has_no_start() -> None:
    assert 0 < started_at(os.getppid()) <= started_at(os.getpid())
    assert started_at(2**22 + 1) == 0
