"""The text in a Kubernetes Status object."""

import json


def status_message(body: bytes) -> str | None:
    """The message of an error answer's body; None if it is no Status object that has one."""
    try:
        status = json.loads(body)
    except ValueError:
        return None
    message = status.get("message") if isinstance(status, dict) else None
    return message if isinstance(message, str) and message else None
