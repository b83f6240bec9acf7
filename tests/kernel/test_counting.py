"""A storm is counted exactly, phases included."""

import subprocess
import sys
import time

from agent.core.kinds import Kind
from agent.core.phases import Phase
from agent.kernel.kernel_side import KernelSide
from agent.lab.node.client_namespace import ClientNamespace
from agent.lab.node.node import Node
from tests.kernel.scripted_pod import ScriptedPod, scripted_pod
from tests.kernel.scripted_server import PORT

CONNECTIONS = 500_000
PROCESSES = 2
STORM = """
import socket, sys
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
refused = 0
for _ in range(count):
    attempt = socket.socket()
    refused += attempt.connect_ex((host, port)) == 111
    attempt.close()
print(refused)
"""


def start_storm(namespace: ClientNamespace, pod: ScriptedPod, count: int) -> list[subprocess.Popen[str]]:
    arguments = [pod.pod.addresses.v4, str(PORT), str(count // PROCESSES)]
    command = ["ip", "netns", "exec", namespace.path.name, sys.executable, "-S", "-c", STORM, *arguments]
    return [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)]


def refused_by(storm: list[subprocess.Popen[str]]) -> int:
    return sum(int(process.communicate(timeout=100)[0]) for process in storm)


def test_half_a_million_refusals_are_counted_exactly_with_a_stop_signal_in_the_middle(
    kernel: KernelSide, bridge: Node, outside: ClientNamespace
) -> None:
    with scripted_pod(kernel, bridge) as pod:
        pod.tell("close_listener")
        before = refused_by(start_storm(outside, pod, CONNECTIONS // 2))
        assert pod.dropped() == {(Kind.REFUSED, Phase.RUNNING): before}
        storm = start_storm(outside, pod, CONNECTIONS // 2)
        time.sleep(1)
        pod.container.stop_signal(15)
        after = refused_by(storm)
        counts = kernel.read_counts()
        dropped = pod.dropped()
        assert before + after == CONNECTIONS
        assert dropped.total() == CONNECTIONS
        assert set(dropped) == {(Kind.REFUSED, Phase.RUNNING), (Kind.REFUSED, Phase.RESTARTING)}
        assert dropped[Kind.REFUSED, Phase.RUNNING] > before
        assert all(hook.lost == 0 for hook in counts.hooks.values())
        sources = [count for (netns, _), count in counts.sources.items() if netns == pod.netns]
        assert sources == [CONNECTIONS]
