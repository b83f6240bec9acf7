"""Pod objects through a pod's life, with the fields that recordings of a real API server show.

Every function that takes a pod changes it in place and returns it, for use with Store.update.
"""

from dataclasses import dataclass

from agent.lab.controlplane.pod_template import CONTAINER, PodTemplate, pod_spec
from agent.lab.controlplane.resources import JsonObject
from agent.lab.controlplane.timestamps import api_time


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """Which pod: `replica_set` is the ReplicaSet's name, the workload's name with the template's hash."""

    namespace: str
    name: str
    uid: str
    workload: str
    replica_set: str
    replica_set_uid: str


def pending_pod(identity: PodIdentity, template: PodTemplate, now: float) -> JsonObject:
    """A pod as its ReplicaSet creates it: no node yet."""
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": identity.name,
            "generateName": identity.replica_set + "-",
            "namespace": identity.namespace,
            "uid": identity.uid,
            "generation": 1,
            "creationTimestamp": api_time(now),
            "labels": {
                "app": identity.workload,
                "pod-template-hash": identity.replica_set.removeprefix(identity.workload + "-"),
            },
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": identity.replica_set,
                    "uid": identity.replica_set_uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": pod_spec(template),
        "status": {"phase": "Pending", "qosClass": "Burstable"},
    }


def schedule(pod: JsonObject, node: str, now: float) -> JsonObject:
    """The scheduler has bound the pod to a node."""
    pod["spec"]["nodeName"] = node
    pod["status"]["conditions"] = [_condition("PodScheduled", True, now)]
    return pod


def begin_creating(pod: JsonObject, host_address: str, now: float) -> JsonObject:
    """The kubelet has the pod's sandbox and creates its container; its address is not reported yet."""
    status = pod["status"]
    status["hostIP"] = host_address
    status["hostIPs"] = [{"ip": host_address}]
    status["startTime"] = api_time(now)
    status["containerStatuses"] = [
        {
            "name": CONTAINER,
            "state": {"waiting": {"reason": "ContainerCreating"}},
            "lastState": {},
            "ready": False,
            "restartCount": 0,
            "image": pod["spec"]["containers"][0]["image"],
            "imageID": "",
            "started": False,
        }
    ]
    _set_conditions(pod, now, sandbox=True, ready=False)
    return pod


def report_running(
    pod: JsonObject, addresses: tuple[str, ...], container_id: str, started: float, *, ready: bool
) -> JsonObject:
    """The container runs; `container_id` is 64 hex digits. Also reports the container of a restart."""
    status = pod["status"]
    status["phase"] = "Running"
    status["podIP"] = addresses[0]
    status["podIPs"] = [{"ip": address} for address in addresses]
    container = status["containerStatuses"][0]
    container["containerID"] = f"containerd://{container_id}"
    container["imageID"] = "sha256:" + "41a762ec" * 8
    container["state"] = {"running": {"startedAt": api_time(started)}}
    container["started"] = True
    container["ready"] = ready
    _set_conditions(pod, started, sandbox=True, ready=ready)
    return pod


def report_readiness(pod: JsonObject, now: float, *, ready: bool) -> JsonObject:
    """The readiness probe has changed its mind."""
    pod["status"]["containerStatuses"][0]["ready"] = ready
    _set_conditions(pod, now, sandbox=True, ready=ready)
    return pod


def request_deletion(pod: JsonObject, grace_seconds: int, now: float) -> JsonObject:
    """The API server has accepted a DELETE: only the metadata changes, Ready stays as it is."""
    pod["metadata"]["generation"] = 2
    pod["metadata"]["deletionTimestamp"] = api_time(now + grace_seconds)
    pod["metadata"]["deletionGracePeriodSeconds"] = grace_seconds
    return pod


def observe_deletion(pod: JsonObject) -> JsonObject:
    """The kubelet reports that it has seen the deletion; nothing else changes."""
    pod["status"]["observedGeneration"] = 2
    for condition in pod["status"]["conditions"]:
        condition["observedGeneration"] = 2
    return pod


def report_finished(pod: JsonObject, exit_code: int, finished: float) -> JsonObject:
    """All containers are dead and the network is gone; the status keeps the pod's address."""
    pod["status"]["phase"] = "Succeeded" if exit_code == 0 else "Failed"
    _terminate_container(pod, exit_code, finished)
    _set_conditions(pod, finished, sandbox=False, ready=False)
    return pod


def delete_finally(pod: JsonObject, now: float) -> JsonObject:
    """The kubelet's own delete with grace 0: the deletion timestamp moves back to now."""
    pod["metadata"]["deletionTimestamp"] = api_time(now)
    pod["metadata"]["deletionGracePeriodSeconds"] = 0
    return pod


def report_restart(
    pod: JsonObject, exit_code: int, finished: float, container_id: str, started: float
) -> JsonObject:
    """A container has been replaced by a new one, not ready yet; the pod and its address stay."""
    _terminate_container(pod, exit_code, finished)
    container = pod["status"]["containerStatuses"][0]
    container["lastState"] = container["state"]
    container["restartCount"] += 1
    addresses = tuple(entry["ip"] for entry in pod["status"]["podIPs"])
    return report_running(pod, addresses, container_id, started, ready=False)


def is_ready(pod: JsonObject) -> bool:
    """Whether the pod's Ready condition holds."""
    return any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in pod["status"].get("conditions", ())
    )


def _terminate_container(pod: JsonObject, exit_code: int, finished: float) -> None:
    container = pod["status"]["containerStatuses"][0]
    started = container["state"].get("running", {}).get("startedAt", api_time(finished))
    container["state"] = {
        "terminated": {
            "exitCode": exit_code,
            "reason": "Completed" if exit_code == 0 else "Error",
            "startedAt": started,
            "finishedAt": api_time(finished),
            "containerID": container["containerID"],
        }
    }
    container["ready"] = False
    container["started"] = False


def _set_conditions(pod: JsonObject, now: float, *, sandbox: bool, ready: bool) -> None:
    status = pod["status"]
    before = {condition["type"]: condition for condition in status.get("conditions", ())}
    wanted = {
        "PodReadyToStartContainers": sandbox,
        "Initialized": True,
        "Ready": ready,
        "ContainersReady": ready,
        "PodScheduled": True,
    }
    generation = status["observedGeneration"] = pod["metadata"]["generation"]
    conditions = []
    for kind, holds in wanted.items():
        condition = _condition(kind, holds, now)
        known = before.get(kind)
        if known is not None and known["status"] == condition["status"]:
            condition["lastTransitionTime"] = known["lastTransitionTime"]
        condition["observedGeneration"] = generation
        if kind in ("Ready", "ContainersReady") and not holds:
            condition |= _why_not_ready(status["phase"])
        conditions.append(condition)
    status["conditions"] = conditions


def _why_not_ready(phase: str) -> JsonObject:
    if phase == "Succeeded":
        return {"reason": "PodCompleted"}
    if phase == "Failed":
        return {"reason": "PodFailed"}
    return {"reason": "ContainersNotReady", "message": f"containers with unready status: [{CONTAINER}]"}


def _condition(kind: str, holds: bool, now: float) -> JsonObject:
    return {
        "type": kind,
        "status": "True" if holds else "False",
        "lastProbeTime": None,
        "lastTransitionTime": api_time(now),
    }
