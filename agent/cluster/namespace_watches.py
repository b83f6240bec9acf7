"""Watches of one resource in the namespaces that are being followed.

They are made on request only: a watch of all namespaces would cost the API server as much per node as
kube-proxy does.
"""

import time
from collections.abc import Callable
from threading import Lock, Thread

from agent.cluster.connection import ApiConnection
from agent.cluster.watch import ResourceWatch, WatchedResource, WatchListener, WatchTiming


class NamespaceWatches:
    """The watches of the namespaces that are being followed; may be called from any one thread at a time."""

    def __init__(
        self,
        connection: ApiConnection,
        resource_of: Callable[[str], WatchedResource],
        listener: Callable[[], WatchListener],
        clock: Callable[[], int] = time.time_ns,
        timing: WatchTiming | None = None,
    ) -> None:
        """`resource_of` a namespace says what to watch in it, `listener` makes one that is told of it."""
        self._connection = connection
        self._resource_of = resource_of
        self._listener = listener
        self._clock = clock
        self._timing = timing
        self._watches: dict[str, ResourceWatch] = {}
        self._lock = Lock()
        self._ended_restarts = 0

    @property
    def restarts(self) -> int:
        """How often a watch failed and had to be made again, over all namespaces ever followed."""
        with self._lock:
            return self._ended_restarts + sum(watch.restarts for watch in self._watches.values())

    @property
    def last_event_ns(self) -> int | None:
        """When the API server last said something of the namespace that it has been silent about longest.

        None while no namespace is followed, and before the first answer: there is no view that could be old.
        """
        with self._lock:
            times = [watch.last_event_ns for watch in self._watches.values()]
        return min((at_ns for at_ns in times if at_ns is not None), default=None)

    @property
    def followed(self) -> frozenset[str]:
        """The namespaces that are being followed."""
        with self._lock:
            return frozenset(self._watches)

    @property
    def threads(self) -> tuple[Thread, ...]:
        """Those of the watches, which end only when a namespace is not followed any more."""
        with self._lock:
            return tuple(thread for watch in self._watches.values() for thread in watch.threads)

    def follow(self, namespace: str) -> None:
        """Begin to watch a namespace; does nothing if it is being watched."""
        with self._lock:
            if namespace in self._watches:
                return
            watch = ResourceWatch(
                self._connection,
                self._resource_of(namespace),
                self._listener(),
                self._clock,
                self._timing,
            )
            watch.start()
            self._watches[namespace] = watch

    def unfollow(self, namespace: str) -> None:
        """End the watch of a namespace without waiting for it; does nothing if there is none."""
        with self._lock:
            watch = self._watches.pop(namespace, None)
        if watch is None:
            return
        watch.begin_to_stop()
        with self._lock:
            self._ended_restarts += watch.restarts

    def stop(self) -> None:
        """End all watches."""
        for namespace in self.followed:
            self.unfollow(namespace)
