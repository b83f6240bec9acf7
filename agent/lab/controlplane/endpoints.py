"""Which endpoints of a slice a proxy sends traffic to."""

from dataclasses import dataclass

from agent.lab.controlplane.resources import PODS, JsonObject
from agent.lab.controlplane.store import Store


@dataclass(frozen=True, slots=True)
class Backend:
    """A pod's addresses (podIPs) and the port it serves on."""

    addresses: tuple[str, ...]
    port: int


def service_backends(store: Store, endpoint_slice: JsonObject) -> list[Backend]:
    """kube-proxy's choice: ready endpoints, or if none is left serving and terminating ones (KEP-1669)."""
    return _ready(store, endpoint_slice) or _backends(store, endpoint_slice, ("serving", "terminating"))


def ingress_backends(store: Store, endpoint_slice: JsonObject) -> list[Backend]:
    """An ingress controller's choice: ready endpoints only."""
    return _ready(store, endpoint_slice)


def _ready(store: Store, endpoint_slice: JsonObject) -> list[Backend]:
    return _backends(store, endpoint_slice, ("ready",))


def _backends(store: Store, endpoint_slice: JsonObject, conditions: tuple[str, ...]) -> list[Backend]:
    port = endpoint_slice["ports"][0]["port"]
    found = []
    for endpoint in endpoint_slice["endpoints"]:
        target = endpoint["targetRef"]
        pod = store.get(PODS, target["namespace"], target["name"])
        if pod is not None and all(endpoint["conditions"][name] for name in conditions):
            found.append(Backend(tuple(entry["ip"] for entry in pod["status"]["podIPs"]), port))
    return found
