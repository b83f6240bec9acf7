"""Nanoseconds for each run of a BPF program, beside an empty program on the same tracepoint."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.kernel.kernel_side import KernelSide
from bench.empty_program import EmptyPrograms

STATISTICS = Path("/proc/sys/kernel/bpf_stats_enabled")


@dataclass(frozen=True)
class Cost:
    """One program under one load. `empty_nanoseconds` is a run of the empty program on its tracepoint."""

    program: str
    runs: int
    nanoseconds: float
    empty_nanoseconds: float


@contextlib.contextmanager
def statistics_on() -> Iterator[None]:
    """kernel.bpf_stats_enabled = 1, and as it was afterwards."""
    before = STATISTICS.read_text()
    STATISTICS.write_text("1")
    try:
        yield
    finally:
        STATISTICS.write_text(before)


def costs_under(work: Callable[[], object], kernel: KernelSide, empty: EmptyPrograms) -> list[Cost]:
    """What each program that ran has cost while `work` went on, the busiest first."""
    with statistics_on():
        before, empty_before = kernel.program_runs(), empty.runs()
        work()
        after, empty_after = kernel.program_runs(), empty.runs()
    found = []
    for status in kernel.statuses:
        hook = status.hook
        if hook.program not in after or hook.name not in empty_after:
            continue
        spent, runs = _since(before[hook.program], after[hook.program])
        empty_spent, empty_runs = _since(empty_before[hook.name], empty_after[hook.name])
        if runs and empty_runs:
            found.append(Cost(hook.program, runs, spent / runs, empty_spent / empty_runs))
    return sorted(found, key=lambda cost: -cost.runs)


def _since(before: tuple[int, int], after: tuple[int, int]) -> tuple[int, int]:
    return after[0] - before[0], after[1] - before[1]
