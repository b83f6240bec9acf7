"""Everything that is known, out of records and counts: what `agent run` and a replay share."""

from dataclasses import InitVar, dataclass, field

from agent.core.counts import KernelCounts
from agent.core.ledger import Histogram, Ledger, Reading
from agent.core.life import PodLife, Stage
from agent.core.orders import IdentifySources, Order
from agent.core.records import Address, KubeProxyState, Record, SourceIdentified
from agent.core.snapshot import HookState, ProgramRuns, Snapshot, WatchState
from agent.core.source_book import SourceBook
from agent.core.tally import Tally
from agent.core.termination import Termination, terminations
from agent.core.tracker import Tracker

TRAFFIC_SETTLES_NS = 30_000_000_000
"""How long after its end a pod's last attempt is taken for the last: most SYN retries come within that."""


@dataclass(frozen=True, slots=True)
class OwnState:
    """How the agent itself fares."""

    hooks: tuple[HookState, ...] = ()
    program_runs: tuple[ProgramRuns, ...] = ()
    watches: tuple[WatchState, ...] = ()


@dataclass(frozen=True, slots=True)
class OwnStateRead:
    """How the agent fared at a time, in a recording."""

    at_ns: int
    own: OwnState


@dataclass(slots=True)
class Observation:
    """Pods, counts and lags. Counts of pods that were over `retention_ns` ago go to their workload."""

    retention_ns: int
    node_addresses: InitVar[frozenset[Address]] = frozenset()
    tracker: Tracker = field(default_factory=Tracker)
    kube_proxy_lag: Histogram = field(default_factory=Histogram)
    book: SourceBook = field(init=False)
    ledger: Ledger = field(init=False)

    def __post_init__(self, node_addresses: frozenset[Address]) -> None:
        self.book = SourceBook(node_addresses)
        self.ledger = Ledger(self.book)

    def apply(self, record: Record) -> list[Order]:
        """Take one record in; the orders that follow from it."""
        if isinstance(record, KubeProxyState):
            self._observe_kube_proxy(record)
        elif isinstance(record, SourceIdentified):
            self.book.identify(record)
        return self.tracker.apply(record)

    def _observe_kube_proxy(self, state: KubeProxyState) -> None:
        known = self.tracker.kube_proxy
        fresh = known is None or known.synced_ns != state.synced_ns
        if fresh and state.synced_ns and state.queued_ns and state.synced_ns >= state.queued_ns:
            self.kube_proxy_lag.observe((state.synced_ns - state.queued_ns) / 1e9)

    def settle(self, now_ns: int, counts: KernelCounts) -> list[Order]:
        """Observe what has settled by now and forget what is long over; to be called about once a second."""
        reading = self.ledger.read(self.tracker, counts)
        for life in self.tracker.lives.values():
            self._observe_lag(life, reading.pods[life.pod.uid], now_ns)
        lives = self.tracker.lives.values()
        wanted = self.book.see(self.ledger.shown_sources(), lives, now_ns)
        orders: list[Order] = [IdentifySources(wanted)] if wanted else []
        for life in self.tracker.ended_before(now_ns - self.retention_ns):
            self.ledger.retire(life, reading.pods[life.pod.uid])
            orders += self.tracker.forget(life)
        return orders

    def _observe_lag(self, life: PodLife, tally: Tally, now_ns: int) -> None:
        for stage, seconds in life.stage_seconds.items():
            self.ledger.observe_lag(life, stage, seconds)
        if not life.over or life.served_by_design or tally.last_attempt_ns is None:
            return
        if now_ns - max(life.last_boundary_ns, tally.last_attempt_ns) < TRAFFIC_SETTLES_NS:
            return
        lag = life.seconds_since_deletion(tally.last_attempt_ns)
        if lag is not None:
            self.ledger.observe_lag(life, Stage.TRAFFIC, lag)

    def settles_at(self, counts: KernelCounts) -> list[int]:
        """The times, in order, from which on `settle` will do something if no record and no drop comes."""
        over = [life for life in self.tracker.lives.values() if life.over]
        tallies = self.read(counts).pods if over else {}
        forgets = [life.last_boundary_ns + self.retention_ns + 1 for life in over]
        settles = [
            max(life.last_boundary_ns, last_ns) + TRAFFIC_SETTLES_NS
            for life in over
            if (last_ns := tallies[life.pod.uid].last_attempt_ns) is not None
        ]
        return sorted([*forgets, *settles])

    def read(self, counts: KernelCounts) -> Reading:
        """Every count by pod and by workload."""
        return self.ledger.read(self.tracker, counts)

    def snapshot(self, counts: KernelCounts, own: OwnState) -> Snapshot:
        """What is known at this instant."""
        reading = self.read(counts)
        self.book.show(self.ledger.shown_sources())
        return Snapshot(
            lives=tuple(self.tracker.lives.values()),
            reading=reading,
            lags=dict(self.ledger.lags),
            kube_proxy=self.tracker.kube_proxy,
            kube_proxy_lag=self.kube_proxy_lag,
            hooks=own.hooks,
            hook_counts=counts.hooks,
            program_runs=own.program_runs,
            watches=own.watches,
        )

    def terminations(self, counts: KernelCounts) -> tuple[Termination, ...]:
        """The ends of all pods that are not forgotten, and of their containers."""
        reading = self.read(counts)
        return terminations(self.tracker.lives.values(), reading.pods, self.tracker.kube_proxy)

    def terminations_to_forget(self, now_ns: int, counts: KernelCounts) -> tuple[Termination, ...]:
        """Those of the terminations that `settle` at this time is going to forget."""
        over = self.tracker.ended_before(now_ns - self.retention_ns)
        # A reading is not made for nothing: this is asked at each tick of a replay.
        return terminations(over, self.read(counts).pods, self.tracker.kube_proxy) if over else ()
