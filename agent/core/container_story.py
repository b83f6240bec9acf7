"""What each record tells of a pod's containers, written into the runs of its life and its own boundaries."""

from dataclasses import replace

from agent.core.boundaries import SECOND_NS, Boundary, Moment, Source, reach, seconds_after
from agent.core.container_run import (
    ContainerRun,
    RestartCause,
    SentSignal,
    exit_of_status,
    exit_of_wait_status,
)
from agent.core.container_runs import (
    begin_run,
    name_run,
    replace_earlier,
    run_of_container,
    run_of_init,
    run_with_id,
)
from agent.core.life import PodLife
from agent.core.prestop_evidence import SeenConnection, SeenProcess, hook_seen
from agent.core.records import (
    ContainerEnd,
    ContainerExited,
    EnteredProcessEnded,
    EventReason,
    HookType,
    KubeletConnected,
    KubeletDisconnected,
    ListenerClosed,
    ListenerOpened,
    PodEventSeen,
    PreStop,
    ProcessEntered,
    StopSignalSent,
)

SIGKILL = 9
NEWS_NS = 60 * SECOND_NS
"""An event that is older than this and the pod's grace period tells of an end before the present one."""

_RUN_BOUNDARIES = (
    Boundary.PRESTOP_STARTED,
    Boundary.PRESTOP_ENDED,
    Boundary.STOP_SIGNAL,
    Boundary.LISTENER_CLOSED,
    Boundary.KILL_SIGNAL,
    Boundary.EXITED,
)

_GOES_WITH_ITS_POD = "Stopping container "
_CAUSES = (
    ("failed liveness probe", RestartCause.LIVENESS_PROBE),
    ("failed startup probe", RestartCause.STARTUP_PROBE),
)
"""What the kubelet's event Killing says of a container that it ends to start it again.

Other reasons have other words (a changed definition, a resize, a failed postStart hook); of a container that
goes with its pod it says "Stopping container NAME" (docs/kinds-and-phases.md).
"""

_ENDS_THE_POD = {
    EventReason.EVICTED,
    EventReason.NODE_SHUTDOWN,
    EventReason.PREEMPTING,
    EventReason.EXCEEDED_GRACE_PERIOD,
}


def listener_opened(life: PodLife, record: ListenerOpened) -> None:
    """A process of the pod listens on one more port."""
    if record.init_pid:
        run = begin_run(life, record.init_pid, record.at_ns)
        run.serves = True
        run.open_ports.add(record.port)
        run.ports_closed.pop(record.port, None)
        run.boundaries.pop(Boundary.LISTENER_CLOSED, None)
        run.name = run.name or life.names.get(run.container_id or "")
        if not life.deleted:
            # The container that was stopped or ended is up again.
            for boundary in _RUN_BOUNDARIES:
                run.boundaries.pop(boundary, None)
            replace_earlier(life, run)
    life.own_boundaries.pop(Boundary.LISTENER_CLOSED, None)


def listener_closed(life: PodLife, record: ListenerClosed) -> None:
    """A port of the pod has no listener any more."""
    moment = Moment(record.at_ns, Source.KERNEL)
    owners = [run for run in life.runs if record.port in run.open_ports]
    for run in owners:
        run.open_ports.discard(record.port)
        run.ports_closed[record.port] = moment
        if not run.open_ports:
            reach(run.boundaries, Boundary.LISTENER_CLOSED, moment)
    known = owners or any(record.port in run.ports_closed for run in life.runs)
    if not known and not any(run.open_ports for run in life.runs):
        # Of a listener that is older than the agent it is not always known whose it is.
        reach(life.own_boundaries, Boundary.LISTENER_CLOSED, moment)


def signalled(life: PodLife, record: StopSignalSent) -> None:
    """The runtime has signalled a container; the pause container's end is not the pod's."""
    run = run_of_init(life, record.init_pid)
    if run is None or run.seen_ending or not run.of_a_container:
        return
    moment = Moment(record.at_ns, Source.KERNEL)
    if Boundary.STOP_SIGNAL not in run.boundaries:
        run.stop_signal = SentSignal(record.signal, record.result, record.sender)
    reached = [Boundary.STOP_SIGNAL] + [Boundary.KILL_SIGNAL] * (record.signal == SIGKILL)
    for boundary in reached:
        reach(run.boundaries, boundary, moment)
    judge_hooks(life)


def exited(life: PodLife, record: ContainerExited) -> bool:
    """A container's init process has ended; whether it was one of the pod's containers."""
    run = run_of_init(life, record.init_pid)
    if run is None or run.seen_ending or not run.of_a_container:
        return False
    moment = Moment(record.at_ns, Source.KERNEL)
    reach(run.boundaries, Boundary.EXITED, moment)
    run.exit = replace(exit_of_wait_status(record.exit_code), reason=run.exit.reason if run.exit else None)
    judge_hooks(life)
    return True


def process_entered(life: PodLife, record: ProcessEntered) -> None:
    """A process was started in a container from outside: perhaps its hook, but not if it is the container."""
    if run_of_init(life, record.pid) is not None:
        return
    life.seen_processes.append(SeenProcess(record))
    judge_hooks(life)


def entered_process_ended(life: PodLife, record: EnteredProcessEnded) -> None:
    """A process that was started from outside has ended."""
    for process in reversed(life.seen_processes):
        if process.entered.pid == record.pid and process.ended is None:
            process.ended = record
            break
    judge_hooks(life)


def kubelet_connected(life: PodLife, record: KubeletConnected) -> None:
    """The kubelet has connected to a port of the pod: perhaps its hook."""
    life.seen_connections.append(SeenConnection(record))
    judge_hooks(life)


def kubelet_disconnected(life: PodLife, record: KubeletDisconnected) -> None:
    """A connection of the kubelet has been closed."""
    for seen in reversed(life.seen_connections):
        same = (seen.opened.port, seen.opened.source_port) == (record.port, record.source_port)
        if same and seen.closed is None:
            seen.closed = record
            break
    judge_hooks(life)


def status_told(life: PodLife, at_ns: int, first_sight: bool) -> None:
    """The pod's status names its containers, and tells of ends that the kernel side may not have seen.

    What had ended long before the agent first saw the pod is none of its business.
    """
    for container in life.pod.containers:
        run = None
        if container.container_id:
            run = name_run(life, container.name, container.container_id, at_ns)
        if (
            run is not None
            and container.ended
            and (_is_news(life, container.ended, at_ns) or not first_sight)
        ):
            _status_ended(life, run, container.ended, at_ns)
        before = container.ended_before
        replaced = run_with_id(life, before.container_id) if before else None
        if before and replaced is not None:
            replaced.name = container.name
            _status_ended(life, replaced, before, at_ns)
    if life.pod.network_ready is False and (life.deleted or life.pod.finished) and not first_sight:
        exited = life.boundaries.get(Boundary.EXITED)
        floor = (exited.not_before_ns or exited.at_ns) if exited else None
        reach(life.own_boundaries, Boundary.NETWORK_REMOVED, Moment(at_ns, Source.API, floor))


def _is_news(life: PodLife, end: ContainerEnd, at_ns: int) -> bool:
    return life.deleted or (end.finished_ns is not None and at_ns - end.finished_ns < NEWS_NS)


def _status_ended(life: PodLife, run: ContainerRun, end: ContainerEnd, at_ns: int) -> None:
    floor = end.finished_ns
    moment = Moment(min(at_ns, floor + SECOND_NS) if floor else at_ns, Source.API, floor)
    if run.exit is None or run.exit.reason is None:
        told = exit_of_status(end)
        # The kernel's own word on code and signal stays; why (OOMKilled) only the API knows.
        run.exit = told if run.exit is None else replace(run.exit, reason=told.reason)
    reach(run.boundaries, Boundary.EXITED, moment)
    if run.exit.killed and run.exit.reason != "OOMKilled":
        _infer_kill(life, run)
    judge_hooks(life)


def _infer_kill(life: PodLife, run: ContainerRun) -> None:
    """SIGKILL ended the run: if the grace period was over by then, it was that."""
    begun, exited = _end_begun(life, run), run.boundaries[Boundary.EXITED]
    if begun is not None:
        grace_over_ns = seconds_after(begun.at_ns, life.pod.grace_seconds)
        if grace_over_ns <= exited.at_ns:
            reach(run.boundaries, Boundary.KILL_SIGNAL, Moment(exited.at_ns, Source.INFERRED, grace_over_ns))


def event_told(life: PodLife, record: PodEventSeen) -> bool:
    """An event about the pod; whether it says that the kubelet ends the whole pod, deleted or not."""
    oldest = record.at_ns - NEWS_NS - int(life.pod.grace_seconds * SECOND_NS)
    if record.stamped_ns is not None and record.stamped_ns < oldest:
        return False
    if record.reason in _ENDS_THE_POD:
        life.kubelet_events.append(record)
        return True
    stamped = None if record.stamped_ns is None else record.stamped_ns + SECOND_NS
    run = run_of_container(life, record.container, stamped)
    if run is None:
        return record.reason is EventReason.KILLING and _cause(record) is None
    if record.reason is EventReason.FAILED_PRESTOP_HOOK:
        run.hook_failure = record
        judge_hooks(life)
    if record.reason is not EventReason.KILLING:
        return False
    run.killing = run.killing or record
    run.restart_cause = _cause(record)
    judge_hooks(life)
    return run.restart_cause is None and not _only_sidecars_are_left(life)


def _only_sidecars_are_left(life: PodLife) -> bool:
    """A pod that has done its work is over by itself; its sidecars are stopped then (KEP-753)."""
    main = [container.name for container in life.pod.containers if not container.sidecar]
    runs = [run for name in main if (run := run_of_container(life, name)) is not None]
    return len(main) < len(life.pod.containers) and bool(runs) and all(run.ended for run in runs)


def _cause(record: PodEventSeen) -> RestartCause | None:
    if record.message.startswith(_GOES_WITH_ITS_POD):
        return None
    return next((cause for words, cause in _CAUSES if words in record.message), RestartCause.CHANGED)


def judge_hooks(life: PodLife) -> None:
    """Say when each container's preStop hook began and ended, from all the evidence so far."""
    for run in life.runs:
        container = life.container_of(run)
        begun = _end_begun(life, run)
        if container is None or container.prestop is None or begun is None:
            continue
        exited = run.boundaries.get(Boundary.EXITED)
        if exited is None or exited.at_ns >= begun.at_ns:
            _judge_hook(life, container.prestop, run, begun)


def _end_begun(life: PodLife, run: ContainerRun) -> Moment | None:
    """When the kubelet began to end the run: it hears of a deletion at the same time as the agent does."""
    deletion = life.own_boundaries.get(Boundary.DELETION_REQUESTED)
    if deletion is not None and not run.replaced:
        return Moment(deletion.at_ns, Source.INFERRED)
    if run.killing is not None:
        return Moment(run.killing.at_ns, Source.EVENT, run.killing.stamped_ns)
    return None


def _judge_hook(life: PodLife, hook: PreStop, run: ContainerRun, begun: Moment) -> None:
    stop = run.boundaries.get(Boundary.STOP_SIGNAL)
    begun_ns = begun.at_ns if begun.source is Source.INFERRED else begun.not_before_ns or begun.at_ns
    seen = hook_seen(hook, life.seen_processes, life.seen_connections, begun_ns, stop.at_ns if stop else None)
    if seen is not None:
        run.boundaries[Boundary.PRESTOP_STARTED] = Moment(seen.started_ns, Source.KERNEL)
        if seen.ended_ns is not None:
            run.boundaries[Boundary.PRESTOP_ENDED] = Moment(seen.ended_ns, Source.KERNEL)
        run.hook_connected = hook.hook is HookType.HTTP
        if seen.exit_status is not None:
            run.hook_exit = exit_of_wait_status(seen.exit_status)
        return
    if stop is not None and stop.at_ns < begun.at_ns:
        return  # the container was killed before anybody asked for its end
    reach(run.boundaries, Boundary.PRESTOP_STARTED, begun)
    failure = run.hook_failure
    if failure is not None:
        # Of a hook that the grace period has cut the kubelet tells after the signal.
        ended_ns = min(failure.at_ns, stop.at_ns) if stop else failure.at_ns
        run.boundaries[Boundary.PRESTOP_ENDED] = Moment(ended_ns, Source.EVENT, failure.stamped_ns)
    elif stop is not None:
        reach(run.boundaries, Boundary.PRESTOP_ENDED, Moment(stop.at_ns, Source.INFERRED))
    elif run.ended and hook.seconds is not None:
        _infer_end_of_sleep(hook, run, seconds_after(begun.at_ns, hook.seconds))


def _infer_end_of_sleep(hook: PreStop, run: ContainerRun, due_ns: int) -> None:
    """Without the kernel's word, a sleep has lasted as declared, if the exit does not say otherwise.

    One that is run as a command has to be started first, which takes some tens of milliseconds.
    """
    exited_ns = run.boundaries[Boundary.EXITED].at_ns
    if exited_ns >= due_ns:
        at_ns = due_ns if hook.hook is HookType.SLEEP else exited_ns
        floor = None if at_ns == due_ns else due_ns
        reach(run.boundaries, Boundary.PRESTOP_ENDED, Moment(at_ns, Source.INFERRED, floor))
