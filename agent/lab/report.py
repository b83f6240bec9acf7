"""A play in words, for a reader with 100 columns."""

import textwrap
from collections import Counter
from collections.abc import Iterable

from agent.core.kinds import Kind
from agent.core.phases import Phase
from agent.lab.client_counts import CLASS_OF_KIND, FailureClass
from agent.lab.comparison import lastcall_by_class
from agent.lab.lastcall_counts import STAGES, LastcallCounts
from agent.lab.node.outcome import Outcome, Via
from agent.lab.paint import Colour, Paint
from agent.lab.play import Played
from agent.lab.scenario import Variant
from agent.lab.verdict import astray

WIDTH = 100
_LABEL = 14

_STAGE_NAMES = {"endpointslice": "endpoints", "kube_proxy": "kube-proxy", "traffic": "last traffic"}

_OUTCOME_WORDS = {
    Outcome.REFUSED: "refused",
    Outcome.TIMED_OUT: "timed out",
    Outcome.DELAYED: "delayed by a second SYN",
    Outcome.RESET: "reset",
    Outcome.TRUNCATED: "truncated",
    Outcome.NO_ANSWER: "without answer",
    Outcome.REJECTED: "rejected (no endpoint)",
}


def play_text(played: Played, problems: Iterable[str], paint: Paint) -> str:
    """The play's paragraph."""
    title = f"{played.scenario.name} · {played.variant.value}"
    seconds = f"{played.seconds:.1f} s"
    lines = [
        paint(Colour.HEADING, title)
        + " " * (WIDTH - len(title) - len(seconds))
        + paint(Colour.QUIET, seconds),
        *_wrapped("", _what_happened(played)),
        *_wrapped("requests", _requests(played)),
        *_wrapped("clients saw", _clients_saw(played)),
    ]
    if played.lastcall is not None:
        lines += _table(played, played.lastcall)
        lines += _wrapped("late", _late(played.lastcall))
        lines += _wrapped("lag", _lag(played, played.lastcall))
        if lost := astray(played):
            lines += _wrapped(
                "", f"{lost} refused timed out for the client: the reset went with the pod's network."
            )
    found = list(problems)
    lines += [paint(Colour.BAD, line) for problem in found for line in _wrapped("", problem)]
    if not found:
        lines += [paint(Colour.GOOD, line) for line in _wrapped("", _all_well(played))]
    return "\n".join(lines)


def _what_happened(played: Played) -> str:
    if played.variant is Variant.BEFORE:
        return played.scenario.happens
    return f"The same with the fix: {played.scenario.fix}."


def _requests(played: Played) -> str:
    counts: dict[str, int] = {}
    for result in played.streams:
        door = "nginx" if result.stream.via is Via.INGRESS else "the Service"
        kept = ", kept alive" if result.stream.keep_alive else ""
        name = f"{result.stream.method} through {door}{kept}"
        counts[name] = counts.get(name, 0) + result.load.sent
    return f"{played.clients.requests:,}: " + ", ".join(f"{count:,} {name}" for name, count in counts.items())


def _clients_saw(played: Played) -> str:
    users = [record for result in played.streams for record in (*result.load.failures, *result.load.delayed)]
    words = [f"{played.clients.answered:,} answered"]
    for outcome, word in _OUTCOME_WORDS.items():
        count = sum(record.outcome is outcome for record in users)
        if count:
            words.append(f"{count} {word}")
    errors = [record for record in users if record.outcome is Outcome.HTTP_ERROR]
    statuses = Counter((error.detail, error.method) for error in errors)
    words += [f"{count} {method} {status}" for (status, method), count in sorted(statuses.items())]
    text = ", ".join(words)
    if played.upstream_failures:
        told = {record.request_id for record in errors}
        silent = sum(failure.request_id not in told for failure in played.upstream_failures)
        text += f"; nginx lost {len(played.upstream_failures)} connections to pods"
        text += f", {silent} of them without a trace for its users" if silent else ""
    return text


def _table(played: Played, counted: LastcallCounts) -> list[str]:
    clients, lastcall = played.clients.by_class, lastcall_by_class(counted.by_kind)
    lines = [f"  {'connections':<{_LABEL}}{'clients':>8}{'Lastcall':>10}"]
    for failure_class in FailureClass:
        numbers = f"{clients[failure_class]:>8}{lastcall[failure_class]:>10}"
        detail = _kinds(counted, {kind for kind in Kind if CLASS_OF_KIND.get(kind) is failure_class})
        lines += _wrapped_after(f"  {failure_class.value:<{_LABEL}}{numbers}   ", detail)
    overflow = _kinds(counted, {Kind.OVERFLOW})
    if overflow:
        lines += _wrapped_after(f"  {'not compared':<{_LABEL}}{'':>18}   ", overflow)
    total = f"{played.clients.total:>8}{sum(lastcall.values()):>10}"
    lines.append(f"  {'total':<{_LABEL}}{total}")
    return lines


def _kinds(counted: LastcallCounts, kinds: set[Kind]) -> str:
    words = []
    for kind in Kind:
        phases = {
            phase: count
            for (of, phase), count in counted.by_kind_and_phase.items()
            if of is kind and of in kinds
        }
        if phases:
            words.append(f"{sum(phases.values())} {kind.value} ({_phases(phases)})")
    return ", ".join(words)


def _phases(counts: dict[Phase, int]) -> str:
    return ", ".join(f"{counts[phase]} {phase.value}" for phase in Phase if phase in counts)


def _late(counted: LastcallCounts) -> str:
    by_phase = counted.late_by_phase
    if not by_phase:
        return "no new connection reached a dying pod that still accepted"
    return f"{sum(by_phase.values())} new connections that dying pods still accepted ({_phases(by_phase)})"


def _lag(played: Played, counted: LastcallCounts) -> str:
    if counted.longest_lag is None:
        alone = played.scenario.workload(played.variant).replicas == 1
        return "none: traffic to the last endpoint is sent by design" if alone else "not observed"
    words = [
        f"{_STAGE_NAMES[stage]} {counted.stages[stage].mean:.2f} s"
        for stage in STAGES
        if stage in counted.stages
    ]
    return f"{counted.longest_lag:.2f} s at most; on average {', '.join(words)}"


def _all_well(played: Played) -> str:
    if played.lastcall is None:
        return "The agent was left out."
    if played.clients.total == 0:
        return "Counts equal: no connection was dropped."
    return f"Counts equal: {played.clients.total} connections dropped."


def _wrapped(label: str, text: str) -> list[str]:
    return _wrapped_after(f"  {label:<{_LABEL}}" if label else "  ", text)


def _wrapped_after(start: str, text: str) -> list[str]:
    if not text:
        return [start.rstrip()]
    return textwrap.wrap(text, WIDTH, initial_indent=start, subsequent_indent=" " * len(start))
