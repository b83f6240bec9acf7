"""A thread that follows the store's changes of one resource, as a controller's informer does."""

import threading
from collections.abc import Callable

from agent.lab.controlplane.resources import Resource
from agent.lab.controlplane.store import Change, Store

_POLL_SECONDS = 0.5


class Follower:
    """Calls `on_change` with every change of `resource` after the start, one at a time, in order.

    An exception of `on_change` ends the thread and is raised again by `stop()`.
    """

    def __init__(self, store: Store, resource: Resource, on_change: Callable[[Change], None]) -> None:
        self._store = store
        self._resource = resource
        self._on_change = on_change
        self._revision = store.revision
        self._stopping = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; waits for a call in progress."""
        self._stopping.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._revision, changes = self._store.changes_after(self._resource, self._revision)
                for change in changes:
                    self._on_change(change)
                self._store.wait_past(self._revision, _POLL_SECONDS)
        except Exception as failure:
            self._failure = failure
