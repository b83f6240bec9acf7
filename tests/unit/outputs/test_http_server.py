"""The HTTP port when a client or a collector does not do its part: no traceback in the log."""

import logging
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from agent.outputs.http_server import HttpServer

RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Waiting(Collector):
    """Collects nothing once it may, or fails."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.asked = threading.Event()
        self.may_answer = threading.Event()
        self._failure = failure

    def collect(self) -> Iterator[Metric]:
        self.asked.set()
        assert self.may_answer.wait(10)
        if self._failure is not None:
            raise self._failure
        yield from ()

    def describe(self) -> Iterable[Metric]:
        return ()


def scrape_and_hang_up(collector: Waiting) -> None:
    """Returns when the server's thread of the request has ended."""
    server = HttpServer("127.0.0.1", 0)
    server.start(collector, lambda: None)
    try:
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n")
            assert collector.asked.wait(10)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        collector.may_answer.set()
        deadline = time.monotonic() + 10
        while any("process_request_thread" in thread.name for thread in threading.enumerate()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        server.stop()


def test_a_client_that_hangs_up_leaves_nothing_in_the_log(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    scrape_and_hang_up(Waiting())
    assert capfd.readouterr().err == ""
    assert caplog.records == []


def test_a_failure_to_collect_is_told_in_one_line(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    scrape_and_hang_up(Waiting(KeyError("web")))
    assert "Traceback" not in capfd.readouterr().err
    assert [(record.levelno, record.getMessage().partition(";")[0]) for record in caplog.records] == [
        (logging.ERROR, "could not answer: KeyError: 'web'")
    ]
