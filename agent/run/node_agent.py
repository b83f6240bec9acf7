"""The agent: both sides feed one loop, the loop feeds the tracker, outputs read snapshots."""

import contextlib
import logging
import queue
import threading
import time

from agent.cluster.connection import connect
from agent.cluster.events import watch_events
from agent.cluster.kube_proxy import KubeProxyWatch
from agent.cluster.node import warn_if_unknown
from agent.cluster.pods import watch_pods
from agent.cluster.slices import watch_slices
from agent.cluster.source_lookup import SourceLookup
from agent.core.observation import Observation, OwnState
from agent.core.orders import (
    FindNamespaces,
    FollowNamespace,
    IdentifySources,
    Order,
    UnfollowNamespace,
    WatchClosely,
)
from agent.core.records import Record
from agent.core.snapshot import HookState, ProgramRuns, Snapshot, WatchState
from agent.kernel.kernel_side import KernelSide
from agent.run.node_addresses import node_addresses
from agent.run.recorder import Recorder
from agent.run.settings import Settings
from agent.run.threads import ended_thread

logger = logging.getLogger(__name__)

TICK_SECONDS = 1.0


class NodeAgent:
    """Everything that runs; raises KernelSideError or ConnectionSettingsError when it cannot begin."""

    def __init__(self, settings: Settings, recorder: Recorder | None = None) -> None:
        self._recorder = recorder
        self._records: queue.SimpleQueue[Record] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._observation = Observation(int(settings.retention_seconds * 1e9), node_addresses())
        connection = connect(settings.kubeconfig)
        self._node = threading.Thread(
            target=warn_if_unknown, args=(connection, settings.node_name), name="node", daemon=True
        )
        emit = self._records.put
        self._kube_proxy = KubeProxyWatch(settings.kube_proxy_metrics, emit)
        self._kernel = KernelSide(settings.cache, emit)
        self._pods = watch_pods(connection, settings.node_name, emit)
        self._slices = watch_slices(connection, settings.node_name, emit)
        self._events = watch_events(connection, emit)
        self._sources = SourceLookup(connection, emit)
        self._has_to_look = False
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
        self._node.start()
        self._kube_proxy.start()
        self._sources.start()

    def stop(self) -> None:
        """End all watching and detach from the kernel."""
        self._stopping.set()
        self._loop.join()
        if self._recorder is not None:
            self._tick()
            self._recorder.close(time.time_ns())
        self._sources.stop()
        self._kube_proxy.stop()
        self._slices.stop()
        self._events.stop()
        self._pods.stop()
        self._kernel.stop()

    def waiting_for(self) -> str | None:
        """What keeps the agent from being ready; None when it is."""
        if not self._observation.tracker.pods_listed:
            return "the API server has not listed this node's pods yet"
        if not self._pods.connected:
            return "the watch of this node's pods is interrupted"
        return None

    def failed(self) -> str | None:
        """Which part has ended though nobody stopped it, so that counts would be wrong; None if none has."""
        if self._stopping.is_set():
            return None
        parts = (self._kernel, self._pods, self._slices, self._events, self._kube_proxy, self._sources)
        threads = (self._loop, *(thread for part in parts for thread in part.threads))
        return ended_thread(threads)

    def _run(self) -> None:
        next_tick = time.monotonic()
        while not self._stopping.is_set():
            try:
                with contextlib.suppress(queue.Empty):
                    self._take(self._records.get(timeout=max(0.0, next_tick - time.monotonic())))
                due = time.monotonic() >= next_tick
                if self._has_to_look and (due or self._records.empty()):
                    self._has_to_look = False
                    self._kernel.carry_out([FindNamespaces()])
                if due:
                    next_tick = time.monotonic() + TICK_SECONDS
                    self._tick()
            except Exception as error:
                # One record that nobody foresaw must not end the counting of everything else.
                logger.error("passed over a record: %s: %s; please report it", type(error).__name__, error)

    def _take(self, record: Record) -> None:
        with self._lock:
            # First of all: a record that is not understood is what a recording is wanted for.
            if self._recorder is not None:
                self._recorder.took(record)
            orders = self._observation.apply(record)
        # A list of pods can ask for it once for each: one look through the node's processes answers all.
        self._has_to_look |= FindNamespaces() in orders
        self._carry_out([order for order in orders if order != FindNamespaces()])

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
                case IdentifySources():
                    self._sources.ask(order.sources)
                case WatchClosely():
                    self._kube_proxy.watch_closely(order.on)

    def _tick(self) -> None:
        """Observe what has settled, forget what is long over."""
        with self._lock:
            # Under the lock, so that no reading finds a namespace that is forgotten on one side only.
            now, counts = time.time_ns(), self._kernel.read_counts()
            if self._recorder is not None:
                self._recorder.read(now, counts, self._own_state(), self._observation.tracker)
            self._carry_out(self._observation.settle(now, counts))

    def snapshot(self) -> Snapshot:
        """What is known at this instant."""
        own = self._own_state()
        with self._lock:
            return self._observation.snapshot(self._kernel.read_counts(), own)

    def _own_state(self) -> OwnState:
        runs = self._kernel.program_runs()
        return OwnState(
            hooks=tuple(
                HookState(status.hook.name, status.hook.attach_type.value, status.attached)
                for status in self._kernel.statuses
            ),
            program_runs=tuple(ProgramRuns(name, ns / 1e9, count) for name, (ns, count) in runs.items()),
            watches=tuple(
                WatchState(name, watch.restarts, watch.last_event_ns)
                for name, watch in (
                    ("pods", self._pods),
                    ("endpointslices", self._slices),
                    ("events", self._events),
                )
            ),
        )
