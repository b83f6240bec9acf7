"""The API server stand-in: the read side of the Kubernetes API over HTTP on loopback.

Served: /version, /healthz, /livez, /readyz; get, list and watch of the collections in `resources`. Objects
are written by calling the Store, never over HTTP.
"""

import json
import select
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from agent.lab.controlplane.faults import Faults, Traffic, TrafficCount
from agent.lab.controlplane.listing import ListOptions, list_page
from agent.lab.controlplane.resources import JsonObject, Target, target_of
from agent.lab.controlplane.selectors import Selector, SelectorError, selector
from agent.lab.controlplane.statuses import (
    RequestRefused,
    bad_request,
    expired,
    not_found,
    unauthorized,
)
from agent.lab.controlplane.store import Store
from agent.lab.controlplane.watch import Watch, WatchOptions

VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.2", "platform": "linux/amd64"}
"""What /version says: the release that the recordings were made with."""


@dataclass(slots=True)
class ApiServer:
    """The server. It listens from `start()` (or `with`) to `stop()`; `pause()` makes it refuse connections.

    `bookmark_seconds` is the interval of bookmarks, `watch_timeout_seconds` how long a watch lasts that names
    no timeout of its own; with a `token` every request must carry it.
    """

    store: Store = field(default_factory=Store)
    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = None
    bookmark_seconds: float = 60.0
    watch_timeout_seconds: float = 1800.0
    faults: Faults = field(default_factory=Faults)
    _count: TrafficCount = field(default_factory=TrafficCount)
    _listener: "_Listener | None" = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The server's URL for a kubeconfig."""
        return f"http://{self.host}:{self.port}"

    def start(self) -> None:
        """Listen; the port is kept for the server's life. Raises OSError if it is taken."""
        if self._listener is None:
            self._listener = _Listener(self)
            self.port = self._listener.server_address[1]
            threading.Thread(target=self._listener.serve_forever, args=(0.05,), daemon=True).start()

    def pause(self) -> None:
        """Close the listener and every connection: clients are refused until `start()`."""
        if self._listener is not None:
            self._listener.shutdown()
            self._listener.server_close()
            self._listener.drop_connections()
            self._listener = None

    def stop(self) -> None:
        """End the server."""
        self.pause()

    def drop_connections(self) -> None:
        """Cut every open connection, watches included, and go on listening."""
        if self._listener is not None:
            self._listener.drop_connections()

    def traffic(self) -> Traffic:
        """Requests and bytes served so far."""
        return self._count.snapshot()

    def count_request(self, verb: str, plural: str) -> None:
        """Count one request."""
        self._count.add_request(verb, plural)

    def count_bytes(self, size: int) -> None:
        """Count bytes of a body or of a watch event."""
        self._count.add_bytes(size)


class _Listener(ThreadingHTTPServer):
    """One listening socket of the server and the connections accepted on it."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, api: ApiServer) -> None:
        self.api = api
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__((api.host, api.port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def drop_connections(self) -> None:
        with self._lock:
            for connection in self._connections:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections end whenever a client or a test likes: nothing to say."""


class _Handler(BaseHTTPRequestHandler):
    """One connection. Bodies are sent in one piece each; watch events as HTTP chunks."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listener

    def do_GET(self) -> None:
        """Answer one request."""
        api = self.server.api
        time.sleep(api.faults.delay_seconds)
        url = urlsplit(self.path)
        try:
            if api.token is not None and self.headers.get("Authorization") != f"Bearer {api.token}":
                raise unauthorized()
            target = target_of(url.path)
            if target is None:
                self._answer_plain_path(url.path)
            else:
                self._answer_resource(target, dict(parse_qsl(url.query, keep_blank_values=True)))
        except RequestRefused as refusal:
            self._send_json(refusal.code, refusal.status)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the server counts its requests."""

    def _answer_plain_path(self, path: str) -> None:
        if path == "/version":
            self._send_json(HTTPStatus.OK, VERSION)
        elif path in ("/healthz", "/livez", "/readyz"):
            self._send(HTTPStatus.OK, b"ok", "text/plain; charset=utf-8")
        else:
            raise not_found("the server could not find the requested resource")

    def _answer_resource(self, target: Target, query: dict[str, str]) -> None:
        api = self.server.api
        verb = "watch" if _flag(query, "watch") else "list" if target.name is None else "get"
        api.count_request(verb, target.resource.plural)
        if api.faults.fail_with is not None:
            code = api.faults.fail_with
            raise RequestRefused(code, code.phrase.replace(" ", ""), code.description or code.phrase)
        if target.name is not None and verb == "get":
            self._send_object(target, target.name)
        elif verb == "watch":
            self._send_watch(self._watch(target, query))
        else:
            options = ListOptions(
                query.get("resourceVersion", ""),
                query.get("resourceVersionMatch", ""),
                _number(query, "limit", 0),
                query.get("continue", ""),
            )
            chosen = _selector(target, query)
            self._send_json(HTTPStatus.OK, list_page(api.store, target.resource, chosen, options))

    def _send_object(self, target: Target, name: str) -> None:
        item = self.server.api.store.get(target.resource, target.namespace or "", name)
        if item is None:
            raise not_found(f'{target.resource.plural} "{name}" not found')
        self._send_json(HTTPStatus.OK, item)

    def _watch(self, target: Target, query: dict[str, str]) -> Watch:
        api = self.server.api
        if target.name is not None:
            query["fieldSelector"] = f"metadata.name={target.name}"
        options = WatchOptions(
            query.get("resourceVersion", ""),
            query.get("resourceVersionMatch", ""),
            _flag(query, "sendInitialEvents"),
            _flag(query, "allowWatchBookmarks"),
            _number(query, "timeoutSeconds", 0) or api.watch_timeout_seconds,
        )
        watch = Watch(
            api.store,
            target.resource,
            _selector(target, query),
            options,
            api.bookmark_seconds,
            time.monotonic,
            self._client_is_there,
        )
        watch.check()
        if api.faults.expired_as_status and watch.expired_at_start():
            raise expired(f"too old resource version: {options.resource_version} ({api.store.compacted})")
        return watch

    def _send_watch(self, watch: Watch) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in self._lines(watch.events()):
            self.server.api.count_bytes(len(line))
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.write(b"0\r\n\r\n")

    def _lines(self, batches: Iterator[list[JsonObject]]) -> Iterator[bytes]:
        faults = self.server.api.faults
        for batch in batches:
            for event in reversed(batch) if faults.reverse_events else batch:
                time.sleep(faults.delay_seconds)
                junk, faults.junk_line = faults.junk_line, None
                if junk is not None:
                    yield junk
                line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
                for _ in range(faults.repeat_events):
                    yield line

    def _client_is_there(self) -> bool:
        """Whether the client has neither closed nor been cut off; it sends nothing while it watches."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        return not readable or self.connection.recv(1, socket.MSG_PEEK) != b""

    def _send_json(self, code: HTTPStatus, content: JsonObject) -> None:
        self._send(code, json.dumps(content, separators=(",", ":")).encode() + b"\n", "application/json")

    def _send(self, code: HTTPStatus, body: bytes, content_type: str) -> None:
        self.server.api.count_bytes(len(body))
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _selector(target: Target, query: dict[str, str]) -> Selector:
    try:
        return selector(
            target.resource, target.namespace, query.get("fieldSelector", ""), query.get("labelSelector", "")
        )
    except SelectorError as error:
        raise bad_request(str(error)) from error


def _flag(query: dict[str, str], name: str) -> bool:
    return query.get(name, "").lower() in ("true", "1")


def _number(query: dict[str, str], name: str, default: int) -> int:
    try:
        return int(query.get(name) or default)
    except ValueError:
        raise bad_request(f"{name}: {query[name]!r} is not a number") from None
