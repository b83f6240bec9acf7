"""The kube-proxy player: rules follow slices after a delay, and a metrics endpoint tells of it."""

import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from agent.lab.controlplane.endpoints import Backend, service_backends
from agent.lab.controlplane.follower import Follower
from agent.lab.controlplane.kube_proxy_metrics import SyncRecord
from agent.lab.controlplane.resources import ENDPOINT_SLICES
from agent.lab.controlplane.schedule import DueActions
from agent.lab.controlplane.slice_objects import ServiceIdentity
from agent.lab.controlplane.store import Change, ChangeType, Store

ApplyRules = Callable[[list[Backend]], None]


class KubeProxy:
    """Applies each change of a followed Service's slice, in order, its delay after it came.

    Changes that leave the rules as they are do not count: a real kube-proxy applies them with the next sync,
    and here they would keep it from ever being up to date.

    `metrics_url` is where it answers while it lives.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._followed: dict[tuple[str, str], tuple[ApplyRules, float]] = {}
        self._queued: dict[tuple[str, str], list[Backend]] = {}
        self._lock = threading.Lock()
        self._record = SyncRecord(time.time())
        self._due = DueActions()
        self._follower = Follower(store, ENDPOINT_SLICES, self._slice_changed)
        self._server = _MetricsServer(self._record)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def metrics_url(self) -> str:
        """The URL of the metrics page."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/metrics"

    def follow(self, service: ServiceIdentity, apply: ApplyRules, delay_seconds: float) -> None:
        """Apply the Service's rules from now on, `delay_seconds` after each change of its slice."""
        with self._lock:
            self._followed[service.namespace, service.slice_name] = (apply, delay_seconds)

    def unfollow(self, service: ServiceIdentity) -> None:
        """Leave the Service's rules as they are, changes that wait included."""
        with self._lock:
            del self._followed[service.namespace, service.slice_name]

    def stop(self) -> None:
        """End the player and its metrics endpoint."""
        self._server.shutdown()
        self._server.server_close()
        self._follower.stop()
        self._due.stop()

    def _slice_changed(self, change: Change) -> None:
        if change.type is not ChangeType.MODIFIED:
            return
        with self._lock:
            followed = self._followed.get(change.key)
        if followed is None:
            return
        backends = service_backends(self._store, change.after)
        if backends == self._queued.get(change.key, []):
            return
        self._queued[change.key] = backends
        self._record.queue(time.time())
        self._due.after(followed[1], lambda: self._sync(change.key, backends))

    def _sync(self, key: tuple[str, str], backends: list[Backend]) -> None:
        with self._lock:
            if key in self._followed:
                self._followed[key][0](backends)
        self._record.sync(time.time())


class _MetricsServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, record: SyncRecord) -> None:
        self.record = record
        super().__init__(("127.0.0.1", 0), _MetricsHandler)


class _MetricsHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _MetricsServer

    def do_GET(self) -> None:
        """Answer a scrape."""
        if self.path != "/metrics":
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        body = self.server.record.text().encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8; escaping=underscores")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
