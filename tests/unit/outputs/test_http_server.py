"""The HTTP port: what it answers, and clients that go away."""

import errno
import socket
import struct
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator

import pytest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from agent.outputs.http_server import HttpServer


class Page(Collector):
    """A page that is larger than a socket's buffers, or none at all."""

    def __init__(self) -> None:
        self.broken = False
        self.asked = 0

    def collect(self) -> Iterable[Metric]:
        self.asked += 1
        if self.broken:
            raise RuntimeError("no page today")
        family = GaugeMetricFamily("large", "x" * 8_000_000)
        family.add_metric([], 1)
        return [family]

    def describe(self) -> Iterable[Metric]:
        return ()


@pytest.fixture
def page() -> Page:
    return Page()


@pytest.fixture
def server(page: Page) -> Iterator[HttpServer]:
    server = HttpServer("127.0.0.1", 0)
    server.start(page, lambda: None)
    yield server
    server.stop()


def ask_and_leave(server: HttpServer, path: str) -> None:
    """A client that resets its connection before it has read its answer."""
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def healthy(server: HttpServer) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/healthz", timeout=5) as answer:
        return bool(answer.read() == b"ok\n")


def await_asked(page: Page, times: int) -> None:
    deadline = time.monotonic() + 5
    while page.asked < times:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.2)


def test_a_client_that_goes_away_leaves_no_trace(
    server: HttpServer, page: Page, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        ask_and_leave(server, "/metrics")
    await_asked(page, 3)
    assert healthy(server)
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


def test_a_page_that_cannot_be_made_is_one_line(
    server: HttpServer, page: Page, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    page.broken = True
    ask_and_leave(server, "/metrics")
    await_asked(page, 1)
    assert healthy(server)
    assert capfd.readouterr() == ("", "")
    (record,) = caplog.records
    assert record.getMessage().endswith(": RuntimeError: no page today")


def test_an_agent_of_which_a_part_has_ended_is_not_healthy_and_says_which(page: Page) -> None:
    server = HttpServer("127.0.0.1", 0)
    server.start(page, lambda: None, lambda: "the thread 'loop' has ended")
    try:
        with pytest.raises(urllib.error.HTTPError) as refusal:
            healthy(server)
        with refusal.value as answer:
            assert (answer.code, answer.read()) == (503, b"failed: the thread 'loop' has ended\n")
    finally:
        server.stop()


def answers(host: str, port: int) -> bool:
    """Whether somebody answers at an address of this machine."""
    try:
        with urllib.request.urlopen(f"http://{host}:{port}/healthz", timeout=5) as answer:
            return bool(answer.read() == b"ok\n")
    except urllib.error.URLError:
        return False


@pytest.mark.parametrize(
    ("host", "ipv4", "ipv6"),
    [("", True, True), ("0.0.0.0", True, False), ("127.0.0.1", True, False), ("::1", False, True)],
    ids=["every address", "every IPv4 address", "an IPv4 address", "an IPv6 address"],
)
def test_it_listens_on_both_families_unless_told_an_address(
    page: Page, host: str, ipv4: bool, ipv6: bool
) -> None:
    server = HttpServer(host, 0)
    server.start(page, lambda: None)
    try:
        assert (answers("127.0.0.1", server.port), answers("[::1]", server.port)) == (ipv4, ipv6)
    finally:
        server.stop()


def test_without_ipv6_it_listens_on_every_ipv4_address(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_ipv6(*_: object) -> None:
        raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")

    monkeypatch.setattr("agent.outputs.http_server._DualStackServer", without_ipv6)
    server = HttpServer("", 0)
    server.start(page, lambda: None)
    try:
        assert answers("127.0.0.1", server.port)
    finally:
        server.stop()


def test_a_port_that_is_taken_is_not_shared() -> None:
    first = HttpServer("", 0)
    try:
        with pytest.raises(OSError, match="in use"):
            HttpServer("", first.port)
    finally:
        first.stop()
