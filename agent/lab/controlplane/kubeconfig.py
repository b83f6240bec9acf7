"""Kubeconfig files for the API server stand-in."""

import json
from pathlib import Path

from agent.lab.controlplane.resources import JsonObject


def write_kubeconfig(path: Path, server: str, token: str | None = None) -> Path:
    """Write a kubeconfig (JSON, which is YAML too) readable by its owner only, and return its path."""
    user: JsonObject = {} if token is None else {"token": token}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": {"server": server}}],
        "users": [{"name": "lab", "user": user}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
        "current-context": "lab",
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path
