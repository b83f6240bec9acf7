"""What the tests take the overlay for is what kustomize makes of it."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.manifests import DEPLOY, LEAST, daemonset, resources

KUBECTL = shutil.which("kubectl")
needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="needs kubectl, which has kustomize in it")


def built(folder: Path) -> dict[str, dict[str, Any]]:
    """Kustomize's output by kind."""
    assert KUBECTL is not None
    done = subprocess.run(
        [KUBECTL, "kustomize", str(folder)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return {each["kind"]: each for each in yaml.safe_load_all(done.stdout)}


def with_image(manifest: dict[str, Any], image: str) -> dict[str, Any]:
    for container in manifest["spec"]["template"]["spec"]["containers"]:
        container["image"] = image
    return manifest


@needs_kubectl
def test_the_folder_is_built_as_it_is_written() -> None:
    found = built(DEPLOY)
    expected = {each["kind"]: each for each in resources()}
    expected["DaemonSet"] = with_image(expected["DaemonSet"], "lastcall:0.1.0")
    assert found == expected


@needs_kubectl
def test_a_kustomization_with_the_component_is_built_as_the_tests_merge_it(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    own = tmp_path / "own"
    own.mkdir()
    component = f"../deploy/{LEAST.relative_to(DEPLOY)}"
    (own / "kustomization.yaml").write_text(f"resources: [../deploy]\ncomponents: [{component}]\n")
    assert built(own)["DaemonSet"] == with_image(daemonset(least_capabilities=True), "lastcall:0.1.0")
