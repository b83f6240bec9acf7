"""Terminations as JSON objects, by the schema in docs/terminations.md."""

import signal
from collections.abc import Mapping
from datetime import UTC, datetime

from agent.core.boundaries import Boundary, Moment
from agent.core.container_run import Exit, SentSignal
from agent.core.phase_spans import PhaseSpan
from agent.core.records import PreStop
from agent.core.termination import ContainerTermination, StageResult, Termination

SCHEMA_VERSION = 1
_NS = 1_000_000_000

Json = dict[str, object]


def termination_json(end: Termination) -> Json:
    """The object of one termination. What was not observed is null; times count from the deletion."""
    origin = end.began_ns
    return {
        "schema_version": SCHEMA_VERSION,
        "namespace": end.namespace,
        "pod": end.pod,
        "uid": end.uid,
        "node": end.node,
        "workload": {"kind": end.workload.kind, "name": end.workload.name},
        "scope": end.scope.value,
        "reason": end.reason.value,
        "grace_seconds": end.grace_seconds,
        "over": end.over,
        "boundaries": _boundaries(end.boundaries, origin),
        "containers": [_container(container, origin) for container in end.containers],
        "phases": [_phase(span, origin) for span in end.phases],
        "stages": {stage.value: _stage(result) for stage, result in end.stages.items()},
        "served_by_design": end.served_by_design,
        "drops": None
        if end.dropped is None
        else {
            "total": sum(end.dropped.values()),
            "by_kind_and_phase": [
                {"kind": kind.value, "phase": phase.value, "connections": connections}
                for (kind, phase), connections in sorted(
                    end.dropped.items(), key=lambda entry: (entry[0][0].value, entry[0][1].value)
                )
            ],
        },
        "late": None
        if end.late is None
        else {
            "total": sum(end.late.values()),
            "by_phase": {phase.value: connections for phase, connections in end.late.items()},
        },
    }


def _boundaries(boundaries: Mapping[Boundary, Moment], origin: int) -> Json:
    return {boundary.value: _moment(boundaries.get(boundary), origin) for boundary in Boundary}


def _moment(moment: Moment | None, origin: int) -> Json | None:
    if moment is None:
        return None
    return {
        "at": timestamp(moment.at_ns),
        "seconds": _seconds(moment.at_ns - origin),
        "source": moment.source.value,
        "not_before": None if moment.not_before_ns is None else timestamp(moment.not_before_ns),
    }


def timestamp(at_ns: int) -> str:
    """RFC 3339 in UTC with nanoseconds."""
    seconds, nanoseconds = divmod(at_ns, _NS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanoseconds:09}Z"


def _seconds(nanoseconds: int) -> float:
    return round(nanoseconds / _NS, 6)


def _container(container: ContainerTermination, origin: int) -> Json:
    return {
        "name": container.name,
        "container_id": container.container_id,
        "sidecar": container.sidecar,
        "prestop": {
            "declared": _hook(container.prestop) if container.prestop else None,
            "outcome": container.prestop_outcome.value,
        },
        "stop_signal": _signal(container.stop_signal) if container.stop_signal else None,
        "exit": _exit(container.exit) if container.exit else None,
        "boundaries": _boundaries(container.boundaries, origin),
        "ports_closed": {
            str(port): _moment(moment, origin) for port, moment in sorted(container.ports_closed.items())
        },
    }


def _hook(hook: PreStop) -> Json:
    return {"hook": hook.hook.value, "seconds": hook.seconds, "port": hook.port, "command": hook.command}


def _signal(sent: SentSignal) -> Json:
    return {
        "number": sent.number,
        "name": signal_name(sent.number),
        "result": sent.result.name.lower(),
        "sender": sent.sender,
    }


def signal_name(number: int) -> str:
    """SIGTERM for 15; real-time signals and unknown ones as SIG and their number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def _exit(ended: Exit) -> Json:
    return {
        "code": ended.code,
        "signal": None if ended.signal is None else signal_name(ended.signal),
        "reason": ended.reason,
    }


def _phase(span: PhaseSpan, origin: int) -> Json:
    began = None if span.began is None else _seconds(span.began.at_ns - origin)
    ended = None if span.ended is None else _seconds(span.ended.at_ns - origin)
    return {
        "phase": span.phase.value,
        "began": began,
        "ended": ended,
        "seconds": None if began is None or ended is None else round(ended - began, 6),
    }


def _stage(result: StageResult) -> Json:
    return {
        "seconds": None if result.seconds is None else round(result.seconds, 6),
        "witness": result.witness.value if result.witness else None,
        "missing": result.missing,
    }
