"""The kubelet player: lives of pods on the lab node, with real processes, reported to the store."""

import threading
import time

from agent.lab.controlplane.pod_life import PodLife
from agent.lab.controlplane.pod_objects import PodIdentity, pending_pod, request_deletion
from agent.lab.controlplane.pod_reports import PodReports
from agent.lab.controlplane.pod_template import PodTemplate
from agent.lab.controlplane.resources import PODS, JsonObject
from agent.lab.controlplane.runtime import Runtime
from agent.lab.controlplane.store import Store


class Kubelet:
    """Creates pods and ends them when they are deleted; each pod's life is a thread of its own."""

    def __init__(self, store: Store, node: str, host_address: str, runtime: Runtime) -> None:
        self._store = store
        self._node = node
        self._host_address = host_address
        self._runtime = runtime
        self._lives: dict[tuple[str, str], PodLife] = {}
        self._lock = threading.Lock()

    def create(self, identity: PodIdentity, template: PodTemplate) -> PodLife:
        """Create a pod and start its life. Raises KeyError if the name is taken."""
        self._store.create(PODS, pending_pod(identity, template, time.time()))
        reports = PodReports(self._store, self._node, self._host_address, identity)
        life = PodLife(self._runtime, reports, identity, template)
        with self._lock:
            self._lives[identity.namespace, identity.name] = life
        life.start()
        return life

    def delete(self, life: PodLife) -> None:
        """What a DELETE of the pod does: the API server sets the deletion timestamp, the kubelet sees it."""
        grace = life.template.grace_seconds
        life.deletion_requested_ns = time.time_ns()

        def change(pod: JsonObject) -> JsonObject:
            return request_deletion(pod, grace, time.time())

        self._store.update(PODS, life.identity.namespace, life.identity.name, change)
        life.end()

    def discard_all(self) -> None:
        """Remove every pod at once, without a graceful end; for clearing up between scenarios."""
        with self._lock:
            lives, self._lives = list(self._lives.values()), {}
        for life in lives:
            life.discard()
        for life in lives:
            life.join()
