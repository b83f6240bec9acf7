"""Whether the API server gives the agent the pods."""

from pathlib import Path

from agent.cluster.connection import connect
from agent.cluster.failures import ApiFailure, ConnectionSettingsError, StatusFailure
from agent.doctor.facts import Api, ApiAccess

PODS = "/api/v1/pods"
_DENIED = (401, 403)


def ask_api(kubeconfig: str | None, node_name: str, answer_seconds: float) -> Api:
    """Ask for one pod of the node as the agent does: some users may see those of their own node only."""
    try:
        api = connect(Path(kubeconfig) if kubeconfig else None)
    except ConnectionSettingsError as error:
        if kubeconfig is None:
            return Api(ApiAccess.NOT_CONFIGURED, "no kubeconfig given, and no service account here")
        return Api(ApiAccess.UNREADABLE, str(error))
    try:
        with api.get(
            PODS, {"fieldSelector": f"spec.nodeName={node_name}", "limit": "1"}, answer_seconds
        ) as body:
            body.whole()
    except StatusFailure as error:
        return Api(ApiAccess.FORBIDDEN if error.code in _DENIED else ApiAccess.UNREACHABLE, str(error))
    except ApiFailure as error:
        return Api(ApiAccess.UNREACHABLE, str(error))
    return Api(ApiAccess.ANSWERED, f"{api.server} lists the pods of node {node_name}")
