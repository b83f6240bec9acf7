"""EndpointSlices of the namespaces that have a dying pod on this node, while it dies.

Slices are watched per namespace and on request only: a watch of all of them would cost the API server as much
per node as kube-proxy does.
"""

import logging
import time
from collections.abc import Callable
from threading import Lock

from agent.cluster.connection import ApiConnection
from agent.cluster.endpoints import NamespaceEndpoints, Slice, slice_of
from agent.cluster.failures import one_line
from agent.cluster.newest_versions import NewestVersions
from agent.cluster.watch import ResourceWatch, WatchedResource, WatchTiming
from agent.cluster.watch_event import Change, JsonObject
from agent.core.fields import Fields
from agent.core.records import ClusterRecord, EndpointTerminating

_log = logging.getLogger(__name__)


class NamespaceSlices:
    """Turns lists and changes of one namespace's slices into EndpointTerminating records."""

    def __init__(self, node: str, emit: Callable[[ClusterRecord], None]) -> None:
        self._endpoints = NamespaceEndpoints(node)
        self._emit = emit
        self._versions = NewestVersions()

    def listed(self, objects: tuple[JsonObject, ...], at_ns: int) -> None:
        """All slices of the namespace."""
        self._versions.forget()
        slices = [found for listed in objects if (found := self._news(listed)) is not None]
        self._tell(self._endpoints.replace_all(slices, at_ns))

    def changed(self, change: Change, changed_object: JsonObject, at_ns: int) -> None:
        """One slice was added, modified or deleted."""
        found = self._news(changed_object)
        if found is None:
            return
        if change is Change.DELETED:
            self._tell(self._endpoints.remove(found, at_ns))
        else:
            self._tell(self._endpoints.replace(found, at_ns))

    def _news(self, slice_object: JsonObject) -> Slice | None:
        try:
            metadata = Fields.of(slice_object, "").within("metadata")
            if not self._versions.is_news(metadata.text("uid"), metadata):
                return None
            return slice_of(slice_object)
        except ValueError as error:
            _log.warning("ignoring an EndpointSlice: %s", one_line(str(error)))
            return None

    def _tell(self, records: list[EndpointTerminating]) -> None:
        for record in records:
            self._emit(record)


class SliceWatches:
    """The watches of the namespaces that are being followed; may be called from any one thread at a time."""

    def __init__(
        self,
        connection: ApiConnection,
        node: str,
        emit: Callable[[ClusterRecord], None],
        clock: Callable[[], int] = time.time_ns,
        timing: WatchTiming | None = None,
    ) -> None:
        self._connection = connection
        self._node = node
        self._emit = emit
        self._clock = clock
        self._timing = timing
        self._watches: dict[str, ResourceWatch] = {}
        self._lock = Lock()
        self._ended_restarts = 0
        self._ended_last_event_ns: int | None = None

    @property
    def restarts(self) -> int:
        """How often a watch failed and had to be made again, over all namespaces ever followed."""
        with self._lock:
            return self._ended_restarts + sum(watch.restarts for watch in self._watches.values())

    @property
    def last_event_ns(self) -> int | None:
        """When the API server last said something of any slice."""
        with self._lock:
            times = [self._ended_last_event_ns, *(watch.last_event_ns for watch in self._watches.values())]
        return max((at_ns for at_ns in times if at_ns is not None), default=None)

    @property
    def followed(self) -> frozenset[str]:
        """The namespaces that are being followed."""
        with self._lock:
            return frozenset(self._watches)

    def follow(self, namespace: str) -> None:
        """Begin to watch a namespace's slices; does nothing if they are being watched."""
        with self._lock:
            if namespace in self._watches:
                return
            watch = ResourceWatch(
                self._connection,
                WatchedResource(
                    f"endpointslices of {namespace}",
                    f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
                ),
                NamespaceSlices(self._node, self._emit),
                self._clock,
                self._timing,
            )
            self._watches[namespace] = watch
        watch.start()

    def unfollow(self, namespace: str) -> None:
        """End the watch of a namespace's slices without waiting for it; does nothing if there is none."""
        with self._lock:
            watch = self._watches.pop(namespace, None)
        if watch is None:
            return
        watch.begin_to_stop()
        with self._lock:
            self._ended_restarts += watch.restarts
            times = [self._ended_last_event_ns, watch.last_event_ns]
            self._ended_last_event_ns = max((at for at in times if at is not None), default=None)

    def stop(self) -> None:
        """End all watches."""
        for namespace in self.followed:
            self.unfollow(namespace)
