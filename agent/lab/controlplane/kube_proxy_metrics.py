"""What kube-proxy's metrics endpoint shows of its syncs, in its own words (as recorded in nftables mode)."""

import threading
from dataclasses import dataclass, field
from decimal import Decimal

_FAMILIES = ("IPv4", "IPv6")

_PENDING = "kubeproxy_sync_proxy_rules_endpoint_changes_pending"
_TOTAL = "kubeproxy_sync_proxy_rules_endpoint_changes_total"
_QUEUED = "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds"
_SYNCED = "kubeproxy_sync_proxy_rules_last_timestamp_seconds"


@dataclass(slots=True)
class SyncRecord:
    """kube-proxy's account of its syncs; times in seconds since the epoch. Safe to use from any thread."""

    started: float
    _pending: int = 0
    _total: int = 0
    _queued: float = 0.0
    _synced: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._queued = self._synced = self.started

    def queue(self, now: float) -> None:
        """An endpoint change waits to be applied."""
        with self._lock:
            self._pending += 1
            self._total += 1
            self._queued = now

    def sync(self, now: float) -> None:
        """The oldest waiting change has been applied."""
        with self._lock:
            self._pending -= 1
            self._synced = now

    def text(self) -> str:
        """The metrics page."""
        with self._lock:
            queued, synced = _go_float(self._queued), _go_float(self._synced)
            pending, total = self._pending, self._total
        started = _go_float(self.started)
        page = [
            f"# HELP {_PENDING} [ALPHA] Pending proxy rules Endpoint changes",
            f"# TYPE {_PENDING} gauge",
            f"{_PENDING} {pending}",
            f"# HELP {_TOTAL} [ALPHA] Cumulative proxy rules Endpoint changes",
            f"# TYPE {_TOTAL} counter",
            f"{_TOTAL} {total}",
            f"# HELP {_QUEUED} [ALPHA] The last time a sync of proxy rules was queued",
            f"# TYPE {_QUEUED} gauge",
            f'{_QUEUED}{{ip_family="{_FAMILIES[0]}"}} {queued}',
            f'{_QUEUED}{{ip_family="{_FAMILIES[1]}"}} {started}',
            f"# HELP {_SYNCED} [ALPHA] The last time proxy rules were successfully synced",
            f"# TYPE {_SYNCED} gauge",
            f'{_SYNCED}{{ip_family="{_FAMILIES[0]}"}} {synced}',
            f'{_SYNCED}{{ip_family="{_FAMILIES[1]}"}} {started}',
        ]
        return "\n".join(page) + "\n"


def _go_float(value: float) -> str:
    """A number as Go's shortest %g prints it: 1.7960013414824836e+09."""
    digits = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(digits.exponent, int)
    mantissa = "".join(str(digit) for digit in digits.digits)
    exponent = len(mantissa) - 1 + digits.exponent
    fraction = f".{mantissa[1:]}" if len(mantissa) > 1 else ""
    return f"{mantissa[0]}{fraction}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
