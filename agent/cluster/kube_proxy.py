"""Follows this node's kube-proxy through its metrics: when it last applied what it was told."""

import http.client
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from threading import Event, Thread, current_thread
from urllib.parse import urlsplit

from agent.cluster.failures import ConnectionSettingsError, one_line
from agent.cluster.kube_proxy_metrics import NotKubeProxyMetricsError, SyncProgress, sync_progress_of
from agent.core.records import ClusterRecord, KubeProxyState

_log = logging.getLogger(__name__)

DEFAULT_URL = "http://127.0.0.1:10249/metrics"
"""kube-proxy's default metricsBindAddress."""

_SLOW_SECONDS = 10.0
_FAST_SECONDS = 0.05
_UNCHANGED_SECONDS = 0.2
_ANSWER_SECONDS = 2.0
_READ_BYTES = 65536
_LONGEST_ANSWER_BYTES = 64 * 1024 * 1024
_LARGEST_SHARE_OF_TIME = 0.1
_STOP_SECONDS = 3.0


class KubeProxyWatch:
    """Polls kube-proxy in its own daemon thread: every 10 s, and every 50 ms while asked to.

    An answer of several megabytes takes longer to make and to read than 50 ms are worth: no more than a tenth
    of the time is spent on polling. A KubeProxyState is told when something in it changed, and every 10 s
    (200 ms).
    """

    def __init__(
        self,
        url: str,
        emit: Callable[[ClusterRecord], None],
        clock: Callable[[], int] = time.time_ns,
        slow_seconds: float = _SLOW_SECONDS,
    ) -> None:
        """Raises ConnectionSettingsError if the URL is not one of a metrics endpoint."""
        self._host, self._port, self._path = _endpoint(url)
        self._url = url
        self._emit = emit
        self._clock = clock
        self._slow_seconds = slow_seconds
        self._fast = Event()
        self._wake = Event()
        self._stopping = False
        self._told: KubeProxyState | None = None
        self._complaint: str | None = None
        self._thread = Thread(target=self._run, name="kube-proxy", daemon=True)

    @property
    def threads(self) -> tuple[Thread, ...]:
        """Its threads, which end only when it is stopped."""
        return (self._thread,)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def watch_closely(self, closely: bool) -> None:
        """Poll every 50 ms (a pod of this node is dying) or every 10 s again."""
        if closely and not self._fast.is_set():
            self._fast.set()
            self._wake.set()
        elif not closely:
            self._fast.clear()

    def stop(self) -> None:
        """End the polling."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive() and self._thread is not current_thread():
            self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        while not self._stopping:
            began = time.monotonic()
            try:
                self._tell(self._read())
            except Exception as error:
                # A fault here must not end the polling: what was not told is told the next time.
                self._told = None
                self._complain(f"cannot tell of kube-proxy: {_fault(error)}")
            took = time.monotonic() - began
            fast = max(_FAST_SECONDS - took, took * (1 / _LARGEST_SHARE_OF_TIME - 1))
            self._wake.wait(min(fast, self._slow_seconds) if self._fast.is_set() else self._slow_seconds)
            self._wake.clear()

    def _read(self) -> KubeProxyState:
        try:
            progress = self._progress()
        except NotKubeProxyMetricsError as error:
            self._complain(f"{self._url} is not kube-proxy's metrics: {error}")
            return KubeProxyState(self._clock(), up=False, synced_ns=None, queued_ns=None, pending=None)
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            self._complain(
                f"kube-proxy does not answer at {self._url}: {one_line(str(error)) or repr(error)}"
            )
            return KubeProxyState(self._clock(), up=False, synced_ns=None, queued_ns=None, pending=None)
        except Exception as error:
            self._complain(f"cannot read what {self._url} answers: {_fault(error)}")
            return KubeProxyState(self._clock(), up=False, synced_ns=None, queued_ns=None, pending=None)
        if self._complaint is not None:
            self._complaint = None
            _log.info("kube-proxy answers at %s", self._url)
        return KubeProxyState(self._clock(), True, progress.synced_ns, progress.queued_ns, progress.pending)

    def _progress(self) -> SyncProgress:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_ANSWER_SECONDS)
        with closing(connection):
            connection.request("GET", self._path, headers={"User-Agent": "lastcall"})
            response = connection.getresponse()
            if response.status != http.client.OK:
                raise http.client.HTTPException(f"status {response.status} {response.reason}")
            return sync_progress_of(_pieces(response))

    def _tell(self, state: KubeProxyState) -> None:
        told = self._told
        if (
            told is None
            or replace(state, at_ns=told.at_ns) != told
            or state.at_ns - told.at_ns >= self._told_again_after_seconds * 1e9
        ):
            self._told = state
            self._emit(state)

    @property
    def _told_again_after_seconds(self) -> float:
        """While a pod dies it matters that nothing has changed: kube-proxy has nothing left to do."""
        return _UNCHANGED_SECONDS if self._fast.is_set() else self._slow_seconds * 0.9

    def _complain(self, complaint: str) -> None:
        if self._complaint is None:
            _log.warning("%s; the propagation to this node's rules stays unknown", complaint)
        self._complaint = complaint


def _fault(error: Exception) -> str:
    return f"{type(error).__name__}: {one_line(str(error))} (please report it)"


def _endpoint(url: str) -> tuple[str, int, str]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConnectionSettingsError(f"kube-proxy's metrics URL {url!r} is not usable: {error}") from None
    if parts.scheme != "http" or not host:
        raise ConnectionSettingsError(
            f"kube-proxy's metrics URL {url!r} is not usable: give one such as {DEFAULT_URL}"
        )
    return host, port or 80, (parts.path or "/metrics") + (f"?{parts.query}" if parts.query else "")


def _pieces(response: http.client.HTTPResponse) -> Iterator[bytes]:
    length = 0
    while piece := response.read(_READ_BYTES):
        length += len(piece)
        if length > _LONGEST_ANSWER_BYTES:
            raise NotKubeProxyMetricsError(f"an answer of more than {_LONGEST_ANSWER_BYTES} bytes")
        yield piece
    if response.length:
        # http.client says nothing of an answer that is shorter than its Content-Length.
        raise http.client.HTTPException(f"the answer broke off {response.length} bytes before its end")
