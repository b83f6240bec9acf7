"""Whose an address is: asked of the API server once, and only of addresses whose connections were dropped."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from threading import Condition, Event, Thread, current_thread

from agent.cluster.backoff import Backoff
from agent.cluster.connection import ApiConnection
from agent.cluster.failures import ApiFailure, Garbled
from agent.cluster.watch_event import listing_of
from agent.core.api_time import nanoseconds
from agent.core.fields import Fields
from agent.core.records import ClusterRecord, SourceIdentified, SourceKind
from agent.core.wanted_source import WantedSource
from agent.core.workload import workload_of

_log = logging.getLogger(__name__)

WAITING_AT_MOST = 1000
_SECONDS_BETWEEN = 0.05
_SILENCE_SECONDS = 10.0
_FIRST_RETRY_SECONDS = 0.5
_LONGEST_RETRY_SECONDS = 30.0
_STOP_SECONDS = 2.0


class SourceLookup:
    """Asks in its own daemon thread, at most 20 times a second; SourceIdentified records are the answers.

    While the API server is away the questions wait, up to 1,000 of them; `passed_over` counts the rest, which
    whoever asked has to ask again.
    """

    def __init__(
        self,
        connection: ApiConnection,
        emit: Callable[[ClusterRecord], None],
        clock: Callable[[], int] = time.time_ns,
        first_retry_seconds: float = _FIRST_RETRY_SECONDS,
    ) -> None:
        self._connection = connection
        self._emit = emit
        self._clock = clock
        self._backoff = Backoff(first_retry_seconds, _LONGEST_RETRY_SECONDS)
        self._waiting: deque[WantedSource] = deque()
        self._asked = Condition()
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="source lookup", daemon=True)
        self.passed_over = 0

    @property
    def threads(self) -> tuple[Thread, ...]:
        """Its threads, which end only when it is stopped."""
        return (self._thread,)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End without waiting for an answer that does not come."""
        self._stopping.set()
        with self._asked:
            self._asked.notify_all()
        if self._thread.is_alive() and self._thread is not current_thread():
            self._thread.join(_STOP_SECONDS)

    def ask(self, sources: Iterable[WantedSource]) -> None:
        """Have these addresses looked up; those that wait already are not asked twice."""
        with self._asked:
            known = {source.address for source in self._waiting}
            for source in sources:
                if source.address in known:
                    continue
                if len(self._waiting) >= WAITING_AT_MOST:
                    self.passed_over += 1
                    continue
                self._waiting.append(source)
            self._asked.notify_all()

    def _run(self) -> None:
        while (source := self._next()) is not None:
            try:
                self._emit(self._identified(source))
            except ApiFailure as failure:
                self._wait_after(failure, source)
            except Exception as error:
                # A fault here must not end all looking up.
                self._wait_after(Garbled(f"{type(error).__name__}: {error}"), source)
            else:
                self._backoff.reset()
                with self._asked:
                    # It waits until it is answered, so that nobody asks again meanwhile.
                    self._waiting.popleft()
                self._stopping.wait(_SECONDS_BETWEEN)

    def _next(self) -> WantedSource | None:
        with self._asked:
            self._asked.wait_for(lambda: self._waiting or self._stopping.is_set())
            return None if self._stopping.is_set() else self._waiting[0]

    def _wait_after(self, failure: ApiFailure, source: WantedSource) -> None:
        level = logging.DEBUG if self._backoff.failures else logging.WARNING
        _log.log(level, "looking up who %s is: %s; trying again", source.address, failure)
        with self._asked:
            # One address that is never answered must not keep the others from being.
            self._waiting.rotate(-1)
        self._stopping.wait(self._backoff.seconds_after(failure))

    def _identified(self, source: WantedSource) -> SourceIdentified:
        query = {"fieldSelector": f"status.podIP={source.address}", "resourceVersion": "0"}
        with self._connection.get("/api/v1/pods", query, _SILENCE_SECONDS) as body:
            pods = listing_of(body.whole()).objects
        try:
            return owner_of(source, [Fields.of(pod, "pod") for pod in pods], self._clock())
        except ValueError as error:
            raise Garbled(f"the API server's pods at {source.address}: {error}") from None


def owner_of(source: WantedSource, pods: Iterable[Fields], at_ns: int) -> SourceIdentified:
    """Who had the address at the time, of the pods that the API server lists with it.

    A finished pod keeps its address in its status, but does not have it. A pod on its host's network has the
    node's. A pod that has started since, or is finished, need not be the one that was seen: then it stays
    unknown who it was. Raises ValueError on a pod that is none.
    """
    listed = list(pods)
    alive = [pod for pod in listed if not _is_finished(pod)]
    for pod in alive:
        if pod.within("spec").flag("hostNetwork"):
            node = pod.within("spec").text("nodeName")
            return SourceIdentified(at_ns, source.address, SourceKind.NODE, name=node)
    for pod in alive:
        if _had_started(pod, source.seen_ns):
            metadata = pod.within("metadata")
            return SourceIdentified(
                at_ns,
                source.address,
                SourceKind.POD,
                namespace=metadata.text("namespace"),
                pod=metadata.text("name"),
                workload=workload_of(pod),
            )
    return SourceIdentified(at_ns, source.address, SourceKind.UNKNOWN if listed else SourceKind.EXTERNAL)


def _is_finished(pod: Fields) -> bool:
    return pod.within("status").optional_text("phase") in ("Succeeded", "Failed")


def _had_started(pod: Fields, seen_ns: int) -> bool:
    started = pod.within("status").optional_text("startTime")
    return started is None or nanoseconds(started, "status.startTime") <= seen_ns
