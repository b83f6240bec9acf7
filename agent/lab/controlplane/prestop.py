"""Running preStop hooks as the kubelet does."""

import http.client
import time
from typing import Protocol

from agent.lab.controlplane.pod_template import ExecHook, HttpHook, PreStopHook, SleepHook


class HookProcess(Protocol):
    """A process that an exec hook started."""

    def wait(self, timeout: float) -> int | None:
        """Its exit code, or None if it still runs after `timeout` seconds."""


class HookContainer(Protocol):
    """The container that a hook belongs to."""

    def exec_in(self, argv: list[str]) -> HookProcess:
        """Start a process in the container."""


def run_hook(
    hook: PreStopHook, container: HookContainer, address: str, port: int, limit: float
) -> str | None:
    """Run a hook for at most `limit` seconds; None if it succeeded, else why it failed."""
    match hook:
        case SleepHook(seconds):
            time.sleep(min(seconds, limit))
            return None if seconds <= limit else "container terminated before sleep hook finished"
        case ExecHook(argv):
            code = container.exec_in(list(argv)).wait(limit)
            if code is None:
                return f"did not complete within {limit:.0f} s"
            return None if code == 0 else f"command terminated with exit code {code}"
        case HttpHook(path):
            return _get(address, port, path, limit)


def _get(address: str, port: int, path: str, limit: float) -> str | None:
    connection = http.client.HTTPConnection(address, port, timeout=limit)
    try:
        connection.request("GET", path, headers={"Connection": "close"})
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"Get http://{address}:{port}{path}: {error}"
    finally:
        connection.close()
    return None if status < 400 else f"HTTP status {status}"
