"""Moments of the kernel side as time since the epoch; they are stamped with CLOCK_BOOTTIME.

That clock goes on while the machine is suspended, unlike CLOCK_MONOTONIC.
"""

import time

STEP_NS = 1_000_000
"""A difference that is no inaccuracy of reading two clocks: somebody has set the time."""


def boot_time_ns() -> int:
    """CLOCK_BOOTTIME, as bpf_ktime_get_boot_ns() reads it (Linux 5.8)."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class WallClock:
    """What to add to CLOCK_BOOTTIME: the same number until the time is set, so that a moment stays."""

    def __init__(self) -> None:
        self._offset = _measured_offset()

    def offset_ns(self) -> int:
        """Nanoseconds from CLOCK_BOOTTIME to the time since the epoch."""
        measured = _measured_offset()
        if abs(measured - self._offset) > STEP_NS:
            self._offset = measured
        return self._offset


def _measured_offset() -> int:
    before = boot_time_ns()
    wall = time.time_ns()
    after = boot_time_ns()
    return wall - (before + after) // 2
