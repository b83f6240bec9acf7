"""The kernel side's clock as the time since the epoch: steady until somebody sets the time."""

import time

import pytest

from agent.kernel.clock import STEP_NS, WallClock, boot_time_ns


def test_the_offset_leads_from_boot_time_to_the_time_since_the_epoch() -> None:
    clock = WallClock()
    before = time.time_ns()
    now = boot_time_ns() + clock.offset_ns()
    assert before - STEP_NS <= now <= time.time_ns() + STEP_NS


def test_the_offset_stays_the_same_while_nobody_sets_the_time() -> None:
    clock = WallClock()
    assert len({clock.offset_ns() for _ in range(1000)}) == 1


def test_the_offset_follows_when_the_time_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = WallClock()
    before, real = clock.offset_ns(), time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 3_600_000_000_000)
    assert clock.offset_ns() - before == pytest.approx(3_600_000_000_000, abs=STEP_NS)
