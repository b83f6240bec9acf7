"""Which process or connection was a container's preStop hook: no field of the API says that a hook runs.

An exec hook is a process that the runtime starts in the container, an HTTP hook a connection of the kubelet
to the pod. Probes look the same, so both have to be told apart by their time. A sleep leaves no trace.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from agent.core.records import (
    EnteredProcessEnded,
    HookType,
    KubeletConnected,
    KubeletDisconnected,
    PreStop,
    ProcessEntered,
)

EARLIEST_START_NS = 100_000_000
"""The kubelet may start a hook before the agent's own watch tells of the deletion: both hear at once."""


@dataclass(slots=True)
class SeenProcess:
    """A process that was started in one of the pod's containers from outside."""

    entered: ProcessEntered
    ended: EnteredProcessEnded | None = None


@dataclass(slots=True)
class SeenConnection:
    """A connection of the kubelet to the pod."""

    opened: KubeletConnected
    closed: KubeletDisconnected | None = None


@dataclass(frozen=True, slots=True)
class SeenHook:
    """A hook as the kernel saw it; `exit_status` is the wait status of an exec hook's process."""

    started_ns: int
    ended_ns: int | None
    exit_status: int | None


def hook_seen(
    hook: PreStop,
    processes: Iterable[SeenProcess],
    connections: Iterable[SeenConnection],
    begun_ns: int,
    stopped_ns: int | None,
) -> SeenHook | None:
    """The hook of a container that began to be ended at `begun_ns` and was signalled at `stopped_ns`.

    Probes look the same, and go on while a hook runs. The kubelet signals the container as soon as its hook
    has ended, so of several candidates it is the one that ended last before the signal; till then the first.
    """
    if hook.hook is HookType.EXEC:
        seen = [
            SeenHook(
                process.entered.at_ns,
                process.ended.at_ns if process.ended else None,
                process.ended.exit_code if process.ended else None,
            )
            for process in processes
            if hook.command in (None, process.entered.command)
        ]
    elif hook.hook is HookType.HTTP:
        seen = [
            SeenHook(connection.opened.at_ns, connection.closed.at_ns if connection.closed else None, None)
            for connection in connections
            if hook.port in (None, connection.opened.port)
        ]
    else:
        return None
    return _likeliest([one for one in seen if one.started_ns >= begun_ns - EARLIEST_START_NS], stopped_ns)


def _likeliest(candidates: list[SeenHook], stopped_ns: int | None) -> SeenHook | None:
    if stopped_ns is None:
        return next(iter(candidates), None)
    before = [one for one in candidates if one.started_ns <= stopped_ns]
    ended = [one for one in before if one.ended_ns is not None and one.ended_ns <= stopped_ns]
    return max(ended, key=lambda one: one.ended_ns or 0, default=next(iter(before), None))
