"""What became of a declared preStop hook: verified, not believed."""

from enum import Enum

from agent.core.boundaries import Boundary, seconds_after
from agent.core.container_run import ContainerRun
from agent.core.records import PreStop

TOLERANCE_NS = 500_000_000
"""How much earlier than declared a hook may end: its start is known by the watch, not by the kubelet."""


class PreStopOutcome(Enum):
    """What became of a hook; values are those of the terminations' JSON."""

    ABSENT = "absent"
    """None is declared."""
    RAN = "ran"
    """It ran to its end."""
    FAILED = "failed"
    """It ran or was tried, and failed: the kubelet goes on at once."""
    CUT_BY_GRACE = "cut_by_grace"
    """The grace period, which covers the hook, ended before it did."""
    SHORTER = "shorter_than_declared"
    """The stop signal came before the declared time was over, and nothing tells why."""
    UNKNOWN = "unknown"
    """Neither the kernel nor the kubelet told enough."""


def outcome_of(hook: PreStop | None, run: ContainerRun, grace_seconds: float) -> PreStopOutcome:
    """What became of the hook of a run that has been ended, as far as it is known now."""
    if hook is None:
        return PreStopOutcome.ABSENT
    started, ended = (run.boundaries.get(b) for b in (Boundary.PRESTOP_STARTED, Boundary.PRESTOP_ENDED))
    if started is None:
        return PreStopOutcome.UNKNOWN
    grace_over_ns = seconds_after(started.at_ns, grace_seconds) - TOLERANCE_NS
    due_ns = None if hook.seconds is None else seconds_after(started.at_ns, hook.seconds) - TOLERANCE_NS
    cut = ended is not None and ended.at_ns >= grace_over_ns
    if run.hook_failure is not None or (run.hook_exit is not None and run.hook_exit.code != 0):
        return PreStopOutcome.CUT_BY_GRACE if cut else PreStopOutcome.FAILED
    if ended is None:
        return _outcome_without_an_end(run, due_ns, grace_over_ns)
    if due_ns is not None and ended.at_ns < due_ns:
        if _was_killed_outright(run):
            return PreStopOutcome.UNKNOWN
        return PreStopOutcome.CUT_BY_GRACE if cut else PreStopOutcome.SHORTER
    if cut and hook.seconds is None and Boundary.KILL_SIGNAL in run.boundaries:
        return PreStopOutcome.CUT_BY_GRACE
    return PreStopOutcome.RAN if _was_proven(hook, run) else PreStopOutcome.UNKNOWN


def _was_killed_outright(run: ContainerRun) -> bool:
    """Whether somebody killed the container without asking it to stop: that says nothing of its hook."""
    killed, stopped = (run.boundaries.get(b) for b in (Boundary.KILL_SIGNAL, Boundary.STOP_SIGNAL))
    return killed is not None and killed == stopped


def _outcome_without_an_end(run: ContainerRun, due_ns: int | None, grace_over_ns: int) -> PreStopOutcome:
    exited = run.boundaries.get(Boundary.EXITED)
    if exited is None:
        return PreStopOutcome.UNKNOWN
    if due_ns is not None and exited.at_ns < due_ns:
        return PreStopOutcome.CUT_BY_GRACE if exited.at_ns >= grace_over_ns else PreStopOutcome.SHORTER
    return PreStopOutcome.RAN if run.killing is not None else PreStopOutcome.UNKNOWN


def _was_proven(hook: PreStop, run: ContainerRun) -> bool:
    """Whether a hook that ended in time is known to have run: its process, its length, or no complaint.

    The kubelet complains of a hook that failed (event FailedPreStopHook), so where its event Killing has been
    seen, silence is an answer.
    """
    return (
        run.hook_exit is not None or run.hook_connected or hook.seconds is not None or run.killing is not None
    )
