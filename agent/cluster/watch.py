"""Keeps a picture of one kind of object up to date: list, then watch, and again whenever the watch ends.

The protocol is in the Kubernetes documentation, "Kubernetes API Concepts", "Efficient detection of changes".
Lists come from the API server's cache (resourceVersion=0, later "not older than what was seen"), which has an
index of pods by node: a list from etcd would read the pods of the whole cluster.
"""

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Lock, Thread, current_thread
from typing import Protocol

from agent.cluster.backoff import Backoff
from agent.cluster.connection import ApiConnection
from agent.cluster.failures import ApiFailure, Expired, Garbled, Silent, StatusFailure, Unreachable
from agent.cluster.response_body import ResponseBody
from agent.cluster.watch_event import Change, JsonObject, event_of, listing_of

_log = logging.getLogger(__name__)

_FROM_CACHE = "0"
_FROM_ETCD = ""
_RESOURCE_VERSION_TOO_LARGE = 504
_STOP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class WatchedResource:
    """What to watch: `name` for logs and metrics, the collection's path, and a field selector."""

    name: str
    path: str
    field_selector: str = ""


@dataclass(frozen=True, slots=True)
class WatchTiming:
    """Seconds. The API server sends a bookmark about every 60 s if it can: longer silence is looked into."""

    first_retry: float = 0.2
    longest_retry: float = 15.0
    list_silence: float = 30.0
    watch_silence: float = 150.0
    watch_lasts: float = 300.0
    settled_after: float = 5.0
    """A stream that held this long is a success, and so is one that brought events before it broke."""


class WatchListener(Protocol):
    """Who is told what a watch learns, in the watch's thread."""

    def listed(self, objects: tuple[JsonObject, ...], at_ns: int) -> None:
        """These are all the objects there are."""

    def changed(self, change: Change, changed_object: JsonObject, at_ns: int) -> None:
        """An object was added, modified or deleted (never BOOKMARK). May repeat what is known."""


class ResourceWatch:
    """One watch in its own daemon thread; it goes on until `stop()`, whatever the API server does."""

    def __init__(
        self,
        connection: ApiConnection,
        resource: WatchedResource,
        listener: WatchListener,
        clock: Callable[[], int] = time.time_ns,
        timing: WatchTiming | None = None,
    ) -> None:
        self._connection = connection
        self._resource = resource
        self._listener = listener
        self._clock = clock
        self._timing = timing or WatchTiming()
        self._backoff = Backoff(self._timing.first_retry, self._timing.longest_retry)
        self._version: str | None = None
        self._list_from = _FROM_CACHE
        self._stopping = Event()
        self._body: ResponseBody | None = None
        self._body_lock = Lock()
        self._thread = Thread(target=self._run, name=f"watch {resource.name}", daemon=True)
        self._restarts = 0
        self._last_event_ns: int | None = None
        self._connected = False

    @property
    def restarts(self) -> int:
        """How often the watch failed and had to be made again; its ordinary end does not count."""
        return self._restarts

    @property
    def last_event_ns(self) -> int | None:
        """When the API server last said something: a list, an event or a bookmark."""
        return self._last_event_ns

    @property
    def connected(self) -> bool:
        """Whether a watch is open and what it told is up to date."""
        return self._connected

    @property
    def threads(self) -> tuple[Thread, ...]:
        """Its threads, which end only when it is stopped."""
        return (self._thread,)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End the watch and wait for it, 2 s at most: it may be in the middle of connecting."""
        self.begin_to_stop()
        if self._thread.is_alive() and self._thread is not current_thread():
            self._thread.join(_STOP_SECONDS)

    def begin_to_stop(self) -> None:
        """End the watch without waiting: no more than what is being told at this instant is still told."""
        self._stopping.set()
        with self._body_lock:
            if self._body is not None:
                self._body.cut()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._list_and_watch()
            except ApiFailure as failure:
                self._recover(failure)
            except Exception as error:
                # A fault in a listener must not end the watch: what it missed comes with the next list.
                self._version = None
                self._recover(Garbled(f"{type(error).__name__}: {error}"))
        self._connected = False

    def _list_and_watch(self) -> None:
        if self._version is None:
            self._list()
        if self._version is not None and not self._stopping.is_set():
            self._watch(self._version)

    def _list(self) -> None:
        try:
            body = self._open({"resourceVersion": self._list_from}, self._timing.list_silence)
        except (Expired, StatusFailure) as failure:
            if isinstance(failure, Expired) or failure.code == _RESOURCE_VERSION_TOO_LARGE:
                self._list_from = _FROM_ETCD
            raise
        with body:
            listing = listing_of(body.whole())
        at_ns = self._clock()
        self._last_event_ns = at_ns
        if not self._stopping.is_set():
            self._listener.listed(listing.objects, at_ns)
        self._reached(listing.version)

    def _watch(self, version: str) -> None:
        lasts = self._timing.watch_lasts * random.uniform(0.8, 1.2)
        query = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, round(lasts))),
        }
        settles = time.monotonic() + min(self._timing.settled_after, lasts / 2)
        told = False
        try:
            with self._open(query, self._timing.watch_silence) as body:
                self._now_connected()
                for line in body.lines():
                    self._tell(line, version)
                    told = True
        except Silent as silence:
            # There may be nothing to tell: in an idle cluster versions do not grow, and no bookmark is sent.
            # Or the server is dead, which the list shows. Or its etcd was restored, and a watch from a
            # version that it has not reached is told nothing at all.
            _log.debug("watching %s: %s; listing again", self._resource.name, silence)
            self._version = None
            return
        except Unreachable:
            if told:
                self._backoff.reset()
            raise
        finally:
            if time.monotonic() >= settles:
                self._backoff.reset()
        if not told and time.monotonic() < settles:
            raise Unreachable("the watch ended as soon as it began")
        self._backoff.reset()

    def _tell(self, line: bytes, opened_at: str) -> None:
        event = event_of(line)
        at_ns = self._clock()
        self._last_event_ns = at_ns
        if event.change is Change.BOOKMARK and _is_lower(event.version, opened_at):
            # The watch was opened at a version that the API server has not reached: it would tell nothing.
            raise Expired("the versions of the API server went back, as after a restored backup")
        if event.change is not Change.BOOKMARK and not self._stopping.is_set():
            self._listener.changed(event.change, event.object, at_ns)
        self._reached(event.version)

    def _reached(self, version: str) -> None:
        self._version = version
        self._list_from = version

    def _open(self, query: dict[str, str], silence_seconds: float) -> ResponseBody:
        if self._resource.field_selector:
            query["fieldSelector"] = self._resource.field_selector
        body = self._connection.get(self._resource.path, query, silence_seconds)
        with self._body_lock:
            self._body = body
            if self._stopping.is_set():
                body.cut()
        return body

    def _now_connected(self) -> None:
        if not self._connected and self._restarts:
            _log.info("watching %s again", self._resource.name)
        self._connected = True

    def _recover(self, failure: ApiFailure) -> None:
        if self._stopping.is_set():
            return
        was_connected, self._connected = self._connected, False
        first = self._backoff.failures == 0
        if isinstance(failure, (Expired, Garbled)):
            self._version = None
        self._restarts += 1
        wait = self._backoff.seconds_after(failure)
        level = logging.WARNING if first or was_connected else logging.DEBUG
        _log.log(
            logging.INFO if isinstance(failure, Expired) else level,
            "watching %s: %s; trying again in %.1f s",
            self._resource.name,
            failure,
            wait,
        )
        self._stopping.wait(wait)


def _is_lower(version: str, other: str) -> bool:
    """Whether a resource version is lower than another; versions that are no numbers cannot be compared."""
    both = version + other
    return both.isascii() and both.isdecimal() and int(version) < int(other)
