"""One line of a watch stream, and the answer to a list."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from agent.cluster.failures import Expired, Garbled, one_line
from agent.core.fields import Fields

JsonObject = Mapping[str, object]
_GONE = 410


class Change(Enum):
    """What a watch event says about its object; values are the API's."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """A decoded event; `version` is the resource version to go on from after it."""

    change: Change
    object: JsonObject
    version: str


@dataclass(frozen=True, slots=True)
class Listing:
    """A decoded list and the resource version to watch from."""

    objects: tuple[JsonObject, ...]
    version: str


def event_of(line: bytes) -> WatchEvent:
    """Decode one line. Raises Expired if it says so, Garbled for another ERROR or anything unexpected."""
    try:
        event = Fields.of(_decoded(line), "event")
        kind = event.text("type")
        content = event.within("object")
        if kind == "ERROR":
            raise _failure(content)
        return WatchEvent(Change(kind), content.content, content.within("metadata").text("resourceVersion"))
    except ValueError as error:
        raise Garbled(f"not a watch event: {one_line(str(error))}") from None


def listing_of(body: bytes) -> Listing:
    """Decode the answer to a list. Raises Garbled."""
    try:
        answer = Fields.of(_decoded(body), "list")
        objects = tuple(item.content for item in answer.each("items"))
        return Listing(objects, answer.within("metadata").text("resourceVersion"))
    except ValueError as error:
        raise Garbled(f"not a list: {one_line(str(error))}") from None


def _failure(status: Fields) -> Expired | Garbled:
    message = status.optional_text("message") or status.optional_text("reason") or "no reason given"
    if status.number("code") == _GONE:
        return Expired(message)
    return Garbled(f"the API server ended the watch: {one_line(message)}")


def _decoded(text: bytes) -> object:
    try:
        return json.loads(text, object_hook=_without_managed_fields)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _without_managed_fields(decoded: dict[str, object]) -> dict[str, object]:
    # Half of a pod's JSON, and of no use here: dropped before the whole list is in memory.
    decoded.pop("managedFields", None)
    return decoded
