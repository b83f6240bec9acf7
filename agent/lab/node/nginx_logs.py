import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agent.lab.node.errors import NodeError
from agent.lab.node.outcome import FailedConnection, Outcome, Via

ERROR_LINE = re.compile(
    r"^\S+ \S+ \[\w+\] \d+#\d+: \*\d+ (?P<message>.*), client: \S+, server: [^,]*, "
    r'request: "(?P<method>\S+) (?P<target>\S+) HTTP/[\d.]+", upstream: "http://(?P<address>[^/"]+)'
)
REQUEST_ID = re.compile(r"[?&]id=([^&]*)")
SOCKET_ERROR = re.compile(r"\((?P<number>\d+): [^)]*\)")
CONNECTING = "while connecting to upstream"
NO_CONNECTION = "no live upstreams"
TIMED_OUT_NUMBERS = frozenset({110, 113, 101})
REFUSED_NUMBERS = frozenset({111})
RESET_NUMBERS = frozenset({104, 32, 103})
STATUS_OF_FAILURE = frozenset({"502", "504"})


class LogsDisagree(NodeError):
    """nginx's access log and error log do not tell the same story; the message says where."""


@dataclass(frozen=True)
class UpstreamError:
    """One line of the error log about an upstream connection."""

    request_id: str
    address: str
    outcome: Outcome
    message: str


@dataclass(frozen=True)
class UpstreamAttempt:
    """One upstream connection that a request used; times are CLOCK_REALTIME, to the millisecond."""

    address: str
    status: str
    started_ns: int
    ended_ns: int


@dataclass(frozen=True)
class ProxiedRequest:
    """One line of the access log."""

    request_id: str
    method: str
    status: int
    attempts: tuple[UpstreamAttempt, ...]


def outcome_of_message(message: str) -> Outcome:
    """What happened to an upstream connection, by nginx's message; LogsDisagree if that is not known.

    The messages are those of nginx's ngx_http_upstream.c and ngx_connection_error.
    """
    connecting = CONNECTING in message
    if "prematurely closed connection" in message:
        return Outcome.TRUNCATED
    if "upstream timed out" in message:
        return Outcome.TIMED_OUT if connecting else Outcome.NO_ANSWER
    found = SOCKET_ERROR.search(message)
    number = int(found["number"]) if found else 0
    if number in RESET_NUMBERS:
        return Outcome.RESET
    if connecting and number in REFUSED_NUMBERS:
        return Outcome.REFUSED
    if number in TIMED_OUT_NUMBERS:
        return Outcome.TIMED_OUT if connecting else Outcome.NO_ANSWER
    raise LogsDisagree(f"an upstream error that is not understood: {message}")


def upstream_errors(lines: Iterable[str]) -> Iterator[UpstreamError]:
    """The error log's lines about upstream connections; all others are skipped."""
    for line in lines:
        found = ERROR_LINE.match(line)
        if found is None or "[warn]" in line or NO_CONNECTION in line:
            continue
        request_id = REQUEST_ID.search(found["target"])
        yield UpstreamError(
            request_id[1] if request_id else "",
            found["address"],
            outcome_of_message(found["message"]),
            found["message"],
        )


def proxied_requests(lines: Iterable[str]) -> Iterator[ProxiedRequest]:
    """The access log's lines. An upstream address that is no address (`pods`) stands for no connection."""
    for line in lines:
        fields: dict[str, str] = json.loads(line)
        ended_ns = _nanoseconds(fields["ended"])
        started_ns = ended_ns - _nanoseconds(fields["seconds"])
        attempts: list[UpstreamAttempt] = []
        columns = (_listed(fields[name]) for name in ("upstream_addr", "upstream_status", "upstream_seconds"))
        for address, status, seconds in zip(*columns, strict=True):
            attempt_ended_ns = started_ns + _nanoseconds(seconds)
            if ":" in address:
                attempts.append(UpstreamAttempt(address, status, started_ns, attempt_ended_ns))
            started_ns = attempt_ended_ns
        yield ProxiedRequest(fields["id"], fields["method"], int(fields["status"]), tuple(attempts))


def failed_connections(
    requests: Iterable[ProxiedRequest], errors: Iterable[UpstreamError]
) -> list[FailedConnection]:
    """Every upstream connection that failed, once.

    Raises LogsDisagree unless each failed attempt in the access log has its line in the error log and the
    other way round.
    """
    unmatched: defaultdict[str, list[UpstreamError]] = defaultdict(list)
    for error in errors:
        unmatched[error.request_id].append(error)
    failures: list[FailedConnection] = []
    for request in requests:
        of_request = unmatched.pop(request.request_id, [])
        for attempt in request.attempts:
            if of_request and of_request[0].address == attempt.address and _failed(attempt, of_request[0]):
                failures.append(_failure(request, attempt, of_request.pop(0)))
            elif attempt.status in STATUS_OF_FAILURE:
                raise LogsDisagree(f"request {request.request_id}: no error line for {attempt}")
        if of_request:
            raise LogsDisagree(f"request {request.request_id}: no attempt for {of_request[0]}")
    if unmatched:
        raise LogsDisagree(f"requests without an access line: {', '.join(unmatched)}")
    return failures


def _failed(attempt: UpstreamAttempt, error: UpstreamError) -> bool:
    """A response that was cut after its header keeps the status the pod sent."""
    return attempt.status in STATUS_OF_FAILURE or "while reading upstream" in error.message


def _failure(request: ProxiedRequest, attempt: UpstreamAttempt, error: UpstreamError) -> FailedConnection:
    host, _, port = attempt.address.rpartition(":")
    return FailedConnection(
        time_ns=attempt.ended_ns,
        started_ns=attempt.started_ns,
        outcome=error.outcome,
        via=Via.UPSTREAM,
        method=request.method,
        remote=host.strip("[]"),
        remote_port=int(port),
        local=None,
        local_port=None,
        reused=None,
        closed_before_request=None,
        detail=error.message,
        request_id=request.request_id,
    )


def _listed(column: str) -> list[str]:
    """nginx leaves the column empty for a request that it answered itself."""
    return column.split(", ") if column else []


def _nanoseconds(seconds: str) -> int:
    """nginx writes `-` for a time that did not come to be."""
    return 0 if seconds == "-" else round(float(seconds) * 1000) * 1_000_000
