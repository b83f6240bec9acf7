"""The endpoint slice controller: Services' slices follow their pods."""

import threading
import time

from agent.lab.controlplane.follower import Follower
from agent.lab.controlplane.resources import ENDPOINT_SLICES, PODS, JsonObject
from agent.lab.controlplane.slice_objects import ServiceIdentity, endpoint, new_slice, replace_endpoints
from agent.lab.controlplane.store import Change, Store

SLICE_UPDATE_SECONDS = 0.013
"""From a pod's change to the slice's, so that a slice follows a deletion by the recorded 18 ms."""


class SliceController:
    """Keeps the slice of every Service it is told of in step with the pods of the Service's namespace."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._services: dict[str, list[ServiceIdentity]] = {}
        self._lock = threading.Lock()
        self._follower = Follower(store, PODS, self._pod_changed)

    def add(self, service: ServiceIdentity) -> None:
        """Create the Service's slice and keep it from now on."""
        self._store.create(ENDPOINT_SLICES, new_slice(service, time.time()))
        with self._lock:
            self._services.setdefault(service.namespace, []).append(service)

    def remove(self, service: ServiceIdentity) -> None:
        """Delete the Service's slice."""
        with self._lock:
            self._services[service.namespace].remove(service)
            self._store.delete(ENDPOINT_SLICES, service.namespace, service.slice_name)

    def stop(self) -> None:
        """End the controller."""
        self._follower.stop()

    def _pod_changed(self, change: Change) -> None:
        namespace = change.key[0]
        newly_deleted = (
            change.before is not None
            and "deletionTimestamp" in change.after["metadata"]
            and "deletionTimestamp" not in change.before["metadata"]
        )
        with self._lock:
            services = list(self._services.get(namespace, ()))
        if not services:
            return
        time.sleep(SLICE_UPDATE_SECONDS)
        triggered = None if newly_deleted else time.time()
        with self._lock:
            for service in services:
                if service in self._services[namespace]:
                    self._update(service, triggered)

    def _update(self, service: ServiceIdentity, triggered: float | None) -> None:
        _, pods = self._store.at(PODS)
        endpoints = [
            found
            for (namespace, _), pod in pods
            if namespace == service.namespace
            and pod["metadata"]["labels"]["app"] == service.name
            and (found := endpoint(pod)) is not None
        ]
        current = self._store.get(ENDPOINT_SLICES, service.namespace, service.slice_name)
        if current is not None and current["endpoints"] != endpoints:

            def change(endpoint_slice: JsonObject) -> JsonObject:
                return replace_endpoints(endpoint_slice, endpoints, triggered)

            self._store.update(ENDPOINT_SLICES, service.namespace, service.slice_name, change)
