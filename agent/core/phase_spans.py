"""The phases that a dying pod went through, from the boundaries between them."""

from collections.abc import Mapping
from dataclasses import dataclass

from agent.core.boundaries import Boundary, Moment
from agent.core.phases import Phase


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    """One phase of a termination. A beginning or an end that was not observed is None."""

    phase: Phase
    began: Moment | None
    ended: Moment | None


def spans_of(boundaries: Mapping[Boundary, Moment], declares_prestop: bool) -> tuple[PhaseSpan, ...]:
    """Every phase from the deletion on, in order; a phase that a later boundary skipped has no length.

    The phase `gone` has no end: nothing comes after it.
    """
    first = Phase.PRESTOP if declares_prestop else Phase.TERMINATING
    begins = (
        (first, Boundary.DELETION_REQUESTED),
        (Phase.STOPPING, Boundary.STOP_SIGNAL),
        (Phase.CLOSED, Boundary.LISTENER_CLOSED),
        (Phase.EXITED, Boundary.EXITED),
        (Phase.GONE, Boundary.NETWORK_REMOVED),
    )
    began = [boundaries.get(boundary) for _, boundary in begins]
    spans = []
    for index, (phase, _) in enumerate(begins):
        following = began[index + 1] if index + 1 < len(begins) else None
        start = began[index]
        if start is not None and following is not None and following.at_ns < start.at_ns:
            # The process ended with its listener open: the listener closes a moment after the exit.
            start = following
        spans.append(PhaseSpan(phase, start, following))
    return tuple(spans)
