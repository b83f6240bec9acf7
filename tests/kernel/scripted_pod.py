"""A real pod with a scripted server, its client, and what the kernel side has counted of it."""

import secrets
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from agent.core.kinds import Kind
from agent.core.orders import SetPodFacts
from agent.core.phases import Fact, Phase
from agent.core.records import Record
from agent.core.tally import Tally, tally_by_namespace
from agent.kernel.kernel_side import KernelSide
from agent.kernel.namespaces import view_namespace
from agent.lab.node.client_namespace import ClientNamespace
from agent.lab.node.node import Node
from agent.lab.node.pod import Container, Pod
from tests.kernel.scripted_server import PORT

SCRIPT = Path(__file__).with_name("scripted_server.py")
SETTLE_SECONDS = 0.05
"""Resets and records are delivered within this."""
TCP_LISTEN = "0A"
"""The state in /proc/net/tcp."""
REQUEST = b"GET / HTTP/1.1\r\nHost: pod\r\n\r\n"

Result = TypeVar("Result")


class ScriptedPod:
    """One pod; commands go to its server, connections come from a client namespace."""

    def __init__(self, kernel: KernelSide, pod: Pod, container: Container, control: socket.socket) -> None:
        self.kernel = kernel
        self.pod = pod
        self.container = container
        self._control = control
        self._answers = control.makefile()
        view = view_namespace(pod.pause_pid)
        assert view is not None
        self.netns = view.cookie

    def tell(self, command: str) -> None:
        """Have the server do something, and wait until it has."""
        self._control.sendall(f"{command}\n".encode())
        if command != "exit":
            assert self._answers.readline() == "ok\n"

    def delete(self, facts: Fact = Fact.DELETED) -> None:
        """As the tracker does when the API says that the pod is deleted."""
        self.kernel.carry_out([SetPodFacts(self.netns, facts)])

    def tally(self) -> Tally:
        """What has been counted of this pod."""
        time.sleep(SETTLE_SECONDS)
        counts = self.kernel.read_counts().counts
        return tally_by_namespace(counts.items()).get(self.netns, Tally())

    def dropped(self) -> Counter[tuple[Kind, Phase]]:
        """The drops alone."""
        return self.tally().dropped

    def resets_sent(self) -> int:
        """How many resets the pod's network has sent (OutRsts of /proc/net/snmp, both IP versions)."""
        lines = Path(f"/proc/{self.pod.pause_pid}/net/snmp").read_text().splitlines()
        names, values = (line.split() for line in lines if line.startswith("Tcp:"))
        return int(values[names.index("OutRsts")])

    def wait_queued(self, count: int) -> None:
        """Until so many connections wait to be accepted (the receive queue of the IPv4 listener)."""
        deadline = time.monotonic() + 5
        while self._queued() != count:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def _queued(self) -> int:
        lines = Path(f"/proc/{self.pod.pause_pid}/net/tcp").read_text().splitlines()[1:]
        queues = [fields[4] for line in lines if (fields := line.split())[3] == TCP_LISTEN]
        return sum(int(queue.partition(":")[2], 16) for queue in queues)

    def kill(self) -> None:
        """As the runtime does at the end of the grace period; returns when the container has ended."""
        self.container.kill()
        assert self.container.wait(5) is not None

    def close(self) -> None:
        self._answers.close()
        self._control.close()


def in_namespace(path: Path, work: Callable[[], Result]) -> Result:
    """Run on a thread that has entered the namespace; a socket made there stays of that namespace."""
    import ctypes
    import os

    results: list[Result] = []

    def enter() -> None:
        namespace = os.open(path, os.O_RDONLY)
        assert ctypes.CDLL(None).setns(namespace, 0x40000000) == 0
        os.close(namespace)
        results.append(work())

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    return results[0]


class Client:
    """Connections from a client namespace to one address of the pod."""

    def __init__(self, namespace: ClientNamespace, address: str) -> None:
        self._path = namespace.path
        self._family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._address = address
        self.sockets: list[socket.socket] = []

    def new_socket(self) -> socket.socket:
        """One that is not connected yet."""
        made = in_namespace(self._path, lambda: socket.socket(self._family, socket.SOCK_STREAM))
        made.settimeout(2)
        self.sockets.append(made)
        return made

    def connect(self, count: int = 1, port: int = PORT) -> list[socket.socket]:
        """Connections that succeed."""
        made = [self.new_socket() for _ in range(count)]
        for each in made:
            each.connect((self._address, port))
        return made

    def refused(self, count: int, port: int = PORT) -> int:
        """How many of so many attempts were refused."""
        refused = 0
        for _ in range(count):
            try:
                self.new_socket().connect((self._address, port))
            except ConnectionRefusedError:
                refused += 1
        return refused

    def unanswered(self, count: int, seconds: float) -> int:
        """How many of so many attempts at once had neither succeeded nor been refused after a time."""
        attempts = [self.new_socket() for _ in range(count)]
        for attempt in attempts:
            attempt.setblocking(False)
            attempt.connect_ex((self._address, PORT))
        time.sleep(seconds)
        return sum(not _connected(attempt) for attempt in attempts)

    def close(self) -> None:
        for each in self.sockets:
            each.close()


def _connected(attempt: socket.socket) -> bool:
    try:
        attempt.getpeername()
    except OSError:
        return False
    return True


@contextmanager
def scripted_pod(
    kernel: KernelSide, node: Node, host: str = "0.0.0.0", backlog: int = 16, *, listening: bool = True
) -> Iterator[ScriptedPod]:
    """A pod whose server listens; removed at the end."""
    pod = node.start_pod("scripted")
    try:
        with scripted_container(kernel, node, pod, host, backlog) as scripted:
            if listening:
                scripted.tell("open_listener")
            yield scripted
    finally:
        pod.remove()


@contextmanager
def scripted_container(
    kernel: KernelSide,
    node: Node,
    pod: Pod,
    host: str = "0.0.0.0",
    backlog: int = 16,
    *,
    share_process_namespace: bool = False,
) -> Iterator[ScriptedPod]:
    """One more container of a pod, with a server that does not listen yet."""
    control_path = node.directory / f"control-{secrets.token_hex(4)}"
    container = pod.start_container(
        [sys.executable, "-S", str(SCRIPT), str(control_path), host, str(backlog)],
        share_process_namespace=share_process_namespace,
    )
    scripted = ScriptedPod(kernel, pod, container, _connect(control_path))
    try:
        yield scripted
    finally:
        scripted.close()


def _connect(path: Path) -> socket.socket:
    deadline = time.monotonic() + 5
    while True:
        control = socket.socket(socket.AF_UNIX)
        try:
            control.connect(str(path))
        except OSError:
            control.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            control.settimeout(5)
            return control


@contextmanager
def client_of(namespace: ClientNamespace, address: str | None) -> Iterator[Client]:
    """A client whose sockets are closed at the end."""
    assert address is not None
    client = Client(namespace, address)
    try:
        yield client
    finally:
        client.close()


def discard(record: Record) -> None:
    """For tests that need no records."""
