"""Plays records through the joining code of the running agent, by the records' own clock."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from agent.core.counts import CountsRead, KernelCounts
from agent.core.observation import Observation, OwnState, OwnStateRead
from agent.core.orders import ForgetNamespace, Order
from agent.core.record_codec import RecordedEntry
from agent.core.records import PodChanged
from agent.core.termination import Termination

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
    failures: int = 0
    """Entries that the joining code failed at: the running agent passed them over too."""
    first_failure: str | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    """Names by UID of the pods that are on their node's own network, of which nothing is told."""
    _next_tick_ns: int = 0
    _forgotten: list[Termination] = field(default_factory=list)

    def play(self, entries: Iterable[RecordedEntry]) -> None:
        """Take in all entries, in their order."""
        for entry in entries:
            self.entries += 1
            try:
                self._take(entry)
            except Exception as error:
                self.failures += 1
                self.first_failure = self.first_failure or _one_line(entry, error)
        if self.entries:
            self._settle(self.now_ns)

    def terminations(self) -> tuple[Termination, ...]:
        """All ends in what was played, also those of pods that the running agent had forgotten at its end."""
        ends = (*self._forgotten, *self.observation.terminations(self.counts))
        return tuple(sorted(ends, key=lambda end: (end.began_ns, end.namespace, end.pod)))

    def _take(self, entry: RecordedEntry) -> None:
        if isinstance(entry, CountsRead):
            # Ticks that read nothing new are not in the recording. This one settled with what it read.
            self._settle_if_due(entry.at_ns - TICK_NS)
            self.counts = _updated(self.counts, entry.changed)
            self._settle(entry.at_ns)
            return
        self._settle_if_due(entry.at_ns)
        self.now_ns = max(self.now_ns, entry.at_ns)
        if isinstance(entry, PodChanged) and entry.pod.host_network:
            self.left_out[entry.pod.uid] = f"{entry.pod.namespace}/{entry.pod.name}"
        if isinstance(entry, OwnStateRead):
            self.own = entry.own
        else:
            self._carry_out(self.observation.apply(entry))

    def _settle_if_due(self, at_ns: int) -> None:
        """Settle at `at_ns`, and before at each of the agent's ticks in a long silence that had an effect."""
        if at_ns < self._next_tick_ns:
            return
        if at_ns - self._next_tick_ns >= TICK_NS:
            for due_ns in self.observation.settles_at(self.counts):
                ticks = max(0, -((self._next_tick_ns - due_ns) // TICK_NS))
                if self.now_ns < due_ns and self._next_tick_ns + ticks * TICK_NS < at_ns:
                    self._settle(self._next_tick_ns + ticks * TICK_NS)
        self._settle(at_ns)

    def _settle(self, at_ns: int) -> None:
        self.now_ns = max(self.now_ns, at_ns)
        self._next_tick_ns = self.now_ns + TICK_NS
        self._forgotten += self.observation.terminations_to_forget(self.now_ns, self.counts)
        self._carry_out(self.observation.settle(self.now_ns, self.counts))

    def _carry_out(self, orders: Iterable[Order]) -> None:
        """Of all that the running agent would do, only this changes what the kernel counts."""
        for order in orders:
            if isinstance(order, ForgetNamespace):
                left = {key: count for key, count in self.counts.counts.items() if key.netns != order.netns}
                self.counts = KernelCounts(left, self.counts.sources, self.counts.hooks)


def _one_line(entry: RecordedEntry, error: Exception) -> str:
    return " ".join(f"{type(entry).__name__}: {type(error).__name__}: {error}".split())


def _updated(counts: KernelCounts, changed: KernelCounts) -> KernelCounts:
    return KernelCounts(
        {**counts.counts, **changed.counts},
        {**counts.sources, **changed.sources},
        {**counts.hooks, **changed.hooks},
    )
