"""Which endpoints of one namespace's Services are on their way out, from its EndpointSlices."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agent.core.fields import Fields
from agent.core.records import EndpointTerminating

_SERVICE_NAME = "kubernetes.io/service-name"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint: `identity` is its pod's UID or, without a pod, its address."""

    identity: str
    pod_uid: str | None
    node: str | None
    ready: bool
    terminating: bool


@dataclass(frozen=True, slots=True)
class Slice:
    """One EndpointSlice of a Service. A Service can have several, by address family and by size."""

    name: str
    service: str
    endpoints: tuple[Endpoint, ...]


def slice_of(api_object: object) -> Slice | None:
    """The slice that an API object describes, None if it is no Service's. Raises ValueError."""
    fields = Fields.of(api_object, "")
    metadata = fields.within("metadata")
    service = metadata.within("labels").optional_text(_SERVICE_NAME)
    if not service:
        return None
    return Slice(metadata.text("name"), service, tuple(map(_endpoint, fields.each("endpoints"))))


def _endpoint(fields: Fields) -> Endpoint:
    conditions, target = fields.within("conditions"), fields.within("targetRef")
    pod_uid = target.text("uid") if target.optional_text("kind") == "Pod" else None
    return Endpoint(
        identity=pod_uid or next(iter(fields.texts("addresses")), ""),
        pod_uid=pod_uid,
        node=fields.optional_text("nodeName"),
        # Ready unless it says otherwise (API reference, EndpointConditions).
        ready=conditions.flag("ready") is not False,
        terminating=conditions.flag("terminating") is True,
    )


class NamespaceEndpoints:
    """The slices of one namespace, and what has been told of this node's terminating endpoints."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._slices: dict[str, Slice] = {}
        self._before: dict[str, dict[str, Endpoint]] = {}
        self._told: dict[tuple[str, str], bool] = {}

    def replace_all(self, slices: Iterable[Slice], at_ns: int) -> list[EndpointTerminating]:
        """These are all the slices there are."""
        services = set(self._before)
        self._slices = {listed.name: listed for listed in slices}
        services.update(listed.service for listed in self._slices.values())
        return [record for service in sorted(services) for record in self._news(service, at_ns)]

    def replace(self, changed: Slice, at_ns: int) -> list[EndpointTerminating]:
        """A slice is now like this."""
        self._slices[changed.name] = changed
        return list(self._news(changed.service, at_ns))

    def remove(self, deleted: Slice, at_ns: int) -> list[EndpointTerminating]:
        """A slice is gone."""
        self._slices.pop(deleted.name, None)
        return list(self._news(deleted.service, at_ns))

    def _news(self, service: str, at_ns: int) -> Iterator[EndpointTerminating]:
        before, now = self._before.get(service, {}), self._merged(service)
        for endpoint in self._of_this_node(before):
            if endpoint.identity not in now:
                self._told.pop((service, endpoint.identity), None)
                yield self._record(service, endpoint, now, at_ns, removed=True)
        for endpoint in self._of_this_node(now):
            key = service, endpoint.identity
            if endpoint.terminating:
                record = self._record(service, endpoint, now, at_ns, removed=False)
                last_resort = record.ready_left == 0
                if self._told.get(key) is not last_resort:
                    self._told[key] = last_resort
                    yield record
            else:
                self._told.pop(key, None)
        if now:
            self._before[service] = now
        else:
            self._before.pop(service, None)

    def _merged(self, service: str) -> dict[str, Endpoint]:
        merged: dict[str, Endpoint] = {}
        for listed in self._slices.values():
            if listed.service == service:
                for endpoint in listed.endpoints:
                    other = merged.get(endpoint.identity)
                    merged[endpoint.identity] = _either(endpoint, other) if other else endpoint
        return merged

    def _of_this_node(self, endpoints: dict[str, Endpoint]) -> list[Endpoint]:
        return [
            endpoint
            for endpoint in endpoints.values()
            if endpoint.pod_uid is not None and endpoint.node in (None, self._node)
        ]

    def _record(
        self, service: str, endpoint: Endpoint, now: dict[str, Endpoint], at_ns: int, *, removed: bool
    ) -> EndpointTerminating:
        ready_left = sum(other.ready for identity, other in now.items() if identity != endpoint.identity)
        stays_ready = endpoint.ready and not removed
        return EndpointTerminating(at_ns, endpoint.identity, service, removed, ready_left, stays_ready)


def _either(one: Endpoint, other: Endpoint) -> Endpoint:
    return Endpoint(
        one.identity,
        one.pod_uid,
        one.node,
        ready=one.ready or other.ready,
        terminating=one.terminating or other.terminating,
    )
