"""Event objects as the kubelet writes them."""

from enum import Enum

from agent.lab.controlplane.pod_template import CONTAINER
from agent.lab.controlplane.resources import JsonObject
from agent.lab.controlplane.timestamps import api_time


class Reason(Enum):
    """What the kubelet reports; values are the reasons of events."""

    KILLING = "Killing"
    FAILED_PRESTOP = "FailedPreStopHook"
    UNHEALTHY = "Unhealthy"
    STARTED = "Started"


_WARNINGS = frozenset({Reason.FAILED_PRESTOP, Reason.UNHEALTHY})


def pod_event(pod: JsonObject, reason: Reason, message: str, node: str, now_ns: int) -> JsonObject:
    """An event about the pod's container; its times have a resolution of 1 s and eventTime is null."""
    metadata = pod["metadata"]
    when = api_time(now_ns / 1e9)
    return {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {
            "name": f"{metadata['name']}.{now_ns:x}",
            "namespace": metadata["namespace"],
            "uid": f"e0000000-0000-4000-8000-{now_ns & 0xFFFFFFFFFFFF:012x}",
            "creationTimestamp": when,
        },
        "involvedObject": {
            "kind": "Pod",
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "apiVersion": "v1",
            "resourceVersion": metadata["resourceVersion"],
            "fieldPath": f"spec.containers{{{CONTAINER}}}",
        },
        "reason": reason.value,
        "message": message,
        "source": {"component": "kubelet", "host": node},
        "firstTimestamp": when,
        "lastTimestamp": when,
        "count": 1,
        "type": "Warning" if reason in _WARNINGS else "Normal",
        "eventTime": None,
        "reportingComponent": "kubelet",
        "reportingInstance": node,
    }
