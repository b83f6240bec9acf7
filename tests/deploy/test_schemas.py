"""The manifests are what the Kubernetes API accepts, by the types of its Python client."""

from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import models
from pydantic import ValidationError

from tests.deploy.manifests import DEPLOY, daemonset, documents, resources

MODELS = {
    ("v1", "Namespace"): models.V1Namespace,
    ("v1", "ResourceQuota"): models.V1ResourceQuota,
    ("v1", "ServiceAccount"): models.V1ServiceAccount,
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): models.V1ClusterRole,
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): models.V1ClusterRoleBinding,
    ("apps/v1", "DaemonSet"): models.V1DaemonSet,
}
OBJECTS = [*resources(), daemonset(least_capabilities=True)]


def validate(manifest: dict[str, Any]) -> None:
    """Raises ValidationError for unknown fields, wrong types and what is missing."""
    model = MODELS[manifest["apiVersion"], manifest["kind"]]
    found = model.model_validate(manifest)
    # The client also takes names such as host_port, which the API server does not.
    assert found.model_dump(by_alias=True, exclude_unset=True, mode="json") == manifest


@pytest.mark.parametrize("manifest", OBJECTS, ids=lambda each: each["kind"])
def test_each_manifest_fits_its_schema(manifest: dict[str, Any]) -> None:
    validate(manifest)


def test_every_file_of_the_folder_is_listed_in_its_kustomization() -> None:
    (kustomization,) = documents(DEPLOY / "kustomization.yaml")
    files = {path.name for path in DEPLOY.glob("*.yaml")}
    assert set(kustomization["resources"]) == files - {"kustomization.yaml"}


def changed(*path: str | int, value: Any) -> dict[str, Any]:
    """The DaemonSet with one field changed or added; below `spec.template.spec`."""
    made = daemonset()
    at: Any = made["spec"]["template"]["spec"]
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return made


@pytest.mark.parametrize(
    "wrong",
    [
        changed("hostPid", value=True),
        changed("hostPID", value="true"),
        changed("containers", 0, "name", value=None),
        changed("containers", 0, "ports", 0, "containerPort", value="9435"),
        changed("containers", 0, "resources", "requests", "cpu", value=1),
        changed("containers", 0, "securityContext", "readOnlyRootFileSystem", value=True),
        changed("containers", 0, "env", 0, "valueFrom", value={"fieldRef": {}}),
    ],
    ids=["misspelt", "string for boolean", "no name", "string for number", "number", "nested", "missing"],
)
def test_a_field_that_the_api_would_refuse_is_refused_here(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        validate(wrong)


def test_a_field_in_the_clients_own_spelling_is_refused_too() -> None:
    with pytest.raises(AssertionError):
        validate(changed("enable_service_links", value=False))


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    twice = tmp_path / "twice.yaml"
    twice.write_text("kind: Pod\nspec: {}\nspec: {}\n")
    with pytest.raises(AssertionError, match="twice"):
        documents(twice)
