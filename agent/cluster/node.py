"""Whether the API server knows this node by the name that the agent was given."""

import logging
from urllib.parse import quote

from agent.cluster.connection import ApiConnection
from agent.cluster.failures import ApiFailure, StatusFailure

_log = logging.getLogger(__name__)

NODES = "/api/v1/nodes"
_NOT_FOUND = 404
_SILENCE_SECONDS = 10.0


def is_unknown(connection: ApiConnection, name: str) -> bool:
    """Ask for the node once, from the API server's cache; whether it says that there is none of that name.

    Where it does not say (it is away, or does not let the agent see nodes) that is not known, and False.
    """
    try:
        path = f"{NODES}/{quote(name, safe='')}"
        with connection.get(path, {"resourceVersion": "0"}, _SILENCE_SECONDS) as body:
            body.whole()
    except StatusFailure as failure:
        return failure.code == _NOT_FOUND
    except ApiFailure:
        return False
    return False


def warn_if_unknown(connection: ApiConnection, name: str) -> None:
    """One line in the log for a name that no node has: its list of pods is empty, which looks like peace."""
    if is_unknown(connection, name):
        _log.warning(
            "the API server knows no node %s, so no pod will be counted: "
            "give the name that kubectl get nodes shows with --node-name",
            name,
        )
