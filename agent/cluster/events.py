"""Events about pods, of the namespaces that have a dying pod on this node, while it dies."""

import logging
import time
from collections.abc import Callable

from agent.cluster.connection import ApiConnection
from agent.cluster.failures import one_line
from agent.cluster.namespace_watches import NamespaceWatches
from agent.cluster.newest_versions import NewestVersions
from agent.cluster.watch import WatchedResource, WatchTiming
from agent.cluster.watch_event import Change, JsonObject
from agent.core.event_spec import pod_event_of
from agent.core.fields import Fields
from agent.core.records import ClusterRecord

_log = logging.getLogger(__name__)


class NamespaceEvents:
    """Turns lists and changes of one namespace's events into PodEventSeen records, of every node's pods."""

    def __init__(self, emit: Callable[[ClusterRecord], None]) -> None:
        self._emit = emit
        self._versions = NewestVersions()

    def listed(self, objects: tuple[JsonObject, ...], at_ns: int) -> None:
        """All events of the namespace: an hour's, as the API server keeps them by default."""
        self._versions.forget()
        for event in objects:
            self._tell(event, at_ns)

    def changed(self, change: Change, changed_object: JsonObject, at_ns: int) -> None:
        """One event was added or counted up; one that is deleted is only forgotten by the API server."""
        if change is not Change.DELETED:
            self._tell(changed_object, at_ns)

    def _tell(self, event: JsonObject, at_ns: int) -> None:
        try:
            metadata = Fields.of(event, "").within("metadata")
            if not self._versions.is_news(metadata.text("uid"), metadata):
                return
            record = pod_event_of(event, at_ns)
        except ValueError as error:
            _log.warning("ignoring an event: %s", one_line(str(error)))
            return
        if record is not None:
            self._emit(record)


def watch_events(
    connection: ApiConnection,
    emit: Callable[[ClusterRecord], None],
    clock: Callable[[], int] = time.time_ns,
    timing: WatchTiming | None = None,
) -> NamespaceWatches:
    """Watches of the events about pods of namespaces, of which none is followed yet."""
    return NamespaceWatches(connection, _events_of, lambda: NamespaceEvents(emit), clock, timing)


def _events_of(namespace: str) -> WatchedResource:
    path = f"/api/v1/namespaces/{namespace}/events"
    return WatchedResource(f"events of {namespace}", path, "involvedObject.kind=Pod")
