import errno
import json
from dataclasses import asdict, dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """How a connection failed, as its client saw it.

    DELAYED is no failure by itself: the first SYN got no answer, a later one did. A Service's first choice
    was then a pod that no longer answers, a later one another pod.
    """

    REFUSED = "refused"
    TIMED_OUT = "timed_out"
    RESET = "reset"
    TRUNCATED = "truncated"
    NO_ANSWER = "no_answer"
    HTTP_ERROR = "http_error"
    REJECTED = "rejected"
    OWN_ERROR = "own_error"
    DELAYED = "delayed"

    @property
    def of_a_pod(self) -> bool:
        """Whether a pod failed the connection, rather than nginx, the node's reject or the client itself."""
        return self in FAILED_BY_A_POD


FAILED_BY_A_POD = frozenset(
    {Outcome.REFUSED, Outcome.TIMED_OUT, Outcome.RESET, Outcome.TRUNCATED, Outcome.NO_ANSWER}
)


class Via(StrEnum):
    """Whose client the failed connection belongs to."""

    SERVICE = "service"
    INGRESS = "ingress"
    UPSTREAM = "upstream"


@dataclass(frozen=True)
class FailedConnection:
    """One connection that failed.

    `time_ns` and `started_ns` are CLOCK_REALTIME nanoseconds: when it failed, when connect() was called.
    `local` is None where the client does not tell (nginx). `remote` is what the client connected to: the
    Service address for `Via.SERVICE`, the pod for `Via.UPSTREAM`, nginx for `Via.INGRESS`.
    `closed_before_request` is true when the peer had already closed a kept-alive connection before the
    request was written on it.
    """

    time_ns: int
    started_ns: int
    outcome: Outcome
    via: Via
    method: str
    remote: str
    remote_port: int
    local: str | None
    local_port: int | None
    reused: bool | None
    closed_before_request: bool | None
    detail: str
    request_id: str

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))


def failed_connection_from_json(line: str) -> FailedConnection:
    """Raises ValueError, KeyError or TypeError for a line that `to_json` did not write."""
    fields = json.loads(line)
    return FailedConnection(
        **{**fields, "outcome": Outcome(fields["outcome"]), "via": Via(fields["via"])},
    )


REFUSED_ERRNOS = frozenset({errno.ECONNREFUSED})
TIMED_OUT_ERRNOS = frozenset({errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH})
RESET_ERRNOS = frozenset({errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED})


def outcome_of_errno(number: int, *, connected: bool) -> Outcome:
    """The outcome of a socket error; `connected` says whether connect() had succeeded.

    ETIMEDOUT, EHOSTUNREACH and ENETUNREACH after the handshake mean that the peer stopped answering.
    """
    if number in RESET_ERRNOS:
        return Outcome.RESET
    if number in TIMED_OUT_ERRNOS:
        return Outcome.NO_ANSWER if connected else Outcome.TIMED_OUT
    if number in REFUSED_ERRNOS and not connected:
        return Outcome.REFUSED
    return Outcome.OWN_ERROR
