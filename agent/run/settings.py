"""What `agent run` is told, by flag or by environment."""

import math
from dataclasses import dataclass
from pathlib import Path

SMALLEST_RECORD_MB = 1
LARGEST_RECORD_MB = 1_000_000
LONGEST_RETENTION_SECONDS = 365 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Without `kubeconfig`, the pod's service account. Series of gone pods stay `retention_seconds`.

    An empty `listen_host` is every address of the node, IPv4 and IPv6.

    With `record`, what the agent takes in is written there and to a second file, within `record_limit_bytes`.
    """

    node_name: str
    kubeconfig: Path | None
    listen_host: str
    listen_port: int
    kube_proxy_metrics: str
    cache: Path
    retention_seconds: float
    record: Path | None = None
    record_limit_bytes: int = 0


def parse_listen(text: str) -> tuple[str, int]:
    """`host:port`, `[v6]:port`, or `:port` for every address, where the host is empty. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(
            f"not an address to listen on: {text!r}; write host:port or :port, for example :9435"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def parse_retention(text: str) -> float:
    """Seconds, from 0 to a year. Raises ValueError that says so."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= LONGEST_RETENTION_SECONDS:
        raise ValueError(f"not a time to keep series: --retention {text!r}; write seconds, for example 600")
    return seconds


def parse_record_limit(text: str) -> int:
    """Megabytes as bytes. Raises ValueError that says what is possible."""
    megabytes = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if not SMALLEST_RECORD_MB <= megabytes <= LARGEST_RECORD_MB:
        raise ValueError(f"not a size: --record-limit {text!r}; write megabytes, for example 64")
    return megabytes * 1_000_000
