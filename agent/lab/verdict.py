"""What is wrong with a play: the reasons for which a lab run exits non-zero."""

from agent.core.kinds import Kind
from agent.lab.client_counts import CLASS_OF_KIND
from agent.lab.comparison import differences, resets_that_went_astray
from agent.lab.late_connections import LEARNED_WITHIN_NS, wrong_late_counts
from agent.lab.play import Played
from agent.lab.scenario import Variant

LAG_TOLERANCE_SECONDS = LEARNED_WITHIN_NS / 1e9
"""The agent's lag begins when the watch event arrives, the clients' when the deletion is requested."""


def problems(played: Played) -> tuple[str, ...]:
    """Each problem in one line; none means that the play showed what it should and the counts are right."""
    return (
        *_unequal_counts(played),
        *_wrong_phases(played),
        *_wrong_late(played),
        *_wrong_lag(played),
        *_not_as_meant(played),
    )


def astray(played: Played) -> int:
    """Resets of dying pods that went with their network: at most one for each pod is believed."""
    if played.lastcall is None:
        return 0
    refused = {
        phase: count
        for (kind, phase), count in played.lastcall.by_kind_and_phase.items()
        if kind is Kind.REFUSED
    }
    return resets_that_went_astray(differences(played.clients, played.lastcall.by_kind), refused)


def _unequal_counts(played: Played) -> list[str]:
    if played.lastcall is None:
        return []
    differing = differences(played.clients, played.lastcall.by_kind)
    if 0 < astray(played) <= len(played.late):
        differing = ()
    found = [
        f"DIFFER: {difference.failure_class.value}: clients {difference.clients},"
        f" Lastcall {difference.lastcall}"
        for difference in differing
    ]
    if played.lastcall.lost_events:
        found.append(f"Lastcall lost {played.lastcall.lost_events} events")
    return found


def _wrong_phases(played: Played) -> list[str]:
    if played.lastcall is None:
        return []
    return [
        f"DIFFER: phase: {count} {kind.value} in phase {phase.value}, where none can be"
        for (kind, phase), count in played.lastcall.by_kind_and_phase.items()
        if phase not in played.scenario.phases
    ]


def _wrong_lag(played: Played) -> list[str]:
    """A pod that died alone has every late and every dropped connection, so its lag is known exactly."""
    if played.lastcall is None or played.lag is None:
        return []
    counted = played.lastcall.pod_lag.get(played.lag.pod)
    if played.scenario.workload(played.variant).replicas == 1:
        # Traffic to the last endpoint is sent by design (KEP-1669), and is not called lag.
        if counted is None:
            return []
    elif counted is not None and abs(counted - played.lag.seconds) <= LAG_TOLERANCE_SECONDS:
        return []
    return [f"DIFFER: lag: clients {played.lag.seconds:.3f} s, Lastcall {counted}"]


def _wrong_late(played: Played) -> list[str]:
    if played.lastcall is None:
        return []
    counted = played.lastcall.late_by_pod
    unaccepted = played.lastcall.dropped_by_pod(Kind.UNACCEPTED)
    return [
        f"DIFFER: late: pod {pod} accepted {truth.at_least} to {truth.at_most},"
        f" Lastcall {counted.get(pod, 0)}"
        for pod, truth in wrong_late_counts(played.late, counted, unaccepted).items()
    ]


def _not_as_meant(played: Played) -> list[str]:
    if played.variant is Variant.AFTER or not played.scenario.shows:
        if played.clients.total == 0:
            return []
        return [f"the clients lost {played.clients.total} connections although nothing is wrong any more"]
    seen = played.clients.by_class
    missing = [kind for kind in played.scenario.shows if not seen[CLASS_OF_KIND[kind]]]
    if played.lastcall is not None:
        counted = played.lastcall.by_kind
        missing += [kind for kind in played.scenario.shows - set(missing) if not counted.get(kind)]
    return [f"the failure did not show: nothing {kind.value}" for kind in missing]
