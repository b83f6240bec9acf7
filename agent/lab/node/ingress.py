import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Self

from agent.lab.node.client_namespace import ClientNamespace
from agent.lab.node.errors import NodeError
from agent.lab.node.nginx_conf import IngressSettings, nginx_conf
from agent.lab.node.nginx_logs import ProxiedRequest, failed_connections, proxied_requests, upstream_errors
from agent.lab.node.outcome import FailedConnection
from agent.lab.node.runtime import Process, Runtime
from agent.lab.node.service import Endpoint

if TYPE_CHECKING:
    from agent.lab.node.node import Node

START_TIMEOUT_S = 5.0
STOP_TIMEOUT_S = 15.0
POLL_S = 0.005
SHUTTING_DOWN = b"is shutting down"


class Ingress:
    """A real nginx in a client namespace: the pods' client, reached by end users at `v4` or `v6`, `port`."""

    def __init__(
        self,
        runtime: Runtime,
        namespace: ClientNamespace,
        directory: Path,
        settings: IngressSettings,
        endpoints: Iterable[Endpoint],
    ) -> None:
        self.v4 = namespace.addresses.v4
        self.v6 = namespace.addresses.v6
        self.port = settings.port
        self.directory = directory
        self._settings = settings
        self._lock = threading.Lock()
        self._write_configuration(endpoints)
        self._process: Process = runtime.start(
            ["nginx", "-e", f"{directory}/error.log", "-p", f"{directory}", "-c", f"{self._configuration}"],
            namespace=namespace.path,
            output=directory / "output.log",
        )

    @classmethod
    def start(
        cls,
        node: "Node",
        namespace: ClientNamespace,
        endpoints: Iterable[Endpoint],
        settings: IngressSettings | None = None,
    ) -> Self:
        """Start nginx in the namespace; returns when it serves.

        Raises NodeError if nginx is not installed or does not start.
        """
        if shutil.which("nginx") is None:
            raise NodeError("nginx not found: install it (Debian and Ubuntu: apt-get install nginx-light)")
        directory = Path(tempfile.mkdtemp(prefix="ingress-", dir=node.directory))
        ingress = cls(node.runtime, namespace, directory, settings or IngressSettings(), endpoints)
        ingress._await(lambda: bool(ingress._workers()), "start")
        return ingress

    def reload(self, endpoints: Iterable[Endpoint]) -> None:
        """Make these the upstreams; returns when no worker with the old list takes new requests.

        Requests that an old worker has taken are finished on the old list; its idle upstream connections are
        closed.
        """
        with self._lock:
            self._write_configuration(endpoints)
            old = self._workers()
            self._process.signal(signal.SIGHUP)
            self._await(lambda: self._replaced(old), "reload")

    def stop(self) -> None:
        """Let requests under way finish, then end nginx. Raises NodeError if that takes longer than 15 s."""
        with self._lock:
            self._process.signal(signal.SIGQUIT)
            if self._process.wait(STOP_TIMEOUT_S) is None:
                self._process.kill()
                raise NodeError(f"nginx still had requests under way after {STOP_TIMEOUT_S:.0f} s")

    def requests(self) -> list[ProxiedRequest]:
        """Every request that nginx has finished, with the upstream connections it took."""
        return list(proxied_requests(self._lines("access.log")))

    def failures(self) -> list[FailedConnection]:
        """Every upstream connection that failed, once; call it after `stop`, when both logs are complete.

        Raises `nginx_logs.LogsDisagree` if nginx's two logs do not tell the same story.
        """
        return failed_connections(self.requests(), upstream_errors(self._lines("error.log")))

    @property
    def _configuration(self) -> Path:
        return self.directory / "nginx.conf"

    def _write_configuration(self, endpoints: Iterable[Endpoint]) -> None:
        addresses = [address for address in (self.v4, self.v6) if address]
        upstreams = [
            (address, endpoint.port)
            for endpoint in endpoints
            if (address := endpoint.addresses.v6 if self._settings.ipv6 else endpoint.addresses.v4)
        ]
        self._configuration.write_text(nginx_conf(self._settings, self.directory, addresses, upstreams))

    def _workers(self) -> set[int]:
        """Workers that take requests."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        try:
            pids = {int(pid) for pid in children.read_text().split()}
        except FileNotFoundError:
            return set()
        return {pid for pid in pids if _takes_requests(pid)}

    def _replaced(self, old: set[int]) -> bool:
        workers = self._workers()
        return bool(workers) and not workers & old

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not condition():
            if self._process.status is not None or time.monotonic() > deadline:
                last = (self._lines("error.log") or ["no reason in its error log"])[-1]
                raise NodeError(f"nginx did not {what}: {last}")
            time.sleep(POLL_S)

    def _lines(self, name: str) -> list[str]:
        file = self.directory / name
        return file.read_text(errors="replace").splitlines() if file.exists() else []


def _takes_requests(pid: int) -> bool:
    try:
        title = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return b"worker process" in title and SHUTTING_DOWN not in title
