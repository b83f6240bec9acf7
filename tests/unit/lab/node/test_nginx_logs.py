import json

import pytest

from agent.lab.node.nginx_logs import (
    LogsDisagree,
    failed_connections,
    outcome_of_message,
    proxied_requests,
    upstream_errors,
)
from agent.lab.node.outcome import Outcome, Via

SERVER = 'client: 10.200.1.2, server: , request: "{method} {target} HTTP/1.1"'
READING = "while reading response header from upstream"
MESSAGES = {
    "connect() failed (111: Connection refused) while connecting to upstream": Outcome.REFUSED,
    "connect() failed (113: No route to host) while connecting to upstream": Outcome.TIMED_OUT,
    "connect() failed (101: Network is unreachable) while connecting to upstream": Outcome.TIMED_OUT,
    "upstream timed out (110: Connection timed out) while connecting to upstream": Outcome.TIMED_OUT,
    f"upstream timed out (110: Connection timed out) {READING}": Outcome.NO_ANSWER,
    f"recv() failed (104: Connection reset by peer) {READING}": Outcome.RESET,
    "recv() failed (104: Connection reset by peer) while connecting to upstream": Outcome.RESET,
    "writev() failed (32: Broken pipe) while sending request to upstream": Outcome.RESET,
    f"upstream prematurely closed connection {READING}": Outcome.TRUNCATED,
    "upstream prematurely closed connection while reading upstream": Outcome.TRUNCATED,
}


def access_line(request_id: str, method: str, status: int, attempts: list[tuple[str, str, str]]) -> str:
    addresses, statuses, seconds = (
        (", ".join(column) for column in zip(*attempts, strict=True)) if attempts else ("",) * 3
    )
    return json.dumps(
        {
            "id": request_id,
            "ended": "1700000010.500",
            "seconds": "2.500",
            "method": method,
            "status": str(status),
            "upstream_addr": addresses,
            "upstream_status": statuses,
            "upstream_seconds": seconds,
            "upstream_connect_seconds": "-",
        }
    )


def error_line(request_id: str, address: str, message: str, method: str = "GET", level: str = "error") -> str:
    server = SERVER.format(method=method, target=f"/x?y=1&id={request_id}")
    upstream = f'upstream: "http://{address}/x", host: "h"'
    return f"2026/11/30 23:28:33 [{level}] 7#7: *9 {message}, {server}, {upstream}"


@pytest.mark.parametrize(("message", "outcome"), MESSAGES.items())
def test_every_message_about_an_upstream_has_its_outcome(message: str, outcome: Outcome) -> None:
    assert outcome_of_message(message) is outcome


def test_a_message_that_is_not_understood_is_an_error() -> None:
    with pytest.raises(LogsDisagree, match="not understood"):
        outcome_of_message("upstream sent too big header while reading response header from upstream")


def test_a_retried_request_fails_one_connection_and_keeps_its_times() -> None:
    line = access_line(
        "a-1", "GET", 200, [("10.0.0.1:8080", "504", "2.000"), ("10.0.0.2:8080", "200", "0.500")]
    )
    timed_out = "upstream timed out (110: Connection timed out) while connecting to upstream"
    (failure,) = failed_connections(
        proxied_requests([line]), upstream_errors([error_line("a-1", "10.0.0.1:8080", timed_out)])
    )
    assert (failure.outcome, failure.via, failure.method) == (Outcome.TIMED_OUT, Via.UPSTREAM, "GET")
    assert (failure.remote, failure.remote_port, failure.request_id) == ("10.0.0.1", 8080, "a-1")
    assert failure.started_ns == 1_700_000_008_000_000_000
    assert failure.time_ns == 1_700_000_010_000_000_000


def test_two_failures_of_one_request_on_ipv6_are_two_connections() -> None:
    one, two = "[fd00::1]:8080", "[fd00::2]:8080"
    line = access_line("a-1", "GET", 502, [(one, "502", "0.000"), (two, "502", "0.001")])
    refused = "connect() failed (111: Connection refused) while connecting to upstream"
    cut = "upstream prematurely closed connection while reading response header from upstream"
    errors = [error_line("a-1", one, refused), error_line("a-1", two, cut)]
    failures = failed_connections(proxied_requests([line]), upstream_errors(errors))
    assert [(failure.remote, failure.outcome) for failure in failures] == [
        ("fd00::1", Outcome.REFUSED),
        ("fd00::2", Outcome.TRUNCATED),
    ]


def test_a_response_cut_after_its_header_is_a_failed_connection() -> None:
    line = access_line("a-1", "GET", 200, [("10.0.0.1:8080", "200", "0.100")])
    cut = "upstream prematurely closed connection while reading upstream"
    (failure,) = failed_connections(
        proxied_requests([line]), upstream_errors([error_line("a-1", "10.0.0.1:8080", cut)])
    )
    assert failure.outcome is Outcome.TRUNCATED


def test_an_answer_of_nginx_itself_used_no_connection() -> None:
    (request,) = proxied_requests([access_line("a-1", "GET", 503, [])])
    assert request.attempts == ()
    (request,) = proxied_requests([access_line("a-1", "GET", 502, [("pods", "502", "0.000")])])
    assert request.attempts == ()


def test_lines_that_are_not_about_an_upstream_are_skipped() -> None:
    server = SERVER.format(method="GET", target="/")
    lines = [
        "2026/11/30 23:28:33 [notice] 7#7: signal 1 (SIGHUP) received from 1, reconfiguring",
        f"2026/11/30 23:28:33 [info] 7#7: *9 client closed connection while waiting for request, {server}",
        error_line(
            "a-1", "10.0.0.1:80", "a client request body is buffered to a temporary file", level="warn"
        ),
    ]
    assert list(upstream_errors(lines)) == []


def test_a_failed_attempt_without_an_error_line_is_an_error() -> None:
    line = access_line("a-1", "GET", 502, [("10.0.0.1:8080", "502", "0.000")])
    with pytest.raises(LogsDisagree, match="no error line"):
        failed_connections(proxied_requests([line]), [])


def test_an_error_line_without_an_attempt_is_an_error() -> None:
    refused = "connect() failed (111: Connection refused) while connecting to upstream"
    errors = list(upstream_errors([error_line("a-1", "10.0.0.1:8080", refused)]))
    with pytest.raises(LogsDisagree, match="without an access line: a-1"):
        failed_connections([], errors)
    answered = access_line("a-1", "GET", 200, [("10.0.0.1:8080", "200", "0.000")])
    with pytest.raises(LogsDisagree, match="no attempt"):
        failed_connections(proxied_requests([answered]), errors)
