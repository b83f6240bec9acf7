"""What a recording is made of: a header line, then one entry a line (docs/record-and-replay.md)."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address

from agent.core.record_codec import RecordedEntry, UnknownEntryError, from_json, to_json
from agent.core.records import Address

FORMAT = 1
_FORMAT_KEY = "lastcall_recording"


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
    node, version, retention, addresses = (
        fields.get(key) for key in ("node", "version", "retention_seconds", "node_addresses")
    )
    if not isinstance(node, str) or not isinstance(version, str) or not isinstance(addresses, list):
        raise ValueError("the header of the recording is damaged")
    if isinstance(retention, bool) or not isinstance(retention, int | float):
        raise ValueError("the header of the recording is damaged")
    known = tuple(ip_address(address) for address in addresses if isinstance(address, str))
    return RecordingHeader(node, version, float(retention), known)


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
