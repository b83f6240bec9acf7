"""A load generator's process: plan as JSON in argv[1], records as JSON lines to the file in argv[2].

The first line says when it started, one line each failed connection, the last the totals. Every connection is
driven with plain socket calls, so that the error number of the call that failed decides its outcome.
"""

import asyncio
import errno
import json
import os
import random
import signal
import socket
import struct
import sys
import time
from collections import Counter
from dataclasses import dataclass
from enum import Enum, auto

from agent.lab.node.clients import LoadPlan
from agent.lab.node.outcome import FailedConnection, Outcome, Via, outcome_of_errno

READ_BYTES = 1 << 16
IP_RECVERR = 11
IPV6_RECVERR = 25
TCPI_TOTAL_RETRANS = 100
SO_EE_ORIGIN_ICMP = 2
SO_EE_ORIGIN_ICMP6 = 3


@dataclass(frozen=True)
class Answer:
    status: int
    pod: str
    keep_alive: bool


class Failure(Exception):
    """The connection failed; `detail` names the error for the reader."""

    def __init__(self, outcome: Outcome, detail: str) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.detail = detail


class State(Enum):
    """A kept-alive connection between two requests. On one that was reset nothing can be sent."""

    OPEN = auto()
    CLOSED = auto()
    RESET = auto()


class Connection:
    """One client connection, from connect() to close()."""

    def __init__(self, plan: LoadPlan) -> None:
        self.plan = plan
        self.loop = asyncio.get_running_loop()
        self.started_ns = time.time_ns()
        self.requests = 0
        self.sock = socket.socket(socket.AF_INET6 if ":" in plan.host else socket.AF_INET, socket.SOCK_STREAM)
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.local: tuple[str, int] | None = None

    async def connect(self) -> None:
        """Connect. Raises Failure."""
        self._report_icmp(True)
        try:
            async with asyncio.timeout(self.plan.connect_timeout_s):
                await self.loop.sock_connect(self.sock, (self.plan.host, self.plan.port))
        except TimeoutError:
            self._note_local()
            raise Failure(Outcome.TIMED_OUT, "connect timeout") from None
        except OSError as error:
            self._note_local()
            number = error.errno or 0
            if self._was_icmp():
                raise Failure(Outcome.REJECTED, f"ICMP: {error_name(number)}") from None
            raise Failure(outcome_of_errno(number, connected=False), error_name(number)) from None
        self._note_local()
        self._report_icmp(False)

    def state(self) -> State:
        """What the peer has done to the connection by now."""
        try:
            return State.OPEN if self.sock.recv(1, socket.MSG_PEEK) else State.CLOSED
        except BlockingIOError:
            return State.OPEN
        except OSError:
            return State.RESET

    def syn_was_sent_again(self) -> bool:
        """Whether connecting took more than one SYN (tcpi_total_retrans in linux/tcp.h)."""
        information = self.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCPI_TOTAL_RETRANS + 4)
        return bool(struct.unpack_from("=I", information, TCPI_TOTAL_RETRANS)[0])

    async def exchange(self, request: bytes) -> Answer:
        """Send one request and read its whole answer. Raises Failure."""
        received = b""
        try:
            async with asyncio.timeout(self.plan.answer_timeout_s):
                await self.loop.sock_sendall(self.sock, request)
                while True:
                    data = await self.loop.sock_recv(self.sock, READ_BYTES)
                    if not data:
                        raise Failure(Outcome.TRUNCATED, f"EOF after {len(received)} bytes")
                    received += data
                    answer = parse_answer(received)
                    if answer is not None:
                        self.requests += 1
                        return answer
        except TimeoutError:
            raise Failure(Outcome.NO_ANSWER, f"no answer, {len(received)} bytes") from None
        except OSError as error:
            number = error.errno or 0
            raise Failure(outcome_of_errno(number, connected=True), error_name(number)) from None

    def close(self) -> None:
        self.sock.close()

    def _note_local(self) -> None:
        address = self.sock.getsockname()
        self.local = (address[0], address[1])

    def _report_icmp(self, on: bool) -> None:
        """While connecting, keep ICMP errors apart from resets: only the node rejects with ICMP."""
        if self.sock.family == socket.AF_INET6:
            self.sock.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVERR, int(on))
        else:
            self.sock.setsockopt(socket.IPPROTO_IP, IP_RECVERR, int(on))

    def _was_icmp(self) -> bool:
        try:
            _, ancillary, _, _ = self.sock.recvmsg(1, 512, socket.MSG_ERRQUEUE)
        except OSError:
            return False
        for level, kind, data in ancillary:
            if (level, kind) in ((socket.IPPROTO_IP, IP_RECVERR), (socket.IPPROTO_IPV6, IPV6_RECVERR)):
                number, origin = struct.unpack_from("=IB", data)
                if number == errno.ECONNREFUSED and origin in (SO_EE_ORIGIN_ICMP, SO_EE_ORIGIN_ICMP6):
                    return True
        return False


def error_name(number: int) -> str:
    return errno.errorcode.get(number, str(number))


def parse_answer(received: bytes) -> Answer | None:
    """The answer if it is complete; it must carry Content-Length."""
    head, separator, body = received.partition(b"\r\n\r\n")
    if not separator:
        return None
    status_line, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if len(body) < int(headers["content-length"]):
        return None
    return Answer(
        int(status_line.split(" ")[1]),
        headers.get("x-pod", ""),
        headers.get("connection", "keep-alive").lower() != "close",
    )


class Generator:
    def __init__(self, plan: LoadPlan, records: int) -> None:
        self.plan = plan
        self.records = records
        self.random = random.Random(plan.seed)
        self.stopping = asyncio.Event()
        self.deadline = time.monotonic() + plan.seconds
        self.sent = 0
        self.answered = 0
        self.connections = 0
        self.idle_closed = 0
        self.by_pod: Counter[str] = Counter()

    async def run(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.stopping.set)
        os.write(self.records, (json.dumps({"started_ns": time.time_ns()}) + "\n").encode())
        if self.plan.keep_alive:
            await asyncio.gather(*(self.keep_alive(number) for number in range(self.plan.connections)))
        else:
            await self.one_connection_per_request()
        totals = {
            "sent": self.sent,
            "answered": self.answered,
            "connections": self.connections,
            "idle_closed": self.idle_closed,
            "by_pod": dict(self.by_pod),
        }
        os.write(self.records, (json.dumps({"totals": totals}) + "\n").encode())

    async def pause_until(self, due: float) -> bool:
        """Wait for the next request's time; False when no more are to be sent."""
        try:
            async with asyncio.timeout(max(0.0, min(due, self.deadline) - time.monotonic())):
                await self.stopping.wait()
        except TimeoutError:
            pass
        return not self.over

    @property
    def over(self) -> bool:
        """Whether no more requests are to be sent."""
        spent = self.plan.requests is not None and self.sent >= self.plan.requests
        return spent or self.stopping.is_set() or time.monotonic() >= self.deadline

    async def one_connection_per_request(self) -> None:
        slots = asyncio.Semaphore(self.plan.connections)
        under_way: set[asyncio.Task[None]] = set()
        due = time.monotonic()
        while await self.pause_until(due):
            await slots.acquire()
            if self.over:
                break
            request_number = self.take_number()
            task = asyncio.create_task(self.new_connection(request_number, slots))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            due = max(due, time.monotonic() - 0.1) + self.random.uniform(0.5, 1.5) / self.plan.rate
        await asyncio.gather(*under_way)

    async def new_connection(self, request_number: int, slots: asyncio.Semaphore) -> None:
        try:
            connection = await self.request(None, request_number)
            if connection is not None:
                connection.close()
        finally:
            slots.release()

    async def keep_alive(self, number: int) -> None:
        interval = self.plan.connections / self.plan.rate
        due = time.monotonic() + interval * (number + self.random.random()) / self.plan.connections
        connection: Connection | None = None
        while await self.pause_until(due):
            if connection is not None and self.is_over(connection):
                self.idle_closed += 1
                connection.close()
                connection = None
            connection = await self.request(connection, self.take_number())
            due = max(due, time.monotonic() - interval) + interval
        if connection is not None:
            connection.close()

    def is_over(self, connection: Connection) -> bool:
        """Whether to give up an idle connection rather than send the next request on it."""
        state = connection.state()
        return state is State.RESET or (state is State.CLOSED and self.plan.check_idle)

    def take_number(self) -> int:
        self.sent += 1
        return self.sent

    async def request(self, connection: Connection | None, number: int) -> Connection | None:
        """Send one request, on a new connection if none is given; the connection if it may be used again."""
        request_id = f"{self.plan.seed}-{os.getpid()}-{number}"
        closed_before: bool | None = None
        try:
            if connection is None:
                connection = Connection(self.plan)
                self.connections += 1
                await self.connect(connection, request_id)
            else:
                closed_before = connection.state() is not State.OPEN
            answer = await connection.exchange(self.request_bytes(request_id))
        except Failure as failure:
            assert connection is not None
            self.record(connection, failure, request_id, closed_before)
            connection.close()
            return None
        except OSError as error:
            self.record(
                connection, Failure(Outcome.OWN_ERROR, error_name(error.errno or 0)), request_id, None
            )
            return None
        if answer.status >= 400:
            self.record(
                connection, Failure(Outcome.HTTP_ERROR, str(answer.status)), request_id, closed_before
            )
        else:
            self.answered += 1
            self.by_pod[answer.pod] += 1
        if not answer.keep_alive:
            connection.close()
            return None
        return connection

    async def connect(self, connection: Connection, request_id: str) -> None:
        """Connect, and note a first SYN that got no answer though a later one did. Raises Failure."""
        try:
            await connection.connect()
        except Failure as failure:
            if failure.outcome is Outcome.TIMED_OUT:
                raise
            self.note_delay(connection, request_id)
            raise
        self.note_delay(connection, request_id)

    def note_delay(self, connection: Connection, request_id: str) -> None:
        if connection.syn_was_sent_again():
            self.record(connection, Failure(Outcome.DELAYED, "SYN sent again"), request_id, None)

    def request_bytes(self, request_id: str) -> bytes:
        plan = self.plan
        authority = f"[{plan.host}]:{plan.port}" if ":" in plan.host else f"{plan.host}:{plan.port}"
        separator = "&" if "?" in plan.path else "?"
        head = (
            f"{plan.method} {plan.path}{separator}id={request_id} HTTP/1.1\r\nHost: {authority}\r\n"
            f"Connection: {'keep-alive' if plan.keep_alive else 'close'}\r\n"
        )
        if plan.method == "POST":
            head += f"Content-Length: {plan.body_bytes}\r\n"
        return head.encode() + b"\r\n" + (b"x" * plan.body_bytes if plan.method == "POST" else b"")

    def record(
        self, connection: Connection | None, failure: Failure, request_id: str, closed_before: bool | None
    ) -> None:
        now = time.time_ns()
        local = connection.local if connection else None
        failed = FailedConnection(
            time_ns=now,
            started_ns=connection.started_ns if connection else now,
            outcome=failure.outcome,
            via=self.plan.via,
            method=self.plan.method,
            remote=self.plan.host,
            remote_port=self.plan.port,
            local=local[0] if local else None,
            local_port=local[1] if local else None,
            reused=connection.requests > 0 if connection else None,
            closed_before_request=closed_before,
            detail=failure.detail,
            request_id=request_id,
        )
        os.write(self.records, (failed.to_json() + "\n").encode())


async def main(plan: LoadPlan, records: int) -> None:
    await Generator(plan, records).run()


if __name__ == "__main__":
    fields = json.loads(sys.argv[1])
    descriptor = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)
    asyncio.run(main(LoadPlan(**{**fields, "via": Via(fields["via"])}), descriptor))
