"""The true propagation lag: when clients last tried to reach a pod, from their own records."""

from collections.abc import Iterable
from dataclasses import dataclass

from agent.lab.client_counts import CLASS_OF_OUTCOME
from agent.lab.node.outcome import FailedConnection


@dataclass(frozen=True, slots=True)
class TrueLag:
    """From a pod's deletion to the start of the last new connection to it, in seconds."""

    pod: str
    seconds: float


def true_lag(
    pod: str, deleted_ns: int, accepted_ns: Iterable[int], failures: Iterable[FailedConnection]
) -> TrueLag | None:
    """The lag of the only pod that died, so that every new connection that failed was one to it.

    None if no new connection reached for it after its deletion.
    """
    tried = [failure.started_ns for failure in failures if failure.outcome in CLASS_OF_OUTCOME]
    late = [moment for moment in (*accepted_ns, *tried) if moment >= deleted_ns]
    return TrueLag(pod, (max(late) - deleted_ns) / 1e9) if late else None
