"""The ingress controller player: nginx's upstream list follows a Service's slice by reload, after a delay."""

from collections.abc import Callable

from agent.lab.controlplane.endpoints import Backend, ingress_backends
from agent.lab.controlplane.follower import Follower
from agent.lab.controlplane.resources import ENDPOINT_SLICES
from agent.lab.controlplane.schedule import DueActions
from agent.lab.controlplane.slice_objects import ServiceIdentity
from agent.lab.controlplane.store import Change, ChangeType, Store

ReloadUpstreams = Callable[[list[Backend]], None]


class IngressController:
    """Reloads one Service's upstreams `delay_seconds` after each change that changes their list."""

    def __init__(
        self, store: Store, service: ServiceIdentity, reload: ReloadUpstreams, delay_seconds: float
    ) -> None:
        self._store = store
        self._key = (service.namespace, service.slice_name)
        self._reload = reload
        self._delay_seconds = delay_seconds
        self._wanted: list[Backend] | None = None
        self._due = DueActions()
        self._follower = Follower(store, ENDPOINT_SLICES, self._slice_changed)

    def stop(self) -> None:
        """End the player; reloads that are not due yet do not happen."""
        self._follower.stop()
        self._due.stop()

    def _slice_changed(self, change: Change) -> None:
        if change.key != self._key or change.type is not ChangeType.MODIFIED:
            return
        backends = ingress_backends(self._store, change.after)
        if backends != self._wanted:
            self._wanted = backends
            self._due.after(self._delay_seconds, lambda: self._reload(backends))
