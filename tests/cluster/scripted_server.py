"""An HTTP server on loopback that answers as a test says, byte for byte."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Answer = Callable[[bytes], Iterator[bytes]]
"""Request head -> the pieces of the answer, status line included; the connection is closed after the last."""


@dataclass(slots=True)
class ScriptedServer:
    """`answer` may be replaced at any time; `requests` are the heads received so far."""

    answer: Answer
    port: int
    requests: list[bytes] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The server's URL."""
        return f"http://127.0.0.1:{self.port}"


@contextlib.contextmanager
def scripted(answer: Answer, tls: ssl.SSLContext | None = None) -> Iterator[ScriptedServer]:
    """A server for the time of a `with` block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = ScriptedServer(answer, listener.getsockname()[1])
        threading.Thread(target=_serve, args=(listener, server, tls), daemon=True).start()
        yield server
        listener.shutdown(socket.SHUT_RDWR)


def _serve(listener: socket.socket, server: ScriptedServer, tls: ssl.SSLContext | None) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_answer, args=(connection, server, tls), daemon=True).start()


def _answer(connection: socket.socket, server: ScriptedServer, tls: ssl.SSLContext | None) -> None:
    with (
        contextlib.suppress(OSError),
        connection if tls is None else tls.wrap_socket(connection, True) as connection,
    ):
        head = b""
        while b"\r\n\r\n" not in head and (piece := connection.recv(65536)):
            head += piece
        if head:
            server.requests.append(head)
            for piece in server.answer(head):
                connection.sendall(piece)


def ok(body: bytes) -> bytes:
    """A whole answer with a length."""
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"


def chunk(content: bytes) -> bytes:
    """One piece of a chunked body; the empty one ends it."""
    return b"%x\r\n%s\r\n" % (len(content), content)
