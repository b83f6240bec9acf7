"""Terminations as text for a person, at most 100 columns wide."""

import textwrap
from collections.abc import Iterable, Iterator

from agent.core.boundaries import Moment
from agent.core.prestop import PreStopOutcome
from agent.core.termination import ContainerTermination, Scope, Termination
from agent.outputs.termination_json import signal_name, timestamp

WIDTH = 100
_NS = 1_000_000_000


def termination_text(end: Termination) -> str:
    """One termination: what ended and why, its moments in order of time, its stages, its connections."""
    return "\n".join(textwrap.fill(line, WIDTH, subsequent_indent="    ") for line in _lines(end))


def _lines(end: Termination) -> Iterator[str]:
    what = "pod" if end.scope is Scope.POD else "container of pod"
    yield f"{what} {end.namespace}/{end.pod} ({end.workload.kind} {end.workload.name}): {end.reason.value}"
    yield f"  began {timestamp(end.began_ns)}, grace period {end.grace_seconds:g} s"
    moments = sorted(_moments(end), key=lambda entry: entry[1].at_ns)
    yield from (_moment_line(what, moment, end.began_ns) for what, moment in moments)
    for container in end.containers:
        yield from _container_lines(container)
    for stage, result in end.stages.items():
        told = f"{result.seconds:.3f} s" if result.seconds is not None else f"unknown: {result.missing}"
        yield f"  lag {stage.value}: {told}"
    if end.served_by_design:
        yield "  traffic was sent to it by design: it was the last endpoint, or is published when not ready"
    yield f"  connections dropped: {_drops(end)}"


def _moments(end: Termination) -> Iterable[tuple[str, Moment]]:
    in_containers = {id(moment) for c in end.containers for moment in c.boundaries.values()}
    for boundary, moment in end.boundaries.items():
        if id(moment) not in in_containers:
            yield boundary.value.replace("_", " "), moment
    for container in end.containers:
        for boundary, moment in container.boundaries.items():
            yield f"{container.name or 'container'}: {boundary.value.replace('_', ' ')}", moment


def _moment_line(what: str, moment: Moment, origin: int) -> str:
    seconds = (moment.at_ns - origin) / _NS
    return f"  {seconds:>+9.3f} s  {what} ({moment.source.value})"


def _container_lines(container: ContainerTermination) -> Iterator[str]:
    if container.prestop_outcome is not PreStopOutcome.ABSENT and container.prestop is not None:
        declared = container.prestop.hook.value
        if container.prestop.seconds is not None:
            declared += f" {container.prestop.seconds:g} s"
        outcome = container.prestop_outcome.value.replace("_", " ")
        yield f"  {container.name}: preStop {declared}: {outcome}"
    if container.stop_signal is not None:
        sent = container.stop_signal
        yield (
            f"  {container.name}: {signal_name(sent.number)} from {_printable(sent.sender)},"
            f" {sent.result.name.lower().replace('_', ' ')}"
        )
    if container.exit is not None:
        ended = container.exit
        how = signal_name(ended.signal) if ended.signal is not None else f"code {ended.code}"
        yield f"  {container.name}: exit by {how}" + (f" ({ended.reason})" if ended.reason else "")


def _printable(name: str) -> str:
    """A process may name itself as it likes: no control characters reach the terminal."""
    return "".join(character if character.isprintable() else "?" for character in name)


def _drops(end: Termination) -> str:
    if end.dropped is None:
        return "unknown"
    parts = [f"{n} {kind.value} while {phase.value}" for (kind, phase), n in end.dropped.items()]
    late = sum(end.late.values()) if end.late is not None else 0
    return (", ".join(parts) or "none") + (f"; {late} more accepted late" if late else "")
