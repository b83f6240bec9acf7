"""How long to wait before trying again."""

import random
from dataclasses import dataclass


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

    def reset(self) -> None:
        """Forget the failures: it works again."""
        self.failures = 0
