"""Owner references -> the workload that a person would name; needs nothing."""

from typing import Any

import pytest

from agent.core.fields import Fields
from agent.core.records import Workload
from agent.core.workload import workload_of


def owner(kind: str, name: str, controller: bool | None = True) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "name": name, "uid": "u", "controller": controller}


def workload(*owners: dict[str, Any], **labels: str) -> Workload:
    metadata = {"name": "web-0", "ownerReferences": list(owners), "labels": labels}
    return workload_of(Fields.of({"metadata": metadata}, ""))


def test_a_replica_set_that_carries_the_pods_hash_belongs_to_a_deployment() -> None:
    labels = {"pod-template-hash": "6d9598d4f7"}
    assert workload(owner("ReplicaSet", "web-6d9598d4f7"), **labels) == Workload("Deployment", "web")
    assert workload(owner("ReplicaSet", "web-api-6d9598d4f7"), **labels) == Workload("Deployment", "web-api")


def test_a_replica_set_of_an_argo_rollout_belongs_to_the_rollout() -> None:
    labels = {"rollouts-pod-template-hash": "5f6b"}
    assert workload(owner("ReplicaSet", "web-5f6b"), **labels) == Workload("Rollout", "web")


@pytest.mark.parametrize("labels", [{}, {"pod-template-hash": "abc"}, {"pod-template-hash": ""}])
def test_a_replica_set_on_its_own_is_the_workload(labels: dict[str, str]) -> None:
    assert workload(owner("ReplicaSet", "web-6d9598d4f7"), **labels) == Workload(
        "ReplicaSet", "web-6d9598d4f7"
    )


def test_a_replica_set_named_as_the_hash_alone_is_the_workload() -> None:
    found = workload(owner("ReplicaSet", "-abc"), **{"pod-template-hash": "abc"})
    assert found == Workload("ReplicaSet", "-abc")


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet", "ReplicationController", "SparkApplication"])
def test_another_owner_is_the_workload_itself(kind: str) -> None:
    assert workload(owner(kind, "db")) == Workload(kind, "db")


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ("backup-29431752", Workload("CronJob", "backup")),
        ("nightly-2-29431752", Workload("CronJob", "nightly-2")),
        ("backup-123456789", Workload("CronJob", "backup")),
        ("migrate-1234567", Workload("Job", "migrate-1234567")),
        ("migrate", Workload("Job", "migrate")),
        ("backup-29431752-x", Workload("Job", "backup-29431752-x")),
    ],
)
def test_a_job_named_by_its_scheduled_minute_belongs_to_a_cron_job(job: str, expected: Workload) -> None:
    assert workload(owner("Job", job)) == expected


def test_a_static_pod_is_its_own_workload() -> None:
    assert workload(owner("Node", "node1")) == Workload("Pod", "web-0")


def test_a_bare_pod_is_its_own_workload() -> None:
    assert workload() == Workload("Pod", "web-0")


def test_the_controller_is_chosen_among_owners() -> None:
    owners = owner("ConfigMap", "seen-first", None), owner("StatefulSet", "db")
    assert workload(*owners) == Workload("StatefulSet", "db")


def test_an_owner_counts_even_where_none_is_marked_as_controller() -> None:
    assert workload(owner("StatefulSet", "db", None)) == Workload("StatefulSet", "db")


@pytest.mark.parametrize(
    ("metadata", "complaint"),
    [
        ({"name": "x", "ownerReferences": "web"}, r"metadata\.ownerReferences is not a list: 'web'"),
        ({"name": "x", "ownerReferences": [7]}, r"metadata\.ownerReferences\[0\] is not an object: 7"),
        (
            {"name": "x", "ownerReferences": [{"kind": "Job"}]},
            r"ownerReferences\[0\]\.name is missing or empty",
        ),
        ({}, r"metadata\.name is missing or empty"),
    ],
)
def test_a_broken_reference_is_named(metadata: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        workload_of(Fields.of({"metadata": metadata}, ""))
