"""The workload of the lab's pods: a small HTTP/1.1 server whose ways to stop are those of the field.

It is run by file name, as PID 1 of its container, with its settings as JSON in argv[1]; it imports nothing
of this package. Paths: `/` (any), `/slow?ms=N`, `/healthz`, `/readyz`, `/wedge` (health checks hang from
then on) and `/wedge?what=process` (the whole process hangs).
"""

import heapq
import itertools
import json
import os
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from typing import Any

READ_BYTES = 1 << 18
FIRST_REQUEST_S = 5.0
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class OnStop(StrEnum):
    """What the server does when its stop signal comes."""

    DRAIN = "drain"
    """Close the listener, finish what is in flight, close idle connections, exit.

    The listener stays open for `keep_accepting_s`, idle connections for `close_idle_after_s`, the process for
    `exit_after_s` after the last connection; every answer says `Connection: close`.
    """

    EXIT = "exit"
    """Exit at once, whatever is in flight."""

    SLEEP = "sleep"
    """Close the listener, read requests, answer none, exit after `exit_after_s`: sleep instead of drain."""

    STALL = "stall"
    """Keep the listener and the connections, read nothing more, exit after `exit_after_s`."""

    HOLD = "hold"
    """Accept nothing more but keep the listener open for `exit_after_s`, then close it and drain."""

    ABORT = "abort"
    """Close every connection with SO_LINGER 0 and exit."""

    IGNORE = "ignore"
    """Install no handler, which PID 1 of a container survives."""


@dataclass(frozen=True)
class ServerSettings:
    """How the server behaves. `host` "::" serves IPv4 too, "0.0.0.0" only IPv4.

    `answer_after_ms` is how long each request is worked on. `idle_timeout_s` closes kept-alive connections
    that idle (None: never). `accept` False listens and never accepts. `connection_log` names a file that
    gets one JSON line per accepted connection: `{"accepted_ns", "peer", "peer_port"}`.
    """

    port: int = 8080
    host: str = "::"
    backlog: int = 511
    on_stop: OnStop = OnStop.DRAIN
    stop_signals: tuple[int, ...] = (signal.SIGTERM,)
    keep_accepting_s: float = 0.0
    close_idle_after_s: float = 0.0
    exit_after_s: float = 0.0
    exit_code: int = 0
    bind_after_s: float = 0.0
    answer_after_ms: float = 0.0
    idle_timeout_s: float | None = None
    keep_alive: bool = True
    accept: bool = True
    connection_log: str | None = None


def server_argv(settings: ServerSettings) -> list[str]:
    """The command that runs this server."""
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), json.dumps(asdict(settings))]


def shell_wrapped(argv: list[str]) -> list[str]:
    """The same command behind a shell as PID 1, which neither handles the stop signal nor forwards it."""
    return ["/bin/sh", "-c", '"$@"; exit $?', "sh", *argv]


class Connection:
    """One accepted connection. `busy` is true from a complete request until its answer is sent."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.buffer = b""
        self.busy = False
        self.served = 0
        self.idle_timer: Timer | None = None


class Timer:
    def __init__(self, action: Callable[[], None]) -> None:
        self.action = action
        self.cancelled = False


class Server:
    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.pod = os.environ.get("POD_NAME", "")
        self.selector = selectors.DefaultSelector()
        self.listener: socket.socket | None = None
        self.connections: set[Connection] = set()
        self.timers: list[tuple[float, int, Timer]] = []
        self.timer_numbers = itertools.count()
        self.stopping = False
        self.answers = True
        self.reads = True
        self.ends_when_empty = False
        self.healthy = True
        self.stop_wanted = False
        self.accepting = False
        self.log = -1
        if settings.connection_log:
            self.log = os.open(settings.connection_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.wakeup, wake = socket.socketpair()
        self.wakeup.setblocking(False)
        wake.setblocking(False)
        self.wake = wake
        self.selector.register(self.wakeup, selectors.EVENT_READ, self.on_wakeup)

    def run(self) -> None:
        if self.settings.on_stop is not OnStop.IGNORE:
            signal.set_wakeup_fd(self.wake.fileno(), warn_on_full_buffer=False)
            for number in self.settings.stop_signals:
                signal.signal(number, self.on_signal)
        if self.settings.bind_after_s:
            self.after(self.settings.bind_after_s, self.listen)
        else:
            self.listen()
        while True:
            timeout = max(0.0, self.timers[0][0] - time.monotonic()) if self.timers else None
            for key, _ in self.selector.select(timeout):
                key.data()
            self.fire_timers()

    def after(self, seconds: float, action: Callable[[], None]) -> Timer:
        timer = Timer(action)
        heapq.heappush(self.timers, (time.monotonic() + seconds, next(self.timer_numbers), timer))
        return timer

    def fire_timers(self) -> None:
        while self.timers and self.timers[0][0] <= time.monotonic():
            timer = heapq.heappop(self.timers)[2]
            if not timer.cancelled:
                timer.action()

    def on_signal(self, number: int, frame: object) -> None:
        if self.settings.on_stop is OnStop.EXIT and not self.accepting:
            self.exit()
        self.stop_wanted = True

    def on_wakeup(self) -> None:
        self.wakeup.recv(64)
        if self.stop_wanted and not self.stopping:
            self.stopping = True
            self.stop()

    def listen(self) -> None:
        if self.stopping:
            return
        family = socket.AF_INET6 if ":" in self.settings.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.setblocking(False)
        listener.bind((self.settings.host, self.settings.port))
        listener.listen(self.settings.backlog)
        self.listener = listener
        if self.settings.accept:
            self.selector.register(listener, selectors.EVENT_READ, self.accept)

    def accept(self) -> None:
        """Take what waits; a stop signal counts before or after, so that the connection log is complete."""
        self.accepting = True
        self.accept_waiting()
        self.accepting = False
        if self.stop_wanted and self.settings.on_stop is OnStop.EXIT:
            self.exit()

    def accept_waiting(self) -> None:
        while self.listener is not None:
            try:
                sock, peer = self.listener.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue
            if self.log >= 0:
                line = {
                    "accepted_ns": time.time_ns(),
                    "peer": peer[0].removeprefix("::ffff:"),
                    "peer_port": peer[1],
                }
                os.write(self.log, (json.dumps(line) + "\n").encode())
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(sock)
            self.connections.add(connection)
            if self.reads:
                self.selector.register(sock, selectors.EVENT_READ, partial(self.read, connection))

    def read(self, connection: Connection) -> None:
        try:
            data = connection.sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self.close(connection)
            return
        if not data:
            self.close(connection)
            return
        connection.buffer += data
        if not connection.busy:
            self.take_request(connection)

    def take_request(self, connection: Connection) -> None:
        head, separator, rest = connection.buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        request_line, *header_lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (h.partition(":") for h in header_lines)
        }
        length = int(headers.get("content-length", "0"))
        if len(rest) < length:
            return
        connection.buffer = rest[length:]
        connection.busy = True
        if connection.idle_timer:
            connection.idle_timer.cancelled = True
        if self.answers:
            target = request_line.split(" ")[1]
            self.handle(connection, target, close=headers.get("connection", "").lower() == "close")

    def handle(self, connection: Connection, target: str, *, close: bool) -> None:
        path, _, query = target.partition("?")
        arguments = dict(pair.partition("=")[::2] for pair in query.split("&"))
        delay_ms = self.settings.answer_after_ms
        status = "200 OK"
        if path == "/slow":
            delay_ms = float(arguments["ms"])
        elif path == "/healthz":
            delay_ms = 0.0
            if not self.healthy:
                return
        elif path == "/readyz":
            delay_ms = 0.0
            if self.stopping:
                status = "503 Service Unavailable"
        elif path == "/wedge":
            self.healthy = False
            if arguments.get("what") == "process":
                self.answer(connection, status, close=close)
                while True:
                    time.sleep(3600)
        if delay_ms:
            self.after(delay_ms / 1000, partial(self.answer, connection, status, close=close))
        else:
            self.answer(connection, status, close=close)

    def answer(self, connection: Connection, status: str, *, close: bool) -> None:
        if connection not in self.connections or not self.answers:
            return
        close = close or self.stopping or not self.settings.keep_alive
        body = f"{self.pod}\n"
        response = (
            f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
            f"X-Pod: {self.pod}\r\nConnection: {'close' if close else 'keep-alive'}\r\n\r\n{body}"
        )
        try:
            connection.sock.sendall(response.encode())
        except OSError:
            close = True
        connection.busy = False
        connection.served += 1
        if close:
            self.close(connection)
            return
        if self.settings.idle_timeout_s is not None:
            connection.idle_timer = self.after(
                self.settings.idle_timeout_s, partial(self.close_if_idle, connection)
            )
        self.take_request(connection)

    def close_if_idle(self, connection: Connection) -> None:
        """Close it unless a request is being worked on or has begun to arrive."""
        if connection not in self.connections or connection.busy or connection.buffer:
            return
        try:
            connection.sock.recv(1, socket.MSG_PEEK)
        except OSError:
            self.close(connection)

    def close(self, connection: Connection) -> None:
        if connection not in self.connections:
            return
        self.connections.discard(connection)
        if self.reads:
            self.selector.unregister(connection.sock)
        connection.sock.close()
        if self.ends_when_empty and not self.connections:
            self.finish()

    def close_listener(self) -> None:
        if self.listener is None:
            return
        if self.settings.accept and self.listener in self.selector.get_map():
            self.accept()
            self.selector.unregister(self.listener)
        self.listener.close()
        self.listener = None

    def stop(self) -> None:
        match self.settings.on_stop:
            case OnStop.DRAIN:
                self.after(self.settings.keep_accepting_s, self.drain)
            case OnStop.SLEEP:
                self.answers = False
                self.close_listener()
                self.after(self.settings.exit_after_s, self.exit)
            case OnStop.STALL:
                for connection in self.connections:
                    self.selector.unregister(connection.sock)
                self.reads = False
                self.after(self.settings.exit_after_s, self.exit)
            case OnStop.HOLD:
                if self.listener is not None and self.settings.accept:
                    self.selector.unregister(self.listener)
                self.after(self.settings.exit_after_s, self.drain)
            case OnStop.ABORT:
                for connection in self.connections:
                    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
                self.exit()

    def drain(self) -> None:
        self.close_listener()
        self.ends_when_empty = True
        if not self.connections:
            self.finish()
        self.after(self.settings.close_idle_after_s, self.close_idle)

    def close_idle(self) -> None:
        """Close what idles; a connection still without a first request gets 5 s, as in Go's net/http."""
        for connection in list(self.connections):
            if connection.served:
                self.close_if_idle(connection)
            else:
                self.after(FIRST_REQUEST_S, partial(self.close_if_idle, connection))

    def finish(self) -> None:
        """Everything is closed: exit, a draining server after what else it has to do."""
        if self.settings.on_stop is OnStop.DRAIN and self.settings.exit_after_s:
            self.after(self.settings.exit_after_s, self.exit)
        else:
            self.exit()

    def exit(self) -> None:
        os._exit(self.settings.exit_code)


def settings_from_json(text: str) -> ServerSettings:
    fields: dict[str, Any] = json.loads(text)
    return ServerSettings(
        **{**fields, "on_stop": OnStop(fields["on_stop"]), "stop_signals": tuple(fields["stop_signals"])}
    )


if __name__ == "__main__":
    Server(settings_from_json(sys.argv[1])).run()
