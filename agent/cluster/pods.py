"""This node's pods, as the API server reports them."""

import logging
import time
from collections.abc import Callable

from agent.cluster.connection import ApiConnection
from agent.cluster.newest_versions import NewestVersions
from agent.cluster.watch import ResourceWatch, WatchedResource, WatchTiming
from agent.cluster.watch_event import Change, JsonObject
from agent.core.fields import Fields
from agent.core.pod_spec import keeping_first_deletion, pod_of
from agent.core.records import ClusterRecord, Pod, PodChanged, PodRemoved, PodsListed

_log = logging.getLogger(__name__)


class NodePods:
    """Turns lists and changes of pods into records: one for each change that says something new."""

    def __init__(self, emit: Callable[[ClusterRecord], None]) -> None:
        self._emit = emit
        self._known: dict[str, Pod] = {}
        self._versions = NewestVersions()
        self._complained: dict[str, str] = {}

    def listed(self, objects: tuple[JsonObject, ...], at_ns: int) -> None:
        """All pods of the node: those that are not among them have been removed."""
        self._versions.forget()
        self._complained.clear()
        present = {uid for listed in objects if (uid := self._update(listed, at_ns)) is not None}
        for uid in self._known.keys() - present:
            self._remove(uid, at_ns)
        self._emit(PodsListed(at_ns))

    def changed(self, change: Change, changed_object: JsonObject, at_ns: int) -> None:
        """One pod was added, modified or deleted; a deleted one's last state is told first."""
        uid = self._update(changed_object, at_ns)
        if change is Change.DELETED and uid in self._known:
            self._remove(uid, at_ns)

    def _update(self, pod_object: JsonObject, at_ns: int) -> str | None:
        """Tell what is new about the pod; returns its UID, None if the object does not even have one."""
        uid = None
        try:
            metadata = Fields.of(pod_object, "").within("metadata")
            uid = metadata.text("uid")
            if self._versions.is_news(uid, metadata):
                self._tell(keeping_first_deletion(self._known.get(uid), pod_of(pod_object)), at_ns)
        except ValueError as error:
            self._complain(uid or "", str(error))
        return uid

    def _tell(self, pod: Pod, at_ns: int) -> None:
        if pod.host_network and pod.uid not in self._known:
            _log.info("left out, being on the node's own network: pod %s/%s", pod.namespace, pod.name)
        if pod != self._known.get(pod.uid):
            self._emit(PodChanged(at_ns, pod))
            self._known[pod.uid] = pod

    def _remove(self, uid: str, at_ns: int) -> None:
        self._emit(PodRemoved(at_ns, uid))
        del self._known[uid]

    def _complain(self, uid: str, complaint: str) -> None:
        if self._complained.get(uid) != complaint:
            self._complained[uid] = complaint
            _log.warning("ignoring what the API server says of a pod: %s", complaint)


def watch_pods(
    connection: ApiConnection,
    node: str,
    emit: Callable[[ClusterRecord], None],
    clock: Callable[[], int] = time.time_ns,
    timing: WatchTiming | None = None,
) -> ResourceWatch:
    """A watch, not yet started, of the pods of one node: PodChanged, PodRemoved and PodsListed records."""
    resource = WatchedResource("pods", "/api/v1/pods", f"spec.nodeName={node}")
    return ResourceWatch(connection, resource, NodePods(emit), clock, timing)
