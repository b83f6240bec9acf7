"""The objects behind the API server stand-in, one revision counter, and the history that watches replay."""

import copy
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from agent.lab.controlplane.resources import JsonObject, Resource

Key = tuple[str, str]
"""Namespace (empty for cluster-scoped objects) and name; collections are listed in this order."""


class ChangeType(Enum):
    """What happened to an object; values are those of watch events."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class Change:
    """One write. `after` is the object with its new resource version (a deletion: as it was at the end)."""

    revision: int
    resource: Resource
    key: Key
    type: ChangeType
    before: JsonObject | None
    after: JsonObject


class ExpiredError(LookupError):
    """History before the wanted revision has been compacted (HTTP 410)."""

    def __init__(self, wanted: int, compacted: int) -> None:
        super().__init__(f"too old resource version: {wanted} ({compacted})")


class FutureRevisionError(LookupError):
    """The wanted revision has not been written yet (HTTP 504 Timeout on a real API server)."""

    def __init__(self, wanted: int, current: int) -> None:
        super().__init__(f"Too large resource version: {wanted}, current: {current}")


class Store:
    """Objects by resource and key. Safe to use from any thread; objects handed out must not be changed."""

    def __init__(self, first_revision: int = 1) -> None:
        self._objects: dict[Resource, dict[Key, JsonObject]] = {}
        self._history: list[Change] = []
        self._revision = first_revision
        self._compacted = first_revision
        self._changed = threading.Condition()

    @property
    def revision(self) -> int:
        """The revision of the last write."""
        with self._changed:
            return self._revision

    @property
    def compacted(self) -> int:
        """Watches and lists cannot start before this revision."""
        with self._changed:
            return self._compacted

    def create(self, resource: Resource, item: JsonObject) -> JsonObject:
        """Add an object. Raises KeyError if one of that name exists."""
        return self._write(resource, _key(item), ChangeType.ADDED, lambda _: item)

    def update(
        self, resource: Resource, namespace: str, name: str, change: Callable[[JsonObject], JsonObject]
    ) -> JsonObject:
        """Replace an object by what `change` makes of a copy of it. Raises KeyError if there is none."""
        return self._write(resource, (namespace, name), ChangeType.MODIFIED, change)

    def delete(self, resource: Resource, namespace: str, name: str) -> JsonObject:
        """Remove an object. Raises KeyError if there is none."""
        return self._write(resource, (namespace, name), ChangeType.DELETED, lambda item: item)

    def get(self, resource: Resource, namespace: str, name: str) -> JsonObject | None:
        """The object as it is now."""
        with self._changed:
            return self._objects.get(resource, {}).get((namespace, name))

    def at(self, resource: Resource, revision: int | None = None) -> tuple[int, list[tuple[Key, JsonObject]]]:
        """The collection at a revision (None: now), in key order, with that revision.

        Raises ExpiredError or FutureRevisionError.
        """
        with self._changed:
            if revision is None:
                revision = self._revision
            self._require_reachable(revision)
            found = dict(self._objects.get(resource, {}))
            for change in reversed(self._history):
                if change.revision <= revision:
                    break
                if change.resource is resource:
                    if change.before is None:
                        found.pop(change.key, None)
                    else:
                        found[change.key] = change.before
            return revision, sorted(found.items())

    def changes_after(self, resource: Resource, revision: int) -> tuple[int, list[Change]]:
        """The resource's writes after a revision, with the revision they reach. Raises ExpiredError."""
        with self._changed:
            if revision < self._compacted:
                raise ExpiredError(revision, self._compacted)
            newer = [change for change in self._newer_than(revision) if change.resource is resource]
            return self._revision, newer

    def wait_past(self, revision: int, timeout: float) -> bool:
        """Wait up to `timeout` seconds for a write of any resource after `revision`; whether there is one."""
        with self._changed:
            return self._changed.wait_for(lambda: self._revision > revision, timeout)

    def compact(self, revision: int | None = None) -> None:
        """Forget history up to a revision (None: all of it), as etcd's compaction does every five minutes."""
        with self._changed:
            self._compacted = max(self._compacted, self._revision if revision is None else revision)
            self._history = self._newer_than(self._compacted)

    def _require_reachable(self, revision: int) -> None:
        if revision < self._compacted:
            raise ExpiredError(revision, self._compacted)
        if revision > self._revision:
            raise FutureRevisionError(revision, self._revision)

    def _newer_than(self, revision: int) -> list[Change]:
        newer = 0
        for change in reversed(self._history):
            if change.revision <= revision:
                break
            newer += 1
        return self._history[len(self._history) - newer :]

    def _write(
        self, resource: Resource, key: Key, kind: ChangeType, change: Callable[[JsonObject], JsonObject]
    ) -> JsonObject:
        with self._changed:
            objects = self._objects.setdefault(resource, {})
            before = objects.get(key)
            if (before is None) is not (kind is ChangeType.ADDED):
                raise KeyError(f"{resource.kind} {'/'.join(key)}: cannot be {kind.value} now")
            after = copy.deepcopy(change(copy.deepcopy(before) if before is not None else {}))
            self._revision += 1
            after["metadata"]["resourceVersion"] = str(self._revision)
            if kind is ChangeType.DELETED:
                del objects[key]
            else:
                objects[key] = after
            self._history.append(Change(self._revision, resource, key, kind, before, after))
            self._changed.notify_all()
            return after


def _key(item: JsonObject) -> Key:
    metadata = item["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
