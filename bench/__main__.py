"""Prints what the agent costs on this machine."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from agent.core.kinds import Kind
from agent.kernel.errors import KernelSideError
from agent.kernel.kernel_side import KernelSide
from agent.lab.errors import LabError
from agent.lab.node.errors import NodeError
from agent.lab.node.network import Cni
from agent.lab.node.node import Node
from bench.agent_start import start_agent
from bench.connections import CLOSED_PORT, SERVED_PORT, Target, served_pod
from bench.empty_program import EmptyPrograms
from bench.program_cost import Cost, costs_under
from bench.tcpdump_count import refused_beside_tcpdump

REFUSED = 100_000
ANSWERED = 3_000
STARTED = 3_000
PODS = 250


def main() -> None:
    """Every measurement, one after the other."""
    if len(sys.argv) > 1:
        raise SystemExit("usage: python -m bench")
    if os.geteuid() != 0:
        raise SystemExit("python -m bench must be root to load BPF programs: run it with sudo")
    try:
        with tempfile.TemporaryDirectory() as directory:
            cache = Path(directory) / "cache"
            os.environ["LASTCALL_CACHE_DIR"] = str(cache)
            _starts(Path(directory))
            _connections(cache)
    except (KernelSideError, LabError, NodeError) as error:
        raise SystemExit(f"python -m bench: {error}") from None


def _starts(directory: Path) -> None:
    for title, pods in (
        ("no headers made yet, no pods", 0),
        ("headers at hand, no pods", 0),
        (f"headers at hand, {PODS} pods", PODS),
    ):
        start = start_agent(pods, directory)
        print(
            f"agent run, {title:<30} ready after {start.ready_seconds:5.2f} s,"
            f" resident {start.resident_megabytes:5.1f} MB"
        )


def _connections(cache: Path) -> None:
    with Node.start(Cni.BRIDGE) as node, served_pod(node) as target:
        time.sleep(0.5)
        before = target.connect(CLOSED_PORT, REFUSED)
        kernel = KernelSide(cache, lambda _record: None)
        kernel.start()
        try:
            target.listen_and_close()
            attached = target.connect(CLOSED_PORT, REFUSED)
            counted = _refused_counted(kernel)
            _program_costs(kernel, target, cache)
        finally:
            kernel.stop()
        after = target.connect(CLOSED_PORT, REFUSED)
        beside_tcpdump = refused_beside_tcpdump(target, REFUSED)
    without = (before + after) / 2
    print(f"refused a second without Lastcall, with, without: {before:.0f} {attached:.0f} {after:.0f}")
    print(f"with Lastcall / without: {attached / without:.2f}; counted {counted} of {REFUSED}")
    if beside_tcpdump is not None:
        rate, captured = beside_tcpdump
        print(f"with tcpdump / without: {rate / without:.2f}; captured {captured} of {REFUSED}")


def _refused_counted(kernel: KernelSide) -> int:
    counts = kernel.read_counts().counts.items()
    return sum(
        count.connections for key, count in counts if key.kind is Kind.REFUSED and key.port == CLOSED_PORT
    )


def _program_costs(kernel: KernelSide, target: Target, cache: Path) -> None:
    empty = EmptyPrograms((status.hook.name for status in kernel.statuses if status.attached), cache)
    try:
        for title, count, work in (
            ("connections, refused", REFUSED, lambda: target.connect(CLOSED_PORT, REFUSED)),
            ("connections, answered", ANSWERED, lambda: target.connect(SERVED_PORT, ANSWERED)),
            ("processes outside of pods", STARTED, _start_processes),
        ):
            print(f"{count} {title}:")
            for cost in costs_under(work, kernel, empty):
                # A program that ran a few times beside the load says nothing about the load.
                if cost.runs > count / 100:
                    print(_line(cost, count))
    finally:
        empty.close()


def _start_processes() -> None:
    loop = f"number=0; while [ $number -lt {STARTED} ]; do /bin/true; number=$((number + 1)); done"
    subprocess.run(["sh", "-c", loop], check=True)


def _line(cost: Cost, count: int) -> str:
    return (
        f"  {cost.program:<16} {cost.nanoseconds:5.0f} ns a run,"
        f" an empty program {cost.empty_nanoseconds:4.0f} ns,"
        f" ratio {cost.nanoseconds / cost.empty_nanoseconds:4.1f},"
        f" {cost.runs / count:5.2f} runs each"
    )


if __name__ == "__main__":
    main()
