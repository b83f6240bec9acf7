"""The resources that the API server stand-in serves, and their paths."""

from dataclasses import dataclass
from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]
"""An API object as it travels: the JSON of a Kubernetes object."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource: `api_version` and `kind` as in its objects, `plural` as in its paths."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool
    field_labels: frozenset[str] = frozenset()
    """Field selector labels beyond metadata.name and metadata.namespace that a real API server accepts."""

    @property
    def prefix(self) -> str:
        """The path under which the resource's group and version live, such as /api/v1."""
        return f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"


PODS = Resource(
    "v1",
    "Pod",
    "pods",
    True,
    frozenset(
        {
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        }
    ),
)
EVENTS = Resource(
    "v1",
    "Event",
    "events",
    True,
    frozenset(
        {
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "type",
        }
    ),
)
NODES = Resource("v1", "Node", "nodes", False, frozenset({"spec.unschedulable"}))
SERVICES = Resource("v1", "Service", "services", True, frozenset({"spec.clusterIP", "spec.type"}))
ENDPOINT_SLICES = Resource("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", True)

RESOURCES = (PODS, EVENTS, NODES, SERVICES, ENDPOINT_SLICES)


@dataclass(frozen=True, slots=True)
class Target:
    """What a request path names: a collection (`name` is None) or one object, in one namespace or in all."""

    resource: Resource
    namespace: str | None
    name: str | None


def target_of(path: str) -> Target | None:
    """The target of a request path such as /api/v1/namespaces/shop/pods/web-1, None for any other path."""
    for resource in RESOURCES:
        if path.startswith(resource.prefix + "/"):
            target = _target_below(resource, path[len(resource.prefix) + 1 :].split("/"))
            if target is not None:
                return target
    return None


def _target_below(resource: Resource, parts: list[str]) -> Target | None:
    namespace = None
    if resource.namespaced and len(parts) >= 3 and parts[0] == "namespaces":
        namespace, parts = parts[1], parts[2:]
    if parts[0] != resource.plural or "" in parts:
        return None
    if len(parts) == 1:
        return Target(resource, namespace, None)
    if len(parts) == 2 and (namespace is not None or not resource.namespaced):
        return Target(resource, namespace, parts[1])
    return None
