"""preStop hooks: told apart from probes, and judged by what happened."""

from dataclasses import replace

import pytest

from agent.core.boundaries import Boundary, Moment, Source
from agent.core.container_run import ContainerRun, Exit
from agent.core.life import PodLife
from agent.core.orders import HookEvidence
from agent.core.prestop import PreStopOutcome, outcome_of
from agent.core.records import (
    ContainerIdentified,
    EnteredProcessEnded,
    EventReason,
    HookType,
    KubeletConnected,
    KubeletDisconnected,
    ListenerOpened,
    NamespaceIdentified,
    PodChanged,
    PodEventSeen,
    PreStop,
    ProcessEntered,
    Record,
    SignalResult,
    StopSignalSent,
)
from agent.core.tracker import Tracker
from tests.unit.core.lives import NETNS, SECOND, a_pod

INIT = 77
DELETED_NS = 100 * SECOND
SLEEP = PreStop(HookType.SLEEP, seconds=5)
EXEC = PreStop(HookType.EXEC, command="sh")
HTTP = PreStop(HookType.HTTP, port=8080)
FAILED = PodEventSeen(0, "uid-1", "app", EventReason.FAILED_PRESTOP_HOOK, "PreStopHook failed", None)
KILLING = PodEventSeen(0, "uid-1", "app", EventReason.KILLING, "Stopping container app", None)


def at(seconds: float) -> int:
    return DELETED_NS + int(seconds * SECOND)


def signal(seconds: float) -> StopSignalSent:
    return StopSignalSent(at(seconds), NETNS, INIT, 15, SignalResult.DELIVERED, "runc")


def entered(seconds: float, pid: int, command: str = "sh") -> ProcessEntered:
    return ProcessEntered(at(seconds), NETNS, pid, command)


def left(seconds: float, pid: int, status: int = 0) -> EnteredProcessEnded:
    return EnteredProcessEnded(at(seconds), NETNS, pid, status)


def deleted(hook: PreStop, *records: Record, grace: float = 30) -> tuple[PodLife, ContainerRun]:
    """A pod with this hook, deleted at second 0 of these records."""
    pod = replace(a_pod(prestop=hook), grace_seconds=grace)
    tracker = Tracker()
    for record in (
        PodChanged(0, pod),
        NamespaceIdentified(1, NETNS, "uid-1"),
        ContainerIdentified(2, NETNS, INIT, "c" * 64),
        ListenerOpened(3, NETNS, 8080, INIT),
        *sorted(
            (PodChanged(DELETED_NS, replace(pod, deletion_requested_ns=DELETED_NS)), *records),
            key=lambda record: record.at_ns,
        ),
    ):
        tracker.apply(record)
    life = tracker.lives["uid-1"]
    return life, life.runs[-1]


def times(run: ContainerRun) -> tuple[Moment | None, Moment | None]:
    return run.boundaries.get(Boundary.PRESTOP_STARTED), run.boundaries.get(Boundary.PRESTOP_ENDED)


@pytest.mark.parametrize(
    ("hook", "evidence"),
    [(SLEEP, HookEvidence.NONE), (EXEC, HookEvidence.PROCESS), (HTTP, HookEvidence.KUBELET_CONNECTION)],
)
def test_the_evidence_that_a_hook_leaves_is_asked_for(hook: PreStop, evidence: HookEvidence) -> None:
    life, _ = deleted(hook)
    assert life.evidence() is evidence


def test_an_exec_hook_is_the_process_that_the_runtime_started_after_the_deletion() -> None:
    life, run = deleted(
        EXEC, entered(-3, 900), left(-2.9, 900), entered(0.005, 901), left(4, 901), signal(4.01)
    )
    assert times(run) == (Moment(at(0.005), Source.KERNEL), Moment(at(4), Source.KERNEL))
    assert life.boundaries[Boundary.PRESTOP_STARTED] == Moment(at(0.005), Source.KERNEL)
    assert outcome_of(EXEC, run, 30) is PreStopOutcome.RAN


def test_a_hook_that_starts_before_the_watch_tells_of_the_deletion_is_found_too() -> None:
    _, run = deleted(EXEC, entered(-0.05, 901), left(4, 901), signal(4.01))
    assert times(run)[0] == Moment(at(-0.05), Source.KERNEL)


def test_an_exec_probe_that_runs_meanwhile_is_not_the_hook() -> None:
    probes = (entered(1, 902), left(1.1, 902), entered(2, 903), left(2.1, 903))
    _, run = deleted(EXEC, entered(0.005, 901), left(4, 901), *probes, signal(4.01))
    assert times(run) == (Moment(at(0.005), Source.KERNEL), Moment(at(4), Source.KERNEL))


def test_a_process_of_another_name_is_not_the_hook() -> None:
    _, run = deleted(EXEC, entered(0.005, 901, "probe"), left(0.1, 901), signal(3))
    assert times(run) == (Moment(at(0), Source.INFERRED), Moment(at(3), Source.INFERRED))
    assert outcome_of(EXEC, run, 30) is PreStopOutcome.UNKNOWN


@pytest.mark.parametrize(("status", "code", "number"), [(7 << 8, 7, None), (9, None, 9)])
def test_an_exec_hook_that_ends_badly_has_failed(status: int, code: int | None, number: int | None) -> None:
    _, run = deleted(EXEC, entered(0.005, 901), left(0.06, 901, status), signal(0.07))
    assert run.hook_exit == Exit(code, number)
    assert outcome_of(EXEC, run, 30) is PreStopOutcome.FAILED


def test_an_http_hook_is_the_connection_that_closes_when_the_signal_comes() -> None:
    connections: list[Record] = []
    for start, end, port in ((-1, -0.9, 1), (0.002, 0.004, 2), (0.006, 2, 3), (1, 1.01, 4)):
        connections += [
            KubeletConnected(at(start), NETNS, 8080, port),
            KubeletDisconnected(at(end), NETNS, 8080, port),
        ]
    _, run = deleted(HTTP, *connections, signal(2.01))
    assert times(run) == (Moment(at(0.006), Source.KERNEL), Moment(at(2), Source.KERNEL))
    assert outcome_of(HTTP, run, 30) is PreStopOutcome.RAN


def test_a_connection_to_another_port_is_not_the_hook() -> None:
    _, run = deleted(HTTP, KubeletConnected(at(0.006), NETNS, 9090, 3), signal(2.01))
    assert times(run)[0] == Moment(at(0), Source.INFERRED)
    assert outcome_of(HTTP, run, 30) is PreStopOutcome.UNKNOWN


@pytest.mark.parametrize(
    ("hook", "grace", "records", "outcome"),
    [
        (SLEEP, 30, (signal(5.01),), PreStopOutcome.RAN),
        (SLEEP, 30, (signal(0.2),), PreStopOutcome.SHORTER),
        (SLEEP, 30, (signal(0.2), replace(FAILED, at_ns=at(0.19))), PreStopOutcome.FAILED),
        (SLEEP, 5, (signal(5.0),), PreStopOutcome.RAN),
        (SLEEP, 3, (signal(3.0),), PreStopOutcome.CUT_BY_GRACE),
        (SLEEP, 3, (signal(3.0), replace(FAILED, at_ns=at(3.026))), PreStopOutcome.CUT_BY_GRACE),
        (EXEC, 4, (signal(4.0), replace(FAILED, at_ns=at(4.026))), PreStopOutcome.CUT_BY_GRACE),
        (EXEC, 30, (signal(2.0), replace(KILLING, at_ns=at(0.01))), PreStopOutcome.RAN),
        (EXEC, 30, (signal(2.0),), PreStopOutcome.UNKNOWN),
        (HTTP, 30, (), PreStopOutcome.UNKNOWN),
    ],
)
def test_a_hook_is_judged_by_its_time_and_by_what_the_kubelet_says(
    hook: PreStop, grace: float, records: tuple[Record, ...], outcome: PreStopOutcome
) -> None:
    _, run = deleted(hook, *records, grace=grace)
    assert outcome_of(hook, run, grace) is outcome


def test_without_a_hook_nothing_is_judged() -> None:
    assert outcome_of(None, ContainerRun(), 30) is PreStopOutcome.ABSENT


def test_of_a_cut_hook_the_end_is_the_signal_though_the_kubelet_complains_later() -> None:
    _, run = deleted(EXEC, signal(4.0), replace(FAILED, at_ns=at(4.026)), grace=4)
    ended = run.boundaries[Boundary.PRESTOP_ENDED]
    assert (ended.at_ns, ended.source) == (at(4.0), Source.EVENT)


def test_a_container_that_starts_meanwhile_is_not_the_hook() -> None:
    _, run = deleted(EXEC, entered(0.01, INIT), signal(3))
    assert times(run)[0] == Moment(at(0), Source.INFERRED)


def test_a_container_that_is_killed_outright_says_nothing_of_its_hook() -> None:
    _, run = deleted(SLEEP, replace(signal(0.1), signal=9))
    assert outcome_of(SLEEP, run, 30) is PreStopOutcome.UNKNOWN
