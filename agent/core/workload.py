"""What owns a pod, from the pod's own object: no API call, so the cost does not grow with the cluster."""

import re

from agent.core.fields import Fields
from agent.core.records import Workload

_OWNER_BY_HASH_LABEL = {
    "pod-template-hash": "Deployment",
    "rollouts-pod-template-hash": "Rollout",
}
"""The label that a controller of ReplicaSets puts on pods; it names a ReplicaSet <own name>-<label value>.

Kubernetes documentation, Deployment, "Pod-template-hash label"; Argo Rollouts uses its own label.
"""

_SCHEDULED_JOB = re.compile(r"(?P<cron_job>.+)-\d{8,}")
"""A CronJob names its Jobs <own name>-<scheduled time in minutes since the epoch>."""


def workload_of(pod: Fields) -> Workload:
    """The workload that a person would name as the owner of this pod object.

    A pod without an owner, and a static pod (owned by its Node), is its own workload. Raises ValueError.
    """
    metadata = pod.within("metadata")
    owner = _controller(metadata.each("ownerReferences"))
    if owner is None or owner.text("kind") == "Node":
        return Workload("Pod", metadata.text("name"))
    kind, name = owner.text("kind"), owner.text("name")
    if kind == "ReplicaSet":
        return _owner_of_replica_set(name, metadata.within("labels"))
    if kind == "Job" and (scheduled := _SCHEDULED_JOB.fullmatch(name)):
        return Workload("CronJob", scheduled["cron_job"])
    return Workload(kind, name)


def _controller(owners: tuple[Fields, ...]) -> Fields | None:
    marked = [owner for owner in owners if owner.flag("controller")]
    return next(iter(marked or owners), None)


def _owner_of_replica_set(name: str, labels: Fields) -> Workload:
    for label, kind in _OWNER_BY_HASH_LABEL.items():
        suffix = labels.optional_text(label)
        if suffix and len(name) > len(suffix) + 1 and name.endswith(f"-{suffix}"):
            return Workload(kind, name.removesuffix(f"-{suffix}"))
    return Workload("ReplicaSet", name)
