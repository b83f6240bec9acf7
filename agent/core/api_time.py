"""Times as the API writes them."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def nanoseconds(timestamp: str, field: str) -> int:
    """Nanoseconds since the epoch of an RFC 3339 time; the API's have a resolution of 1 s (or 1 us).

    Raises ValueError that names the field.
    """
    try:
        moment = datetime.fromisoformat(timestamp)
    except ValueError:
        raise ValueError(f"{field} is not a time: {timestamp[:60]!r}") from None
    if moment.tzinfo is None:
        raise ValueError(f"{field} has no time zone: {timestamp[:60]!r}")
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000
