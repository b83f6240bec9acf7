"""EndpointSlice objects: the endpoints of a Service, worked out from its pods."""

from dataclasses import dataclass

from agent.lab.controlplane.pod_objects import is_ready
from agent.lab.controlplane.resources import JsonObject
from agent.lab.controlplane.timestamps import api_time

TRIGGER_TIME = "endpoints.kubernetes.io/last-change-trigger-time"


@dataclass(frozen=True, slots=True)
class ServiceIdentity:
    """A Service and its one slice; it selects pods by the label `app` = its name."""

    namespace: str
    name: str
    uid: str
    slice_name: str
    slice_uid: str
    port: int


def new_slice(service: ServiceIdentity, now: float) -> JsonObject:
    """The empty slice of a new Service."""
    return {
        "kind": "EndpointSlice",
        "apiVersion": "discovery.k8s.io/v1",
        "metadata": {
            "name": service.slice_name,
            "generateName": service.name + "-",
            "namespace": service.namespace,
            "uid": service.slice_uid,
            "generation": 1,
            "creationTimestamp": api_time(now),
            "labels": {
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                "kubernetes.io/service-name": service.name,
            },
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Service",
                    "name": service.name,
                    "uid": service.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "addressType": "IPv4",
        "endpoints": [],
        "ports": [{"name": "http", "protocol": "TCP", "port": service.port}],
    }


def endpoint(pod: JsonObject) -> JsonObject | None:
    """The pod's endpoint; None while it has no address and once it has finished."""
    status, metadata = pod["status"], pod["metadata"]
    if "podIP" not in status or status["phase"] in ("Succeeded", "Failed"):
        return None
    serving = is_ready(pod)
    terminating = "deletionTimestamp" in metadata
    return {
        "addresses": [status["podIP"]],
        "conditions": {
            "ready": serving and not terminating,
            "serving": serving,
            "terminating": terminating,
        },
        "targetRef": {
            "kind": "Pod",
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
        "nodeName": pod["spec"]["nodeName"],
    }


def replace_endpoints(
    endpoint_slice: JsonObject, endpoints: list[JsonObject], triggered: float | None
) -> JsonObject:
    """Put new endpoints into a slice.

    `triggered` is when the pod changed that caused this; a deletion has no such time, and the annotation
    of an earlier one goes away (as recorded).
    """
    metadata = endpoint_slice["metadata"]
    metadata["generation"] += 1
    endpoint_slice["endpoints"] = endpoints
    metadata.pop("annotations", None)
    if triggered is not None:
        metadata["annotations"] = {TRIGGER_TIME: api_time(triggered)}
    return endpoint_slice
