"""A storm is counted exactly, phases and sources included."""

import json
import subprocess
import sys
import time
from collections import Counter
from ipaddress import IPv4Address

import pytest

from agent.core.kinds import Kind
from agent.core.phases import Phase
from agent.kernel.kernel_side import KernelSide
from agent.lab.node.client_namespace import ClientNamespace
from agent.lab.node.node import Node
from tests.kernel.client_addresses import add_addresses
from tests.kernel.scripted_pod import ScriptedPod, scripted_pod
from tests.kernel.scripted_server import PORT

PROCESSES = 2
ADDRESSES = 8
BEFORE, AROUND, AFTER = 200_000, 100_000, 200_000
"""Connections before the stop signal, while it is sent, and after it."""
STORM_SECONDS = 100
STORM = """
import itertools, json, socket, sys
host, port, count, *sources = sys.argv[1:]
refused = dict.fromkeys(sources, 0)
for source in itertools.islice(itertools.cycle(sources), int(count)):
    attempt = socket.socket()
    attempt.setsockopt(socket.IPPROTO_IP, 24, 1)  # IP_BIND_ADDRESS_NO_PORT
    attempt.bind((source, 0))
    refused[source] += attempt.connect_ex((host, int(port))) == 111
    attempt.close()
print(json.dumps(refused))
"""


@pytest.fixture(scope="module")
def crowd(bridge: Node) -> tuple[ClientNamespace, list[str]]:
    """A client namespace and several addresses that it has."""
    namespace = bridge.client_namespace("crowd")
    return namespace, add_addresses(bridge, namespace, ADDRESSES)


class Storm:
    """Refused connections from several processes at once, each from addresses of its own."""

    def __init__(self, namespace: ClientNamespace, sources: list[str], pod: ScriptedPod, count: int) -> None:
        command = ["ip", "netns", "exec", namespace.path.name, sys.executable, "-S", "-c", STORM]
        target = [pod.pod.addresses.v4, str(PORT), str(count // PROCESSES)]
        self._processes = [
            subprocess.Popen([*command, *target, *sources[at::PROCESSES]], stdout=subprocess.PIPE, text=True)
            for at in range(PROCESSES)
        ]

    def refused(self) -> Counter[str]:
        """What the clients counted, by their address, once all have ended."""
        total: Counter[str] = Counter()
        for process in self._processes:
            total.update(json.loads(process.communicate(timeout=STORM_SECONDS)[0]))
        return total


def await_more(pod: ScriptedPod, count: int) -> None:
    deadline = time.monotonic() + 20
    while pod.dropped().total() <= count:
        assert time.monotonic() < deadline


def test_half_a_million_refusals_are_counted_exactly_with_a_stop_signal_in_the_middle(
    kernel: KernelSide, bridge: Node, crowd: tuple[ClientNamespace, list[str]]
) -> None:
    running, stopped = (Kind.REFUSED, Phase.RUNNING), (Kind.REFUSED, Phase.RESTARTING)
    lost_before = sum(hook.lost for hook in kernel.read_counts().hooks.values())
    with scripted_pod(kernel, bridge) as pod:
        pod.tell("close_listener")
        before = Storm(*crowd, pod, BEFORE).refused()
        assert pod.dropped() == {running: before.total()}

        storm = Storm(*crowd, pod, AROUND)
        await_more(pod, before.total())
        pod.container.stop_signal(15)
        around = storm.refused()
        dropped = pod.dropped()
        assert set(dropped) == {running, stopped}
        assert dropped[running] > before.total()
        assert dropped.total() == (before + around).total()

        after = Storm(*crowd, pod, AFTER).refused()
        assert pod.dropped() - dropped == {stopped: after.total()}

        refused = before + around + after
        assert refused.total() == BEFORE + AROUND + AFTER
        counts = kernel.read_counts()
        sources = {address: n for (netns, address), n in counts.sources.items() if netns == pod.netns}
        assert sources == {IPv4Address(address): count for address, count in refused.items()}
        assert sum(hook.lost for hook in counts.hooks.values()) == lost_before
