"""How long to wait before trying again."""

import random
from dataclasses import dataclass

from agent.cluster.failures import ApiFailure, StatusFailure

_LONGEST_ASKED_WAIT_SECONDS = 60.0


@dataclass(slots=True)
class Backoff:
    """Waits that double from `first_seconds` to `longest_seconds`, each varied by half either way.

    Varied, because all nodes' agents lose the same API server at the same moment.
    """

    first_seconds: float
    longest_seconds: float
    failures: int = 0

    def next_seconds(self) -> float:
        """The wait after one more failure."""
        doubled = self.first_seconds * 2.0 ** min(self.failures, 32)
        self.failures += 1
        return min(doubled, self.longest_seconds) * random.uniform(0.5, 1.5)

    def seconds_after(self, failure: ApiFailure) -> float:
        """The wait after this failure: no less than the API server asks for, within a minute."""
        wait = self.next_seconds()
        if isinstance(failure, StatusFailure) and failure.retry_after_seconds is not None:
            return max(wait, min(failure.retry_after_seconds, _LONGEST_ASKED_WAIT_SECONDS))
        return wait

    def reset(self) -> None:
        """Forget the failures: it works again."""
        self.failures = 0
