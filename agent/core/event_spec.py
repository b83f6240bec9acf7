"""An event's API object -> the record of what it says about a container's end."""

import re

from agent.core.api_time import nanoseconds
from agent.core.fields import Fields
from agent.core.records import EventReason, PodEventSeen

_CONTAINER_PATH = re.compile(r"spec\.(?:initContainers|containers|ephemeralContainers)\{(?P<name>[^{}]+)\}")
_REASONS = {reason.value: reason for reason in EventReason}


def pod_event_of(api_object: object, at_ns: int) -> PodEventSeen | None:
    """The record of an event's API object (decoded JSON); None if it is not about the end of a pod.

    Takes core/v1 events, whose `involvedObject` is the pod. Raises ValueError if it is no whole event.
    """
    fields = Fields.of(api_object, "event")
    reason = _REASONS.get(fields.optional_text("reason") or "")
    about = fields.within("involvedObject")
    uid = about.optional_text("uid")
    if reason is None or about.optional_text("kind") != "Pod" or not uid:
        return None
    container = _CONTAINER_PATH.fullmatch(about.optional_text("fieldPath") or "")
    return PodEventSeen(
        at_ns,
        uid,
        container["name"] if container else None,
        reason,
        fields.optional_text("message") or "",
        _stamp(fields),
    )


def _stamp(fields: Fields) -> int | None:
    """When it last happened: a series has its own time, and eventTime is null for the kubelet's events."""
    series = fields.within("series")
    for source, key in (
        (series, "lastObservedTime"),
        (fields, "lastTimestamp"),
        (fields, "eventTime"),
        (fields, "firstTimestamp"),
    ):
        text = source.optional_text(key)
        if text is not None:
            return nanoseconds(text, f"{source.path}.{key}")
    return None
