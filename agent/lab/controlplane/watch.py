"""Watch streams: initial events, changes seen through a selector, bookmarks, and the end of history."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from agent.lab.controlplane.resources import JsonObject, Resource
from agent.lab.controlplane.selectors import Selector
from agent.lab.controlplane.statuses import bad_request, expired, invalid
from agent.lab.controlplane.store import Change, ChangeType, ExpiredError, Store

INITIAL_EVENTS_END = "k8s.io/initial-events-end"

_DISCONNECT_CHECK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """The parameters of a watch request; `timeout_seconds` is when the server ends the stream."""

    resource_version: str = ""
    resource_version_match: str = ""
    send_initial_events: bool = False
    allow_bookmarks: bool = False
    timeout_seconds: float = 1800.0


@dataclass(frozen=True, slots=True)
class Watch:
    """One watch: what it follows, and what tells it the time and whether the client is still there."""

    store: Store
    resource: Resource
    selector: Selector
    options: WatchOptions
    bookmark_seconds: float
    monotonic: Callable[[], float]
    connected: Callable[[], bool]

    def check(self) -> None:
        """Refuse parameters that a real API server refuses before it streams. Raises RequestRefused."""
        if self.options.send_initial_events and self.options.resource_version_match != "NotOlderThan":
            raise invalid("sendInitialEvents requires resourceVersionMatch=NotOlderThan")
        version = self.options.resource_version
        if version and not version.isdecimal():
            raise bad_request(f"invalid resource version {version!r}")

    def expired_at_start(self) -> bool:
        """Whether the history from the wanted revision on is already gone."""
        return not self._starts_with_objects and int(self.options.resource_version) < self.store.compacted

    def events(self) -> Iterator[list[JsonObject]]:
        """The stream as batches of events, one batch per wake-up, until timeout, disconnect or an ERROR."""
        ends_at = self.monotonic() + self.options.timeout_seconds
        bookmark_at = self.monotonic() + self.bookmark_seconds
        if self._starts_with_objects:
            revision, found = self.store.at(self.resource)
            yield self._initial_events(revision, [item for _, item in found if self.selector.matches(item)])
        else:
            revision = int(self.options.resource_version)
        while self.connected() and (now := self.monotonic()) < ends_at:
            try:
                reached, changes = self.store.changes_after(self.resource, revision)
            except ExpiredError as error:
                yield [{"type": "ERROR", "object": expired(str(error)).status}]
                return
            revision = max(revision, reached)
            batch = [event for change in changes if (event := self._event(change))]
            if self.options.allow_bookmarks and now >= bookmark_at:
                bookmark_at = now + self.bookmark_seconds
                # As a real one: a watch from a version of the future gets no bookmark before that is reached.
                if reached >= revision:
                    batch.append(self._bookmark(revision, initial_events_end=False))
            if batch:
                yield batch
            pause = min(ends_at, bookmark_at if self.options.allow_bookmarks else ends_at) - self.monotonic()
            self.store.wait_past(revision, min(max(pause, 0.0), _DISCONNECT_CHECK_SECONDS))

    @property
    def _starts_with_objects(self) -> bool:
        return self.options.send_initial_events or self.options.resource_version in ("", "0")

    def _initial_events(self, revision: int, items: list[JsonObject]) -> list[JsonObject]:
        events: list[JsonObject] = [{"type": "ADDED", "object": item} for item in items]
        if self.options.send_initial_events and self.options.allow_bookmarks:
            events.append(self._bookmark(revision, initial_events_end=True))
        return events

    def _event(self, change: Change) -> JsonObject | None:
        """The change as this watch sees it: an object may enter or leave what the selector matches."""
        seen_before = self.selector.matches(change.before)
        seen_after = change.type is not ChangeType.DELETED and self.selector.matches(change.after)
        if seen_after:
            return {"type": "MODIFIED" if seen_before else "ADDED", "object": change.after}
        return {"type": "DELETED", "object": change.after} if seen_before else None

    def _bookmark(self, revision: int, *, initial_events_end: bool) -> JsonObject:
        metadata: JsonObject = {"resourceVersion": str(revision)}
        if initial_events_end:
            metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
        return {
            "type": "BOOKMARK",
            "object": {
                "kind": self.resource.kind,
                "apiVersion": self.resource.api_version,
                "metadata": metadata,
            },
        }
