"""A folder of recorded watches, through the code of the live watches: watch-pods.jsonl and its kin.

A line is {"recv_ns": wall clock at receipt, "event": the event as the API server sent it}.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent.cluster.events import NamespaceEvents
from agent.cluster.pods import NodePods
from agent.cluster.slices import NamespaceSlices
from agent.cluster.watch import WatchListener
from agent.cluster.watch_event import Change, JsonObject
from agent.core.record_codec import RecordedEntry

PODS, SLICES, EVENTS = "watch-pods.jsonl", "watch-endpointslices.jsonl", "watch-events.jsonl"
_LONGEST_SHOWN = 80
_LATEST_NS = 2**63
_COMPLAINTS_OF_A_FILE = 10


@dataclass(frozen=True, slots=True)
class ReceivedEvent:
    """One line of a recorded watch."""

    at_ns: int
    file: str
    change: Change
    object: JsonObject

    @property
    def namespace(self) -> str:
        """The object's namespace; empty where it has none."""
        metadata = self.object.get("metadata")
        return str(metadata.get("namespace", "")) if isinstance(metadata, dict) else ""


@dataclass(slots=True)
class WatchFolder:
    """What a folder holds. `complaints` name what is missing or damaged, one line each."""

    events: list[ReceivedEvent] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes whose pods were watched, as the pods tell it: several where all pods were watched."""
        specs = (event.object.get("spec") for event in self.events if event.file == PODS)
        names = (spec.get("nodeName") for spec in specs if isinstance(spec, dict))
        return tuple(dict.fromkeys(name for name in names if isinstance(name, str) and name))

    def records(self) -> Iterator[RecordedEntry]:
        """The records that the live watches of each node would have made of it, in the order of receipt."""
        told: list[RecordedEntry] = []
        pods, nodes = NodePods(told.append), self.nodes or ("",)
        slices: defaultdict[str, list[NamespaceSlices]] = defaultdict(
            lambda: [NamespaceSlices(node, told.append) for node in nodes]
        )
        events: defaultdict[str, NamespaceEvents] = defaultdict(lambda: NamespaceEvents(told.append))
        for event in sorted(self.events, key=lambda event: event.at_ns):
            listeners: Sequence[WatchListener] = [pods]
            if event.file != PODS:
                namespace = event.namespace
                listeners = slices[namespace] if event.file == SLICES else [events[namespace]]
            for listener in listeners:
                listener.changed(event.change, event.object, event.at_ns)
            # An endpoint that does not name its node is told of for each.
            yield from dict.fromkeys(told)
            told.clear()


def read_watch_folder(folder: Path) -> WatchFolder:
    """Read the watches of a folder. Raises ValueError if it has none of them."""
    found = WatchFolder()
    missing = [name for name in (PODS, SLICES, EVENTS) if not (folder / name).is_file()]
    if len(missing) == 3:
        raise ValueError(f"{folder} has no recorded watches ({PODS}, {SLICES}, {EVENTS})")
    found.complaints += [f"{folder / name} is missing: what it would tell stays unknown" for name in missing]
    for name in (PODS, SLICES, EVENTS):
        if name not in missing:
            _read_file(folder / name, found)
    return found


def _read_file(file: Path, found: WatchFolder) -> None:
    damaged = 0
    with file.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                event = _event_of(file.name, line)
            except (ValueError, RecursionError) as error:
                damaged += 1
                if damaged <= _COMPLAINTS_OF_A_FILE:
                    reason = " ".join(str(error).split())[:160]
                    found.complaints.append(f"{file}:{number} is passed over: {reason}")
                continue
            if event.change is not Change.BOOKMARK:
                found.events.append(event)
    if damaged > _COMPLAINTS_OF_A_FILE:
        found.complaints.append(f"{file}: {damaged} lines are passed over in all")


def _event_of(file: str, line: str) -> ReceivedEvent:
    entry = json.loads(line)
    event = entry.get("event") if isinstance(entry, dict) else None
    if not isinstance(event, dict) or not isinstance(event.get("object"), dict):
        raise ValueError(f"no watch event: {line.strip()[:_LONGEST_SHOWN]}")
    at_ns = entry.get("recv_ns")
    if type(at_ns) is not int or not 0 <= at_ns < _LATEST_NS:
        raise ValueError("recv_ns is missing, or no time in nanoseconds since 1970")
    return ReceivedEvent(at_ns, file, Change(event.get("type")), event["object"])
