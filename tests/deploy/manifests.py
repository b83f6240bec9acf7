"""The manifests as objects, and the overlay applied to them."""

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
LEAST = DEPLOY / "least-capabilities"


def documents(path: Path) -> list[dict[str, Any]]:
    """The YAML documents of a file. Duplicate keys, which YAML forbids and PyYAML takes, are refused."""
    return list(yaml.load_all(path.read_text(), UniqueKeys))


class UniqueKeys(yaml.SafeLoader):  # type: ignore[misc]
    """SafeLoader that refuses a key that is there already."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key is given twice: {keys} in {node.start_mark}"
        made: dict[Any, Any] = super().construct_mapping(node, deep)
        return made


def resources() -> list[dict[str, Any]]:
    """What deploy/kustomization.yaml lists, in its order."""
    (kustomization,) = documents(DEPLOY / "kustomization.yaml")
    return [each for name in kustomization["resources"] for each in documents(DEPLOY / name)]


def daemonset(*, least_capabilities: bool = False) -> dict[str, Any]:
    """The DaemonSet, with the overlay or without."""
    found = next(each for each in resources() if each["kind"] == "DaemonSet")
    if least_capabilities:
        (component,) = documents(LEAST / "kustomization.yaml")
        for patch in component["patches"]:
            (changes,) = documents(LEAST / patch["path"])
            found = merged(found, changes)
    return found


def container(*, least_capabilities: bool = False) -> dict[str, Any]:
    """The agent's container, the only one."""
    (only,) = daemonset(least_capabilities=least_capabilities)["spec"]["template"]["spec"]["containers"]
    return dict(only)


def least_capabilities() -> tuple[str, ...]:
    """What the overlay adds to none, named without CAP_."""
    capabilities = container(least_capabilities=True)["securityContext"]["capabilities"]
    assert capabilities["drop"] == ["ALL"]
    return tuple(capabilities["add"])


def merged(base: Any, patch: Any) -> Any:
    """A strategic merge as far as the overlay needs one: lists of named objects by name, others replaced."""
    if isinstance(base, dict) and isinstance(patch, dict):
        both = {key: merged(base[key], patch[key]) for key in base.keys() & patch.keys()}
        return {**base, **patch, **both}
    if isinstance(base, list) and all(isinstance(each, dict) and "name" in each for each in (*base, *patch)):
        patches = {each["name"]: each for each in patch}
        kept = [merged(each, patches.pop(each["name"], {})) for each in base]
        return [*kept, *patches.values()]
    return patch
