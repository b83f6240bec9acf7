"""What can be made to go wrong in the API server stand-in, and the count of what it served."""

import threading
from collections import Counter
from dataclasses import dataclass, field
from http import HTTPStatus


@dataclass(slots=True)
class Faults:
    """Switches a test may change at any time; each takes effect from the next request or event on."""

    delay_seconds: float = 0.0
    """Wait this long before answering a request or sending an event."""
    fail_with: HTTPStatus | None = None
    """Answer every list and watch request with this status."""
    expired_as_status: bool = False
    """A watch from a compacted revision gets HTTP status 410 and not an ERROR event in a 200 stream."""
    repeat_events: int = 1
    """Send every watch event this many times."""
    reverse_events: bool = False
    """Send the events of one wake-up in reverse order."""
    junk_line: bytes | None = None
    """Send this line once, before the next event of the next watch that has one."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the server has served: requests by (verb, plural), as ("watch", "pods"), and bytes of bodies."""

    requests: dict[tuple[str, str], int]
    bytes_sent: int


@dataclass(slots=True)
class TrafficCount:
    """The running count behind Traffic; safe to use from any thread."""

    _requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    _bytes_sent: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add_request(self, verb: str, plural: str) -> None:
        """Count one request."""
        with self._lock:
            self._requests[verb, plural] += 1

    def add_bytes(self, size: int) -> None:
        """Count bytes of a body or of a watch event."""
        with self._lock:
            self._bytes_sent += size

    def snapshot(self) -> Traffic:
        """The count so far."""
        with self._lock:
            return Traffic(dict(self._requests), self._bytes_sent)
