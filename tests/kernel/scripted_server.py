"""A server that does, one by one, what a test tells it over a Unix socket. Run as a script, inside a pod.

Arguments: path of the control socket, address to listen on, backlog. Each command is a line, answered `ok`.
"""

import os
import signal
import socket
import struct
import sys

PORT = 8080
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class ScriptedServer:
    """Holds the listeners, the accepted connections, and those that it made itself."""

    def __init__(self, host: str, backlog: int) -> None:
        self.host = host
        self.backlog = backlog
        self.listeners: list[socket.socket] = []
        self.connections: list[socket.socket] = []
        self.requests: list[socket.socket] = []

    def open_listener(self, port: str = str(PORT)) -> None:
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((self.host, int(port)))
        listener.listen(self.backlog)
        self.listeners.append(listener)

    def close_listener(self) -> None:
        self.listeners.pop().close()

    def accept(self, count: str) -> None:
        for _ in range(int(count)):
            connection, _ = self.listeners[0].accept()
            connection.settimeout(2)
            self.connections.append(connection)

    def read(self, count: str = "all") -> None:
        """From the first so many connections."""
        for connection in self.connections[: None if count == "all" else int(count)]:
            connection.recv(1 << 20)

    def answer(self) -> None:
        for connection in self.connections:
            connection.sendall(ANSWER)

    def close(self) -> None:
        while self.connections:
            self.connections.pop().close()

    def half_close(self) -> None:
        for connection in self.connections:
            connection.shutdown(socket.SHUT_WR)

    def abort(self) -> None:
        for connection in self.connections:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def connect(self, host: str, port: str) -> None:
        """As a client: the failure, if any, is the caller's to see elsewhere."""
        with socket.socket(socket.AF_INET) as client:
            client.settimeout(2)
            client.connect_ex((host, int(port)))

    def request(self, host: str, port: str) -> None:
        """As a client that waits for its answer: the connection is kept."""
        client = socket.create_connection((host, int(port)), timeout=2)
        client.sendall(b"GET / HTTP/1.1\r\nHost: other\r\n\r\n")
        self.requests.append(client)

    def kill_self(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    def exit(self) -> None:
        os._exit(0)


def main(control_path: str, host: str, backlog: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGHUP, lambda *_: None)
    signal.signal(signal.SIGQUIT, lambda *_: None)
    server = ScriptedServer(host, int(backlog))
    with socket.socket(socket.AF_UNIX) as control:
        control.bind(control_path)
        control.listen()
        client, _ = control.accept()
        for line in client.makefile():
            name, *arguments = line.split()
            getattr(server, name)(*arguments)
            client.sendall(b"ok\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
