"""What a recording is made of: a header line, then one entry a line (docs/record-and-replay.md)."""

import json
import typing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address

from agent.core.fields import is_text
from agent.core.record_codec import RecordedEntry, UnknownEntryError, from_json, to_json
from agent.core.records import Address

FORMAT = 1
_FORMAT_KEY = "lastcall_recording"
_LONGEST_SECONDS = 10.0**9


@dataclass(frozen=True, slots=True)
class RecordingHeader:
    """Where a recording is from. `retention_seconds` is how long gone pods stayed in the metrics."""

    node: str
    version: str
    retention_seconds: float
    node_addresses: tuple[Address, ...] = ()


@dataclass(slots=True)
class PassedOver:
    """Lines of a recording that could not be used: unknown records, damaged lines, and one cut at the end."""

    unknown: int = 0
    damaged: int = 0
    first_damage: str | None = None
    torn: bool = False


def header_line(header: RecordingHeader) -> str:
    """The first line of a recording."""
    fields = {
        "node": header.node,
        "version": header.version,
        "retention_seconds": header.retention_seconds,
        "node_addresses": [str(address) for address in header.node_addresses],
    }
    return _line({_FORMAT_KEY: FORMAT, **fields})


def entry_line(entry: RecordedEntry) -> str:
    """A line of a recording."""
    return _line(to_json(entry))


def _line(value: object) -> str:
    return json.dumps(value, separators=(",", ":")) + "\n"


def begins_recording(first_line: bytes) -> bool:
    """Whether the file with this first line is a recording, of whatever format, or still empty."""
    return not first_line or first_line.startswith(b'{"%s":' % _FORMAT_KEY.encode())


def parse_header(line: str) -> RecordingHeader:
    """The header of a recording. Raises ValueError that says what the file is not."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or _FORMAT_KEY not in fields:
        raise ValueError("this is no recording of agent run --record")
    if fields[_FORMAT_KEY] != FORMAT:
        raise ValueError(f"the recording has format {fields[_FORMAT_KEY]!r}, this version reads {FORMAT}")
    try:
        return RecordingHeader(
            node=_text(fields.get("node")),
            version=_text(fields.get("version")),
            retention_seconds=_seconds(fields.get("retention_seconds")),
            node_addresses=tuple(ip_address(_text(address)) for address in fields["node_addresses"]),
        )
    except (KeyError, TypeError, ValueError):
        raise ValueError("the header of the recording is damaged") from None


def _text(value: object) -> str:
    if not isinstance(value, str) or not is_text(value):
        raise ValueError
    return value


def _seconds(value: object) -> float:
    if type(value) not in (int, float) or not 0 <= typing.cast(float, value) <= _LONGEST_SECONDS:
        raise ValueError
    return float(typing.cast(float, value))


def parse_entries(lines: Iterable[str], passed_over: PassedOver) -> Iterator[RecordedEntry]:
    """The entries of the lines after the header; what cannot be used is counted in `passed_over`."""
    for number, line in enumerate(lines, start=2):
        if not line.endswith("\n"):
            # The agent was killed while it wrote.
            passed_over.torn = True
            return
        try:
            yield from_json(json.loads(line))
        except UnknownEntryError:
            passed_over.unknown += 1
        except (ValueError, RecursionError) as error:
            passed_over.damaged += 1
            passed_over.first_damage = passed_over.first_damage or f"line {number}: {error}"
