"""Times as API objects carry them."""

from datetime import UTC, datetime


def api_time(unix_seconds: float) -> str:
    """RFC 3339 with whole seconds, cut off and not rounded, as metav1.Time is serialised."""
    return datetime.fromtimestamp(int(unix_seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
