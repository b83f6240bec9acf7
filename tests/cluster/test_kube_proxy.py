"""Polling kube-proxy; needs loopback only."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.cluster.failures import ConnectionSettingsError
from agent.cluster.kube_proxy import DEFAULT_URL, KubeProxyWatch
from agent.cluster.kube_proxy_metrics import SyncProgress, sync_progress_of
from agent.core.records import ClusterRecord, KubeProxyState
from tests.cluster.collected import Collected
from tests.cluster.scripted_server import CHUNKED, ScriptedServer, chunk, ok, scripted
from tests.recordings.reader import RECORDINGS

Told = Collected[ClusterRecord]


def metrics(synced: float, queued: float, pending: int) -> bytes:
    name = "kubeproxy_sync_proxy_rules_"
    return (
        f'{name}last_timestamp_seconds{{ip_family="IPv4"}} {synced}\n'
        f'{name}last_queued_timestamp_seconds{{ip_family="IPv4"}} {queued}\n'
        f"{name}endpoint_changes_pending {pending}\n"
    ).encode()


@contextmanager
def following(server: ScriptedServer, slow_seconds: float = 10.0) -> Iterator[tuple[KubeProxyWatch, Told]]:
    told: Told = Collected()
    watch = KubeProxyWatch(f"{server.url}/metrics", told, slow_seconds=slow_seconds)
    watch.start()
    try:
        yield watch, told
    finally:
        watch.stop()


def test_a_real_dump_is_read() -> None:
    body = (RECORDINGS / "kube-proxy/nftables.txt").read_bytes()
    with scripted(lambda head: iter([ok(body)])) as server, following(server) as (_, told):
        (state,) = told.wait_for(len)
        assert state == KubeProxyState(
            state.at_ns, True, synced_ns=1796001341503885000, queued_ns=1796001341482484000, pending=0
        )
        assert server.requests[0].startswith(b"GET /metrics HTTP/1.1\r\n")


def test_polling_is_slow_until_asked_and_then_fast() -> None:
    with scripted(lambda head: iter([ok(metrics(1, 1, 0))])) as server, following(server) as (watch, told):
        told.wait_for(len)
        time.sleep(0.3)
        assert len(server.requests) == 1
        watch.watch_closely(True)
        time.sleep(1.0)
        fast = len(server.requests)
        assert 10 <= fast <= 25
        watch.watch_closely(False)
        time.sleep(0.3)
        assert len(server.requests) <= fast + 2


def changes(records: list[ClusterRecord]) -> list[KubeProxyState]:
    """The states that say something new."""
    states = [record for record in records if isinstance(record, KubeProxyState)]
    return [
        state
        for number, state in enumerate(states)
        if not number or replace(state, at_ns=states[number - 1].at_ns) != states[number - 1]
    ]


def test_while_a_pod_dies_an_unchanged_state_is_told_again_five_times_a_second() -> None:
    with scripted(lambda head: iter([ok(metrics(100, 99, 0))])) as server, following(server) as (watch, told):
        watch.watch_closely(True)
        first, second, third = told.wait_for(lambda records: len(records) >= 3)[:3]
    assert 400_000_000 <= third.at_ns - first.at_ns < 2_000_000_000
    assert changes([first, second, third]) == [first]


def test_a_change_is_told_promptly() -> None:
    answers = [metrics(100, 99, 0)]
    with scripted(lambda head: iter([ok(answers[-1])])) as server, following(server) as (watch, told):
        watch.watch_closely(True)
        told.wait_for(len)
        changed_ns = time.time_ns()
        answers.append(metrics(100, 101, 1))
        told.wait_for(lambda records: len(changes(records)) == 2)
        answers.append(metrics(102, 101, 0))
        states = changes(told.wait_for(lambda records: len(changes(records)) == 3))
    assert [state.pending for state in states] == [0, 1, 0]
    assert [state.synced_ns for state in states] == [100 * 10**9, 100 * 10**9, 102 * 10**9]
    assert changed_ns < states[1].at_ns < changed_ns + 1_000_000_000


def test_an_unchanged_state_is_told_again_at_the_slow_pace() -> None:
    with (
        scripted(lambda head: iter([ok(metrics(1, 1, 0))])) as server,
        following(server, slow_seconds=0.2) as (_, told),
    ):
        told.wait_for(lambda records: len(records) >= 3)


def test_a_kube_proxy_that_is_not_there_is_down_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    with scripted(lambda head: iter([])) as server:
        url = server.url
    told: Told = Collected()
    watch = KubeProxyWatch(f"{url}/metrics", told)
    watch.watch_closely(True)
    watch.start()
    try:
        state = told.wait_for(lambda records: len(records) >= 2)[0]
    finally:
        watch.stop()
    assert state == KubeProxyState(state.at_ns, False, None, None, None)
    assert changes(told.items) == [state]
    assert [record.getMessage().startswith("kube-proxy does not answer at") for record in caplog.records] == [
        True
    ]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        CHUNKED + chunk(b"x") + b"zz\r\n",
        ok(b"<html></html>"),
        ok(b"\xff\x00" * 1000),
        ok(b"kubeproxy_sync_proxy_rules_last_timestamp_seconds NaN\n"),
    ],
)
def test_an_answer_that_is_not_kube_proxys_is_down_with_one_warning(
    answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with scripted(lambda head: iter([answer])) as server, following(server) as (watch, told):
        watch.watch_closely(True)
        (state,) = told.wait_for(len)
        time.sleep(0.3)
        assert len(server.requests) > 2
    assert state == KubeProxyState(state.at_ns, False, None, None, None)
    assert len(caplog.records) == 1


def test_a_fault_in_reading_is_one_warning_and_down_and_does_not_end_the_polling(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = [RuntimeError("not\nforeseen")] * 2

    def read(pieces: Iterator[bytes]) -> SyncProgress:
        if faults:
            raise faults.pop()
        return sync_progress_of(pieces)

    monkeypatch.setattr("agent.cluster.kube_proxy.sync_progress_of", read)
    with scripted(lambda head: iter([ok(metrics(100, 99, 0))])) as server, following(server) as (watch, told):
        watch.watch_closely(True)
        records = told.wait_for(lambda records: len(records) == 2)
        assert [thread.is_alive() for thread in watch.threads] == [True]
    assert [record.up for record in records if isinstance(record, KubeProxyState)] == [False, True]
    (warning,) = caplog.messages
    assert "RuntimeError: not foreseen" in warning


def test_a_state_that_cannot_be_delivered_is_told_again() -> None:
    told: Told = Collected()
    faults = [RuntimeError("first")]

    def emit(record: ClusterRecord) -> None:
        if faults:
            raise faults.pop()
        told(record)

    with scripted(lambda head: iter([ok(metrics(100, 99, 0))])) as server:
        watch = KubeProxyWatch(f"{server.url}/metrics", emit, slow_seconds=0.05)
        watch.start()
        told.wait_for(len)
        watch.stop()


def test_it_is_told_and_logged_when_kube_proxy_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    answers = [b"HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n"]
    with scripted(lambda head: iter([answers[-1]])) as server, following(server) as (watch, told):
        watch.watch_closely(True)
        told.wait_for(len)
        answers.append(ok(metrics(100, 99, 0)))
        records = told.wait_for(lambda records: len(records) == 2)
    assert [record.up for record in records if isinstance(record, KubeProxyState)] == [False, True]
    assert caplog.messages[-1].startswith("kube-proxy answers at")


def test_an_answer_of_megabytes_that_takes_long_is_asked_for_less_often() -> None:
    noise = b"".join(b'apiserver_request_total{verb="GET",n="%d"} 1\n' % n for n in range(150_000))
    body = ok(noise + metrics(100, 99, 0))

    def answer(head: bytes) -> Iterator[bytes]:
        yield body[: len(body) // 2]
        time.sleep(0.05)
        yield body[len(body) // 2 :]

    with scripted(answer) as server, following(server) as (watch, told):
        watch.watch_closely(True)
        (state,) = told.wait_for(len)
        requests = len(server.requests)
        time.sleep(1.1)
        assert 1 <= len(server.requests) - requests <= 3
    assert isinstance(state, KubeProxyState)
    assert state.synced_ns == 100 * 10**9


def test_an_answer_that_never_ends_does_not_hold_up_the_stop() -> None:
    def answer(head: bytes) -> Iterator[bytes]:
        yield CHUNKED
        time.sleep(30)

    with scripted(answer) as server:
        told: Told = Collected()
        watch = KubeProxyWatch(server.url, told)
        watch.start()
        time.sleep(0.1)
        began = time.monotonic()
        watch.stop()
        assert time.monotonic() - began < 3.5


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:10249", "https://127.0.0.1:10249/metrics", "http://", "http://x:99999/", "http://[::1/"],
)
def test_an_unusable_url_is_one_line(url: str) -> None:
    with pytest.raises(ConnectionSettingsError, match=r"kube-proxy's metrics URL .* is not usable"):
        KubeProxyWatch(url, Told())


def test_the_default_is_kube_proxys_own() -> None:
    assert DEFAULT_URL == "http://127.0.0.1:10249/metrics"


HEADS = st.sampled_from(
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        CHUNKED,
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n",
    ]
)
SAMPLE = b"kubeproxy_sync_proxy_rules_last_timestamp_seconds "


@settings(max_examples=40, deadline=None)
@given(HEADS, st.binary(max_size=100) | st.binary(max_size=40).map(lambda value: SAMPLE + value + b"\n"))
def test_no_answer_ends_the_polling(head: bytes, rest: bytes) -> None:
    def answer(_: bytes) -> Iterator[bytes]:
        yield head + rest if len(server.requests) == 1 else ok(metrics(7, 6, 3))

    with scripted(answer) as server, following(server, slow_seconds=0.02) as (_, told):
        told.wait_for(
            lambda states: any(isinstance(state, KubeProxyState) and state.pending == 3 for state in states)
        )
