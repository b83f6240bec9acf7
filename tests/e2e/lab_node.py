"""What the tests of the lab's node share: a served pod, and a client in the host's namespace."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent.lab.node.network import Addresses
from agent.lab.node.node import Node
from agent.lab.node.pod import Container, Pod
from agent.lab.node.server import ServerSettings, server_argv, shell_wrapped

PORT = 8080
START_TIMEOUT_S = 5.0
CLIENT_TIMEOUT_S = 3.0


@dataclass(frozen=True)
class Served:
    """A pod with one container that runs the lab's server."""

    pod: Pod
    container: Container
    resets_before: int

    @property
    def addresses(self) -> Addresses:
        return self.pod.addresses

    def resets_sent(self) -> int:
        """Segments with RST that the pod has sent since its server first answered."""
        return _resets(self.pod) - self.resets_before


def _resets(pod: Pod) -> int:
    """OutRsts of the pod's network namespace (RFC 4022)."""
    lines = Path(f"/proc/{pod.pause_pid}/net/snmp").read_text().splitlines()
    names, values = (line.split() for line in lines if line.startswith("Tcp:"))
    return int(dict(zip(names, values, strict=True))["OutRsts"])


class Client:
    """One HTTP connection to a pod's server from the host."""

    def __init__(self, address: str, timeout_s: float = CLIENT_TIMEOUT_S) -> None:
        self._socket = socket.create_connection((address, PORT), timeout_s)
        self.port: int = self._socket.getsockname()[1]

    def send(self, target: str = "/", *, close: bool = False) -> None:
        connection = "close" if close else "keep-alive"
        self._socket.sendall(
            f"GET {target} HTTP/1.1\r\nHost: pod\r\nConnection: {connection}\r\n\r\n".encode()
        )

    def receive(self) -> str:
        """One response, or what came of it before EOF. Raises ConnectionResetError, TimeoutError."""
        received = b""
        while b"\r\n\r\n" not in received or not received.endswith(b"\n"):
            data = self._socket.recv(65536)
            if not data:
                break
            received += data
        return received.decode()

    def ask(self, target: str = "/") -> str:
        self.send(target)
        return self.receive()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


@contextmanager
def serving(
    node: Node, settings: ServerSettings | None = None, *, name: str = "web", behind_shell: bool = False
) -> Iterator[Served]:
    """A pod whose server answers; removed at the end."""
    settings = settings or ServerSettings()
    argv = server_argv(settings)
    pod = node.start_pod(name)
    try:
        container = pod.start_container(shell_wrapped(argv) if behind_shell else argv, {"POD_NAME": name})
        if not settings.bind_after_s:
            _await_listener(pod.addresses.v4)
        yield Served(pod, container, _resets(pod))
    finally:
        pod.remove()


def _await_listener(address: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            socket.create_connection((address, PORT), 1.0).close()
            return
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
