"""Connections to a pod, from a client in a namespace of its own."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from agent.lab.node.client_namespace import ClientNamespace
from agent.lab.node.node import Node
from agent.lab.node.pod import Container
from agent.lab.node.server import ServerSettings, server_argv

SERVED_PORT = 8080
CLOSED_PORT = 8081
LISTEN_AND_CLOSE = "import socket, sys; socket.create_server(('', int(sys.argv[1]))).close()"
CONNECT = """
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
class Target:
    """A pod that listens on SERVED_PORT, and the client beside it."""

    container: Container
    pod_netns: str
    address: str
    client: ClientNamespace

    def listen_and_close(self) -> None:
        """Open a listener on CLOSED_PORT and close it, so that refusals there are drops."""
        process = self.container.exec_in([sys.executable, "-S", "-c", LISTEN_AND_CLOSE, str(CLOSED_PORT)])
        if process.wait(10.0) != 0:
            raise SystemExit(f"nothing could listen on port {CLOSED_PORT} of the pod")

    def connect(self, port: int, count: int) -> float:
        """So many connections, one after the other; how many of them a second."""
        client = ["ip", "netns", "exec", self.client.path.name, sys.executable, "-S", "-c", CONNECT]
        started = time.monotonic()
        subprocess.run([*client, self.address, str(port), str(count)], check=True)
        return count / (time.monotonic() - started)


@contextlib.contextmanager
def served_pod(node: Node) -> Iterator[Target]:
    """A pod on the node, removed afterwards."""
    pod = node.start_pod("bench")
    try:
        container = pod.start_container(server_argv(ServerSettings(port=SERVED_PORT)))
        yield Target(container, pod.netns, pod.addresses.v4, node.client_namespace("bench"))
    finally:
        pod.remove()
