"""The boundaries of a pod that are those of its containers."""

from collections.abc import Iterable, Sequence

from agent.core.boundaries import Boundaries, Boundary, Moment
from agent.core.container_run import ContainerRun


def pod_boundaries(runs: Iterable[ContainerRun], sidecars: frozenset[str | None]) -> Boundaries:
    """What the runs that end with the pod amount to; sidecars, which end after the others, do not count.

    Signals and preStop hooks begin with the first container. Listeners are closed, hooks over and the pod has
    exited when the last of its containers is: of those that serve or, where none does, of all.
    """
    every = list(runs)
    main = [run for run in every if run.name not in sidecars] or every
    serving = [run for run in main if run.serves] or main
    hooked = [run for run in main if Boundary.PRESTOP_STARTED in run.boundaries]
    found = {
        Boundary.PRESTOP_STARTED: _first(hooked, Boundary.PRESTOP_STARTED),
        Boundary.PRESTOP_ENDED: _last(hooked, Boundary.PRESTOP_ENDED),
        Boundary.STOP_SIGNAL: _first(main, Boundary.STOP_SIGNAL),
        Boundary.LISTENER_CLOSED: _last([run for run in main if run.serves], Boundary.LISTENER_CLOSED),
        Boundary.KILL_SIGNAL: _first(main, Boundary.KILL_SIGNAL),
        Boundary.EXITED: _last(serving, Boundary.EXITED),
    }
    return {boundary: moment for boundary, moment in found.items() if moment is not None}


def _moments(runs: Iterable[ContainerRun], boundary: Boundary) -> list[Moment]:
    return [run.boundaries[boundary] for run in runs if boundary in run.boundaries]


def _first(runs: Iterable[ContainerRun], boundary: Boundary) -> Moment | None:
    return min(_moments(runs, boundary), key=lambda moment: moment.at_ns, default=None)


def _last(runs: Sequence[ContainerRun], boundary: Boundary) -> Moment | None:
    """The latest, once all have reached it."""
    moments = _moments(runs, boundary)
    complete = len(moments) == len(runs)
    return max(moments, key=lambda moment: moment.at_ns, default=None) if complete else None
