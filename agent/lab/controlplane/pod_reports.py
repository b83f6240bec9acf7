"""What the kubelet tells the API server about one pod."""

import time
from collections.abc import Callable

from agent.lab.controlplane import pod_objects
from agent.lab.controlplane.event_objects import Reason, pod_event
from agent.lab.controlplane.pod_objects import PodIdentity
from agent.lab.controlplane.resources import EVENTS, PODS, JsonObject
from agent.lab.controlplane.store import Store


class PodReports:
    """Writes one pod's status and events; every method is one write, stamped with the time of the call."""

    def __init__(self, store: Store, node: str, host_address: str, identity: PodIdentity) -> None:
        self._store = store
        self._node = node
        self._host_address = host_address
        self._identity = identity

    def scheduled(self) -> None:
        """Bound to the node."""
        self._update(lambda pod: pod_objects.schedule(pod, self._node, time.time()))

    def creating(self) -> None:
        """The sandbox is there, the container is being created."""
        self._update(lambda pod: pod_objects.begin_creating(pod, self._host_address, time.time()))

    def running(self, addresses: tuple[str, ...], container_id: str, *, ready: bool) -> None:
        """The container runs."""
        now = time.time()
        self._update(lambda pod: pod_objects.report_running(pod, addresses, container_id, now, ready=ready))

    def readiness(self, *, ready: bool) -> None:
        """The readiness probe has changed its mind."""
        self._update(lambda pod: pod_objects.report_readiness(pod, time.time(), ready=ready))

    def deletion_observed(self) -> None:
        """The kubelet acknowledges the deletion."""
        self._update(pod_objects.observe_deletion)

    def restarted(self, exit_code: int, finished: float, container_id: str) -> None:
        """The container ended at `finished` and was replaced."""
        now = time.time()
        self._update(lambda pod: pod_objects.report_restart(pod, exit_code, finished, container_id, now))

    def finished(self, exit_code: int, finished: float) -> None:
        """The container ended at `finished` for good."""
        self._update(lambda pod: pod_objects.report_finished(pod, exit_code, finished))

    def deleted_finally(self) -> None:
        """The kubelet's own delete with grace 0."""
        self._update(lambda pod: pod_objects.delete_finally(pod, time.time()))

    def removed(self) -> None:
        """The object is gone."""
        self._store.delete(PODS, self._identity.namespace, self._identity.name)

    def event(self, reason: Reason, message: str) -> None:
        """An event about the pod."""
        pod = self._store.get(PODS, self._identity.namespace, self._identity.name)
        if pod is not None:
            self._store.create(EVENTS, pod_event(pod, reason, message, self._node, time.time_ns()))

    def _update(self, change: Callable[[JsonObject], JsonObject]) -> None:
        self._store.update(PODS, self._identity.namespace, self._identity.name, change)
