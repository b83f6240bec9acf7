"""What kube-proxy's own metrics say about how far this node's Service rules are.

Names and meaning: kube-proxy's pkg/proxy/metrics. Since Kubernetes 1.33 some carry the label ip_family,
because kube-proxy runs one proxier for each; before, both wrote to one series.
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_PREFIX = b"kubeproxy_sync_proxy_rules_"
_SYNCED = b"last_timestamp_seconds"
_QUEUED = b"last_queued_timestamp_seconds"
_PENDING = b"endpoint_changes_pending"

_SAMPLE = re.compile(
    rb"kubeproxy_sync_proxy_rules_(?P<name>last_timestamp_seconds|last_queued_timestamp_seconds|endpoint_changes_pending)"
    rb"(?:\{(?P<labels>[^}]*)\})?[ \t]+(?P<value>[^ \t]+)(?:[ \t]+-?[0-9]+)?[ \t]*\r?"
)
_LONGEST_LINE_BYTES = 65536
_LATEST_SECONDS = 2.0**33


@dataclass(frozen=True, slots=True)
class SyncProgress:
    """Where kube-proxy is. Times are its own, in nanoseconds since the epoch; None where it did not say.

    `synced_ns` is the last sync of an address family that has queued a change since, if there is one, or else
    the latest sync of any. `queued_ns` is the last change that any family queued.
    """

    synced_ns: int | None
    queued_ns: int | None
    pending: int | None


class NotKubeProxyMetricsError(ValueError):
    """The answer does not hold what kube-proxy says of its syncs: the text says what is wrong."""


def sync_progress_of(pieces: Iterable[bytes]) -> SyncProgress:
    """Read an answer of any size as it comes, for its three metrics. Raises NotKubeProxyMetricsError."""
    synced: dict[bytes, int] = {}
    queued: dict[bytes, int] = {}
    pending: dict[bytes, int] = {}
    for line in _wanted_lines(pieces):
        sample = _SAMPLE.fullmatch(line)
        if sample is None:
            continue
        value = _number(sample["value"], line)
        labels = sample["labels"] or b""
        if sample["name"] == _PENDING:
            pending[labels] = int(value)
        elif value > 0:
            times = synced if sample["name"] == _SYNCED else queued
            times[labels] = round(value * 1e6) * 1000
    if not (synced or queued or pending):
        raise NotKubeProxyMetricsError("none of kubeproxy_sync_proxy_rules_* is in the answer")
    return SyncProgress(
        synced_ns=_synced(synced, queued),
        queued_ns=max(queued.values(), default=None),
        pending=sum(pending.values()) if pending else None,
    )


def _wanted_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        text = rest + piece
        end = text.rfind(b"\n") + 1
        rest = text[end:]
        if len(rest) > _LONGEST_LINE_BYTES:
            raise NotKubeProxyMetricsError(f"a line of more than {_LONGEST_LINE_BYTES} bytes")
        if _PREFIX in text:
            yield from (line for line in text[:end].split(b"\n") if line.startswith(_PREFIX))
    if rest.startswith(_PREFIX):
        yield rest


def _number(text: bytes, line: bytes) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= _LATEST_SECONDS:
        raise NotKubeProxyMetricsError(f"not a time or a count: {line[:120].decode(errors='replace')!r}")
    return value


def _synced(synced: dict[bytes, int], queued: dict[bytes, int]) -> int | None:
    behind = [at_ns for labels, at_ns in synced.items() if queued.get(labels, at_ns) > at_ns]
    return min(behind) if behind else max(synced.values(), default=None)
