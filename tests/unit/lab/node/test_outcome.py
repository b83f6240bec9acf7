import errno

import pytest

from agent.lab.node.outcome import (
    FailedConnection,
    Outcome,
    Via,
    failed_connection_from_json,
    outcome_of_errno,
)


@pytest.mark.parametrize(
    ("number", "connected", "outcome"),
    [
        (errno.ECONNREFUSED, False, Outcome.REFUSED),
        (errno.EHOSTUNREACH, False, Outcome.TIMED_OUT),
        (errno.ENETUNREACH, False, Outcome.TIMED_OUT),
        (errno.ETIMEDOUT, False, Outcome.TIMED_OUT),
        (errno.ETIMEDOUT, True, Outcome.NO_ANSWER),
        (errno.EHOSTUNREACH, True, Outcome.NO_ANSWER),
        (errno.ECONNRESET, False, Outcome.RESET),
        (errno.ECONNRESET, True, Outcome.RESET),
        (errno.EPIPE, True, Outcome.RESET),
        (errno.EADDRNOTAVAIL, False, Outcome.OWN_ERROR),
        (errno.EMFILE, False, Outcome.OWN_ERROR),
    ],
)
def test_an_error_number_decides_the_outcome(number: int, connected: bool, outcome: Outcome) -> None:
    assert outcome_of_errno(number, connected=connected) is outcome


def test_only_failures_of_connections_are_blamed_on_a_pod() -> None:
    assert {outcome for outcome in Outcome if outcome.of_a_pod} == {
        Outcome.REFUSED,
        Outcome.TIMED_OUT,
        Outcome.RESET,
        Outcome.TRUNCATED,
        Outcome.NO_ANSWER,
    }


def test_a_record_survives_being_written_and_read() -> None:
    record = FailedConnection(
        time_ns=2,
        started_ns=1,
        outcome=Outcome.RESET,
        via=Via.SERVICE,
        method="POST",
        remote="10.201.0.1",
        remote_port=80,
        local=None,
        local_port=None,
        reused=True,
        closed_before_request=None,
        detail="ECONNRESET",
        request_id="0-1-1",
    )
    assert failed_connection_from_json(record.to_json()) == record
