"""Nanoseconds for each run of a BPF program under a load of connections to a pod."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.kernel.kernel_side import KernelSide
from agent.lab.node.client_namespace import ClientNamespace
from agent.lab.node.node import Node
from agent.lab.node.pod import Pod
from agent.lab.node.server import ServerSettings, server_argv

STATISTICS = Path("/proc/sys/kernel/bpf_stats_enabled")
PORT = 8080
REFUSED_PORT = 8081
LOAD = """
import socket, sys
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for _ in range(count):
    attempt = socket.socket()
    if attempt.connect_ex((host, port)) == 0:
        attempt.sendall(b"GET / HTTP/1.1\\r\\nHost: pod\\r\\nConnection: close\\r\\n\\r\\n")
        while attempt.recv(4096):
            pass
    attempt.close()
"""


@dataclass(frozen=True)
class Cost:
    """One program under one load."""

    program: str
    runs: int
    nanoseconds_per_run: float


@contextlib.contextmanager
def statistics_on() -> Iterator[None]:
    """kernel.bpf_stats_enabled = 1, and as it was afterwards."""
    before = STATISTICS.read_text()
    STATISTICS.write_text("1")
    try:
        yield
    finally:
        STATISTICS.write_text(before)


@contextlib.contextmanager
def served_pod(node: Node) -> Iterator[Pod]:
    """A pod with a listener on PORT and none on REFUSED_PORT."""
    pod = node.start_pod("bench")
    try:
        pod.start_container(server_argv(ServerSettings(port=PORT)))
        yield pod
    finally:
        pod.remove()


def load(namespace: ClientNamespace, pod: Pod, port: int, count: int) -> None:
    """So many connections, one after the other."""
    command = ["ip", "netns", "exec", namespace.path.name, sys.executable, "-S", "-c", LOAD]
    subprocess.run([*command, pod.addresses.v4, str(port), str(count)], check=True)


def costs(kernel: KernelSide, before: dict[str, tuple[int, int]]) -> list[Cost]:
    """What each program has cost since `before`."""
    found = []
    for program, (nanoseconds, runs) in kernel.program_runs().items():
        spent, counted = nanoseconds - before[program][0], runs - before[program][1]
        if counted:
            found.append(Cost(program, counted, spent / counted))
    return found
