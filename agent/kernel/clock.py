"""The kernel stamps with CLOCK_MONOTONIC; records carry the time since the epoch."""

import time


def wall_clock_offset() -> int:
    """Nanoseconds to add to CLOCK_MONOTONIC for the time since the epoch, as things stand now."""
    before = time.monotonic_ns()
    wall = time.time_ns()
    after = time.monotonic_ns()
    return wall - (before + after) // 2
