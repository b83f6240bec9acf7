"""A play as JSON."""

from dataclasses import asdict
from typing import Any

from agent.lab.client_counts import FailureClass
from agent.lab.comparison import lastcall_by_class
from agent.lab.lastcall_counts import LastcallCounts
from agent.lab.play import Played


def scenario_json(played: list[tuple[Played, tuple[str, ...]]]) -> dict[str, Any]:
    """One scenario with its plays and what is wrong with each."""
    scenario = played[0][0].scenario
    return {
        "scenario": scenario.name,
        "happens": scenario.happens,
        "fix": scenario.fix,
        "equal": not any(problems for _, problems in played),
        "plays": [_play_json(play, problems) for play, problems in played],
    }


def _play_json(played: Played, problems: tuple[str, ...]) -> dict[str, Any]:
    return {
        "variant": played.variant.value,
        "seconds": round(played.seconds, 2),
        "requests": played.clients.requests,
        "answered": played.clients.answered,
        "streams": [
            _stream_json(result.load.sent, result.load.answered, result.stream) for result in played.streams
        ],
        "clients": {
            "by_class": {of.value: count for of, count in played.clients.by_class.items()},
            "by_outcome": {of.value: count for of, count in played.clients.by_outcome.items()},
            "total": played.clients.total,
        },
        "upstream_connections_failed": len(played.upstream_failures),
        "lastcall": None if played.lastcall is None else _lastcall_json(played.lastcall),
        "late_accepted": {pod: asdict(truth) for pod, truth in played.late.items()},
        "lag": None if played.lag is None else asdict(played.lag),
        "problems": list(problems),
    }


def _stream_json(sent: int, answered: int, stream: Any) -> dict[str, Any]:
    return {**asdict(stream), "via": stream.via.value, "sent": sent, "answered": answered}


def _lastcall_json(counted: LastcallCounts) -> dict[str, Any]:
    by_class = lastcall_by_class(counted.by_kind)
    return {
        "by_class": {of.value: by_class[of] for of in FailureClass},
        "dropped": [
            {"kind": kind.value, "phase": phase.value, "connections": count}
            for (kind, phase), count in counted.by_kind_and_phase.items()
        ],
        "late": [
            {"phase": phase.value, "connections": count} for phase, count in counted.late_by_phase.items()
        ],
        "longest_lag_seconds": counted.longest_lag,
        "stages": {stage: asdict(lag) for stage, lag in counted.stages.items()},
        "lost_events": counted.lost_events,
    }
