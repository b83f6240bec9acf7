"""Why a pod, or a container of a pod that stays, was ended."""

from enum import Enum

from agent.core.boundaries import Boundary, Source
from agent.core.container_run import ContainerRun
from agent.core.life import PodLife
from agent.core.records import EventReason


class Reason(Enum):
    """Who or what ended it (closed set); values are those of the terminations' JSON."""

    DELETED = "deleted"
    """The object was deleted: a rollout, a scale-down, a person, a drain that does not evict."""
    FORCE_DELETED = "force_deleted"
    """Deleted with a grace period of 0: the API forgets the pod while it lives."""
    EVICTED = "evicted"
    """The eviction API, as `kubectl drain` uses it."""
    PREEMPTED = "preempted"
    TAINTED = "tainted"
    """The node has a taint that the pod does not tolerate."""
    GARBAGE_COLLECTED = "garbage_collected"
    NODE_SHUTDOWN = "node_shutdown"
    NODE_PRESSURE = "node_pressure"
    """The kubelet evicted the pod: the node ran short of memory, disk or process IDs."""
    DEADLINE_EXCEEDED = "deadline_exceeded"
    ENDED_BY_KUBELET = "ended_by_kubelet"
    """The kubelet ends the whole pod, and has not said why (yet)."""
    LIVENESS_PROBE = "liveness_probe"
    STARTUP_PROBE = "startup_probe"
    CONTAINER_CHANGED = "container_changed"
    OOM_KILLED = "oom_killed"
    CRASHED = "crashed"
    """The container ended by itself, with an exit code that is not 0 or by a signal of its own."""
    COMPLETED = "completed"
    """The container ended by itself with exit code 0."""
    STOPPED = "stopped"
    """The runtime stopped the container, and nobody has said why."""


_DISRUPTIONS = {
    "EvictionByEvictionAPI": Reason.EVICTED,
    "PreemptionByScheduler": Reason.PREEMPTED,
    "DeletionByTaintManager": Reason.TAINTED,
    "DeletionByPodGC": Reason.GARBAGE_COLLECTED,
}
"""Reasons of the condition DisruptionTarget (KEP-3329)."""

_STATUS_REASONS = {
    "Evicted": Reason.NODE_PRESSURE,
    "Terminated": Reason.NODE_SHUTDOWN,
    "NodeShutdown": Reason.NODE_SHUTDOWN,
    "Shutdown": Reason.NODE_SHUTDOWN,
    "DeadlineExceeded": Reason.DEADLINE_EXCEEDED,
    "Preempting": Reason.PREEMPTED,
}
"""What the kubelet writes into status.reason of a pod that it ends (pkg/kubelet/eviction, nodeshutdown)."""

_EVENTS = {
    EventReason.EVICTED: Reason.NODE_PRESSURE,
    EventReason.NODE_SHUTDOWN: Reason.NODE_SHUTDOWN,
    EventReason.PREEMPTING: Reason.PREEMPTED,
}


def reason_of_pod(life: PodLife) -> Reason:
    """Why the pod is being ended, or was."""
    pod = life.pod
    by_kubelet = _STATUS_REASONS.get(pod.status_reason or "") or next(
        (_EVENTS[event.reason] for event in life.kubelet_events if event.reason in _EVENTS), None
    )
    if by_kubelet is not None:
        return by_kubelet
    if pod.disruption_reason in _DISRUPTIONS:
        return _DISRUPTIONS[pod.disruption_reason]
    requested = life.own_boundaries.get(Boundary.DELETION_REQUESTED)
    if requested is None:
        return _reason_of_a_finished_pod(life)
    if requested.source is Source.EVENT:
        return Reason.ENDED_BY_KUBELET
    return Reason.FORCE_DELETED if pod.grace_seconds == 0 else Reason.DELETED


def _reason_of_a_finished_pod(life: PodLife) -> Reason:
    """Of several containers the one that ended worst says why."""
    reasons = {reason_of_run(run) for run in life.present_runs if run.name not in life.sidecars}
    worst = (Reason.OOM_KILLED, Reason.CRASHED, Reason.STOPPED, Reason.LIVENESS_PROBE, Reason.STARTUP_PROBE)
    return next((reason for reason in worst if reason in reasons), Reason.COMPLETED)


def reason_of_run(run: ContainerRun) -> Reason:
    """Why a container of a pod that stays was ended, or ended."""
    if run.restart_cause is not None:
        return Reason(run.restart_cause.value)
    if run.exit is not None and run.exit.reason == "OOMKilled":
        return Reason.OOM_KILLED
    if Boundary.STOP_SIGNAL in run.boundaries:
        return Reason.STOPPED
    return Reason.COMPLETED if run.exit is not None and run.exit.code == 0 else Reason.CRASHED
