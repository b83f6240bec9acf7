"""The agent: both sides feed one loop, the loop feeds the tracker, outputs read snapshots."""

import contextlib
import logging
import queue
import threading
import time

from agent.cluster.connection import connect
from agent.cluster.events import watch_events
from agent.cluster.kube_proxy import KubeProxyWatch
from agent.cluster.pods import watch_pods
from agent.cluster.slices import watch_slices
from agent.core.ledger import Histogram, Ledger
from agent.core.life import PodLife, Stage
from agent.core.orders import FollowNamespace, Order, UnfollowNamespace, WatchClosely
from agent.core.records import KubeProxyState, Record
from agent.core.snapshot import HookState, ProgramRuns, Snapshot, WatchState
from agent.core.tally import Tally
from agent.core.tracker import Tracker
from agent.kernel.kernel_side import KernelSide
from agent.run.settings import Settings
from agent.run.source_names import name_sources, node_addresses

logger = logging.getLogger(__name__)

TICK_SECONDS = 1.0
TRAFFIC_SETTLES_SECONDS = 30.0
"""How long after its end a pod's last attempt is taken for the last: most SYN retries come within that."""


class NodeAgent:
    """Everything that runs; raises KernelSideError or ConnectionSettingsError when it cannot begin."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._records: queue.SimpleQueue[Record] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._tracker = Tracker()
        self._ledger = Ledger()
        self._kube_proxy_lag = Histogram()
        self._node_addresses = node_addresses()
        connection = connect(settings.kubeconfig)
        emit = self._records.put
        self._kube_proxy = KubeProxyWatch(settings.kube_proxy_metrics, emit)
        self._kernel = KernelSide(settings.cache, emit)
        self._pods = watch_pods(connection, settings.node_name, emit)
        self._slices = watch_slices(connection, settings.node_name, emit)
        self._events = watch_events(connection, emit)
        self._stopping = threading.Event()
        self._loop = threading.Thread(target=self._run, name="loop", daemon=True)
        for status in self._kernel.statuses:
            if not status.attached:
                logger.warning(
                    "hook %s is not attached: %s; %s", status.hook.name, status.reason, status.consequence
                )

    def start(self) -> None:
        """Begin to watch; returns once what exists on the node has been looked at."""
        self._loop.start()
        self._kernel.start()
        self._pods.start()
        self._kube_proxy.start()

    def stop(self) -> None:
        """End all watching and detach from the kernel."""
        self._stopping.set()
        self._loop.join()
        self._kube_proxy.stop()
        self._slices.stop()
        self._events.stop()
        self._pods.stop()
        self._kernel.stop()

    def waiting_for(self) -> str | None:
        """What keeps the agent from being ready; None when it is."""
        if not self._tracker.pods_listed:
            return "the API server has not listed this node's pods yet"
        if not self._pods.connected:
            return "the watch of this node's pods is interrupted"
        return None

    def _run(self) -> None:
        next_tick = time.monotonic()
        while not self._stopping.is_set():
            try:
                with contextlib.suppress(queue.Empty):
                    self._take(self._records.get(timeout=max(0.0, next_tick - time.monotonic())))
                if time.monotonic() >= next_tick:
                    next_tick = time.monotonic() + TICK_SECONDS
                    self._tick()
            except Exception as error:
                # One record that nobody foresaw must not end the counting of everything else.
                logger.error("passed over a record: %s: %s; please report it", type(error).__name__, error)

    def _take(self, record: Record) -> None:
        with self._lock:
            if isinstance(record, KubeProxyState):
                self._observe_kube_proxy(record)
            orders = self._tracker.apply(record)
        self._carry_out(orders)

    def _carry_out(self, orders: list[Order]) -> None:
        self._kernel.carry_out(orders)
        for order in orders:
            match order:
                case FollowNamespace():
                    self._slices.follow(order.namespace)
                    self._events.follow(order.namespace)
                case UnfollowNamespace():
                    self._slices.unfollow(order.namespace)
                    self._events.unfollow(order.namespace)
                case WatchClosely():
                    self._kube_proxy.watch_closely(order.on)

    def _observe_kube_proxy(self, state: KubeProxyState) -> None:
        known = self._tracker.kube_proxy
        fresh = known is None or known.synced_ns != state.synced_ns
        if fresh and state.synced_ns and state.queued_ns and state.synced_ns >= state.queued_ns:
            self._kube_proxy_lag.observe((state.synced_ns - state.queued_ns) / 1e9)

    def _tick(self) -> None:
        """Observe what has settled, forget what is long over."""
        now = time.time_ns()
        with self._lock:
            counts = self._kernel.read_counts()
            reading = self._ledger.read(self._tracker, counts)
            for life in self._tracker.lives.values():
                self._observe_lag(life, reading.pods[life.pod.uid], now)
            orders: list[Order] = []
            for life in self._tracker.ended_before(now - int(self._settings.retention_seconds * 1e9)):
                self._ledger.retire(life, reading.pods[life.pod.uid])
                orders += self._tracker.forget(life)
            # Under the lock, so that no reading finds a namespace that is forgotten on one side only.
            self._carry_out(orders)

    def _observe_lag(self, life: PodLife, tally: Tally, now: int) -> None:
        for stage, seconds in life.stage_seconds.items():
            self._ledger.observe_lag(life, stage, seconds)
        if not life.over or tally.last_attempt_ns is None:
            return
        if now - max(life.last_boundary_ns, tally.last_attempt_ns) < TRAFFIC_SETTLES_SECONDS * 1e9:
            return
        lag = life.seconds_since_deletion(tally.last_attempt_ns)
        if lag is not None:
            self._ledger.observe_lag(life, Stage.TRAFFIC, lag)

    def snapshot(self) -> Snapshot:
        """What is known at this instant."""
        runs = self._kernel.program_runs()
        with self._lock:
            counts = self._kernel.read_counts()
            reading = self._ledger.read(self._tracker, counts)
            lives = tuple(self._tracker.lives.values())
            sources = {address for by_source in reading.sources.values() for address in by_source if address}
            return Snapshot(
                lives=lives,
                reading=reading,
                lags=dict(self._ledger.lags),
                kube_proxy=self._tracker.kube_proxy,
                kube_proxy_lag=self._kube_proxy_lag,
                source_names=name_sources(sources, lives, self._node_addresses),
                hooks=tuple(
                    HookState(status.hook.name, status.hook.attach_type.value, status.attached)
                    for status in self._kernel.statuses
                ),
                hook_counts=counts.hooks,
                program_runs=tuple(ProgramRuns(name, ns / 1e9, count) for name, (ns, count) in runs.items()),
                watches=(
                    WatchState("pods", self._pods.restarts, self._pods.last_event_ns),
                    WatchState("endpointslices", self._slices.restarts, self._slices.last_event_ns),
                    WatchState("events", self._events.restarts, self._events.last_event_ns),
                ),
            )
