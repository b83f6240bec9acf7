"""Prints what the agent costs on this machine."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from agent.kernel.btf_headers import DEFAULT_CACHE
from agent.kernel.kernel_side import KernelSide
from agent.lab.node.client_namespace import ClientNamespace
from agent.lab.node.network import Cni
from agent.lab.node.node import Node
from agent.lab.node.pod import Pod
from bench.empty_program import EmptyProgram
from bench.program_cost import PORT, REFUSED_PORT, costs, load, served_pod, statistics_on

REFUSED = 100_000
ANSWERED = 3_000
ATTACH = """
import sys
from pathlib import Path
from agent.kernel.kernel_side import KernelSide
KernelSide(Path(sys.argv[1]), print)
"""


def main() -> None:
    """Every measurement, one after the other."""
    if len(sys.argv) > 1:
        raise SystemExit("usage: python -m bench")
    with tempfile.TemporaryDirectory() as cold:
        print(f"hooks attached, cold header cache   {_seconds_to_attach(Path(cold) / 'cache'):6.2f} s")
    print(f"hooks attached, warm header cache   {_seconds_to_attach(DEFAULT_CACHE):6.2f} s")
    with Node.start(Cni.BRIDGE) as node, served_pod(node) as pod:
        namespace = node.client_namespace("bench")
        time.sleep(0.5)
        without = _refused_per_second(namespace, pod)
        kernel = KernelSide(DEFAULT_CACHE, lambda _record: None)
        kernel.start()
        try:
            attached = _refused_per_second(namespace, pod)
            print(f"refused connections, Lastcall attached / not attached   {attached / without:6.2f}")
            _program_costs(kernel, namespace, pod)
        finally:
            kernel.stop()


def _seconds_to_attach(cache: Path) -> float:
    """From the start of a process to all hooks attached."""
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", ATTACH, str(cache)], check=True)
    return time.monotonic() - started


def _refused_per_second(namespace: ClientNamespace, pod: Pod) -> float:
    started = time.monotonic()
    load(namespace, pod, REFUSED_PORT, REFUSED)
    return REFUSED / (time.monotonic() - started)


def _program_costs(kernel: KernelSide, namespace: ClientNamespace, pod: Pod) -> None:
    empty = EmptyProgram("kfree_skb")
    for name, port, count in (("refused", REFUSED_PORT, REFUSED), ("answered", PORT, ANSWERED)):
        with statistics_on():
            before, empty_before = kernel.program_runs(), empty.runs()
            load(namespace, pod, port, count)
            spent, runs = (after - earlier for after, earlier in zip(empty.runs(), empty_before, strict=True))
            found = costs(kernel, before)
        base = spent / runs
        print(f"{count} connections, {name}: an empty program on kfree_skb takes {base:.0f} ns")
        for cost in sorted(found, key=lambda cost: -cost.runs):
            ratio = cost.nanoseconds_per_run / base
            runs_each = cost.runs / count
            print(
                f"  {cost.program:<16} {cost.nanoseconds_per_run:5.0f} ns = {ratio:4.1f} x empty,"
                f" {runs_each:5.2f} runs a connection"
            )


if __name__ == "__main__":
    main()
