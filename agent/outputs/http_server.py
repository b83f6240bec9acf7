"""The agent's HTTP port: /metrics, /healthz, /readyz. Read-only."""

import errno
import logging
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET6, IPPROTO_IPV6, IPV6_V6ONLY

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

_log = logging.getLogger(__name__)

_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
"""What a node says that has no IPv6, or has it switched off."""

Readiness = Callable[[], str | None]
"""None when the agent is ready, else what it waits for."""

Health = Callable[[], str | None]
"""None while all of the agent runs, else what does not and will not before it is started again."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """One line at most: a client that goes away before its answer is nobody's fault."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            _log.error("could not answer %s: %s: %s", client_address, type(error).__name__, error)


class _Server6(_Server):
    address_family = AF_INET6


class _DualStackServer(_Server6):
    """Takes IPv4 connections too, whatever net.ipv6.bindv6only says."""

    def server_bind(self) -> None:
        self.socket.setsockopt(IPPROTO_IPV6, IPV6_V6ONLY, 0)
        super().server_bind()


class HttpServer:
    """Holds the port from the moment it is made; answers from `start` on, on threads of its own."""

    def __init__(self, host: str, port: int) -> None:
        """An empty host is every address of the node. Raises OSError when it cannot be listened on."""
        self._server = _listening(host, port)
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port listened on, also where 0 asked for any."""
        return int(self._server.server_address[1])

    def start(self, collector: Collector, waiting_for: Readiness, failed: Health = lambda: None) -> None:
        """Begin to answer."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(collector)
        self._server.RequestHandlerClass = _handler(registry, waiting_for, failed)
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop answering and free the port."""
        if self._thread is not None:
            self._server.shutdown()
        self._server.server_close()


def _listening(host: str, port: int) -> _Server:
    if host:
        return (_Server6 if ":" in host else _Server)((host, port), BaseHTTPRequestHandler)
    try:
        return _DualStackServer((host, port), BaseHTTPRequestHandler)
    except OSError as error:
        if error.errno not in _NO_IPV6:
            raise
        return _Server((host, port), BaseHTTPRequestHandler)


def _handler(
    registry: CollectorRegistry, waiting_for: Readiness, failed: Health
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def do_GET(self) -> None:
            match self.path.partition("?")[0]:
                case "/metrics":
                    encode, content_type = choose_encoder(self.headers.get("Accept", ""))
                    self._answer(200, content_type, encode(registry))
                case "/healthz":
                    failure = failed()
                    text = "ok\n" if failure is None else f"failed: {failure}\n"
                    self._answer(200 if failure is None else 503, "text/plain", text.encode())
                case "/readyz":
                    missing = waiting_for()
                    text = "ready\n" if missing is None else f"not ready: {missing}\n"
                    self._answer(200 if missing is None else 503, "text/plain", text.encode())
                case _:
                    self._answer(404, "text/plain", b"not found: try /metrics, /healthz or /readyz\n")

        def _answer(self, status: int, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Requests are not logged: scrapes would drown everything else."""

    return Handler
