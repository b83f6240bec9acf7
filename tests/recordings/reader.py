"""Reads the recorded watches."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECORDINGS = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """One watch event, with the wall clock at its receipt in nanoseconds."""

    at_ns: int
    type: str
    object: dict[str, Any]


def recorded_events(path: str) -> Iterator[RecordedEvent]:
    """The events of a recording, in the order in which they came."""
    with open(RECORDINGS / path, encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line)
            yield RecordedEvent(entry["recv_ns"], entry["event"]["type"], entry["event"]["object"])


def recorded_deletions() -> list[str]:
    """The names of the recorded cases."""
    return sorted(path.name for path in (RECORDINGS / "deletions").iterdir())
