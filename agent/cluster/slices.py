"""EndpointSlices of the namespaces that have a dying pod on this node, while it dies."""

import logging
import time
from collections.abc import Callable

from agent.cluster.connection import ApiConnection
from agent.cluster.endpoints import NamespaceEndpoints, Slice, slice_of
from agent.cluster.failures import one_line
from agent.cluster.namespace_watches import NamespaceWatches
from agent.cluster.newest_versions import NewestVersions
from agent.cluster.watch import WatchedResource, WatchTiming
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


def watch_slices(
    connection: ApiConnection,
    node: str,
    emit: Callable[[ClusterRecord], None],
    clock: Callable[[], int] = time.time_ns,
    timing: WatchTiming | None = None,
) -> NamespaceWatches:
    """Watches of the EndpointSlices of namespaces, of which none is followed yet."""
    return NamespaceWatches(connection, _slices_of, lambda: NamespaceSlices(node, emit), clock, timing)


def _slices_of(namespace: str) -> WatchedResource:
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    return WatchedResource(f"endpointslices of {namespace}", path)
