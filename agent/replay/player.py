"""Plays records through the joining code of the running agent, by the records' own clock."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from agent.core.counts import CountsRead, KernelCounts
from agent.core.observation import Observation, OwnState, OwnStateRead
from agent.core.orders import ForgetNamespace, Order
from agent.core.record_codec import RecordedEntry

TICK_NS = 1_000_000_000
"""As in the running agent: how often what has settled is looked at."""


@dataclass(slots=True)
class Player:
    """The state after the entries played so far; `now_ns` is the latest time among them."""

    observation: Observation
    counts: KernelCounts = field(default_factory=KernelCounts)
    own: OwnState = field(default_factory=OwnState)
    now_ns: int = 0
    entries: int = 0
    _next_tick_ns: int = 0

    def play(self, entries: Iterable[RecordedEntry]) -> None:
        """Take in all entries, in their order."""
        for entry in entries:
            self.now_ns = max(self.now_ns, entry.at_ns)
            if self.now_ns >= self._next_tick_ns:
                self._settle()
            self._take(entry)
            self.entries += 1
        if self.entries:
            self._settle()

    def _settle(self) -> None:
        self._carry_out(self.observation.settle(self.now_ns, self.counts))
        self._next_tick_ns = self.now_ns + TICK_NS

    def _take(self, entry: RecordedEntry) -> None:
        if isinstance(entry, CountsRead):
            self.counts = _updated(self.counts, entry.changed)
        elif isinstance(entry, OwnStateRead):
            self.own = entry.own
        else:
            self._carry_out(self.observation.apply(entry))

    def _carry_out(self, orders: Iterable[Order]) -> None:
        """Of all that the running agent would do, only this changes what the kernel counts."""
        for order in orders:
            if isinstance(order, ForgetNamespace):
                left = {key: count for key, count in self.counts.counts.items() if key.netns != order.netns}
                self.counts = KernelCounts(left, self.counts.sources, self.counts.hooks)


def _updated(counts: KernelCounts, changed: KernelCounts) -> KernelCounts:
    return KernelCounts(
        {**counts.counts, **changed.counts},
        {**counts.sources, **changed.sources},
        {**counts.hooks, **changed.hooks},
    )
