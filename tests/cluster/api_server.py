"""Fixture parts for tests against the API server stand-in."""

from pathlib import Path

from agent.cluster.connection import ApiConnection, connect
from agent.cluster.watch import WatchTiming
from agent.lab.controlplane.api import ApiServer
from agent.lab.controlplane.kubeconfig import write_kubeconfig
from agent.lab.controlplane.resources import JsonObject

NODE = "lab-node"
QUICK = WatchTiming(first_retry=0.02, longest_retry=0.2, settled_after=0.5)


def connection_to(api: ApiServer, folder: Path) -> ApiConnection:
    """A connection by way of a kubeconfig, as the agent makes it."""
    return connect(write_kubeconfig(folder / "kubeconfig", api.url, api.token))


def a_pod(name: str, node: str = NODE) -> JsonObject:
    """A running pod, as the API server would send it."""
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-of-{name}"},
        "spec": {"nodeName": node, "containers": [{"name": "app"}]},
        "status": {"phase": "Running", "podIP": "10.9.0.7"},
    }


def deleted_at(pod: JsonObject, deadline: str, grace: int) -> JsonObject:
    """The pod once its deletion was asked for."""
    pod["metadata"].update(deletionTimestamp=deadline, deletionGracePeriodSeconds=grace)
    return pod
