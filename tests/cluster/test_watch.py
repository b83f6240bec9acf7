"""A watch goes on whatever the API server does; needs loopback only."""

import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

import pytest

from agent.cluster.connection import connect
from agent.cluster.pods import watch_pods
from agent.cluster.watch import ResourceWatch, WatchTiming
from agent.core.records import ClusterRecord, PodChanged, PodRemoved, PodsListed
from agent.lab.controlplane.api import ApiServer
from agent.lab.controlplane.kubeconfig import write_kubeconfig
from agent.lab.controlplane.resources import PODS
from agent.lab.controlplane.store import Store
from tests.cluster.api_server import NODE, QUICK, a_pod, connection_to, deleted_at
from tests.cluster.collected import Collected, wait_until
from tests.cluster.scripted_server import CHUNKED, chunk, ok, scripted

Told = Collected[ClusterRecord]


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@contextmanager
def watching(
    api: ApiServer, folder: Path, timing: WatchTiming = QUICK
) -> Iterator[tuple[ResourceWatch, Told]]:
    told: Told = Collected()
    watch = watch_pods(connection_to(api, folder), NODE, told, timing=timing)
    watch.start()
    with ExitStack() as stack:
        stack.callback(watch.stop)
        yield watch, told


def names(records: list[ClusterRecord]) -> list[str]:
    return [record.pod.name for record in records if isinstance(record, PodChanged)]


def removed(records: list[ClusterRecord]) -> list[str]:
    return [record.uid for record in records if isinstance(record, PodRemoved)]


def lists(records: list[ClusterRecord]) -> int:
    return sum(isinstance(record, PodsListed) for record in records)


def test_the_pods_of_this_node_alone_are_told(api: ApiServer, tmp_path: Path) -> None:
    api.store.create(PODS, a_pod("here"))
    api.store.create(PODS, a_pod("there", node="another"))
    before = time.time_ns()
    with watching(api, tmp_path) as (watch, told):
        told.wait_for(lists)
        api.store.create(PODS, a_pod("elsewhere", node="another"))
        api.store.create(PODS, a_pod("later"))
        records = told.wait_for(lambda records: "later" in names(records))
        assert names(records) == ["here", "later"]
        assert [type(record) for record in records] == [PodChanged, PodsListed, PodChanged]
        assert all(before <= record.at_ns <= time.time_ns() for record in records)
        wait_until(lambda: watch.connected)
        assert watch.restarts == 0
        assert watch.last_event_ns == records[-1].at_ns
    assert api.traffic().requests == {("list", "pods"): 1, ("watch", "pods"): 1}


def test_a_deletion_is_told_and_then_the_removal(api: ApiServer, tmp_path: Path) -> None:
    api.store.create(PODS, a_pod("web"))
    with watching(api, tmp_path) as (_, told):
        told.wait_for(lists)
        api.store.update(PODS, "shop", "web", lambda pod: deleted_at(pod, "2026-11-30T01:11:55Z", 15))
        api.store.update(PODS, "shop", "web", lambda pod: deleted_at(pod, "2026-11-30T01:11:44Z", 0))
        api.store.delete(PODS, "shop", "web")
        records = told.wait_for(removed)
    pods = [record.pod for record in records if isinstance(record, PodChanged)]
    assert [pod.deletion_requested_ns for pod in pods] == [None, 1796001100_000_000_000]
    assert [pod.grace_seconds for pod in pods] == [30, 15]
    assert removed(records) == ["uid-of-web"]


@pytest.mark.parametrize("as_status", [True, False], ids=["as status", "in the stream"])
def test_an_expired_version_leads_to_a_new_list(api: ApiServer, tmp_path: Path, as_status: bool) -> None:
    api.store.create(PODS, a_pod("old"))
    api.faults.expired_as_status = as_status
    with watching(api, tmp_path) as (watch, told):
        told.wait_for(lists)
        wait_until(lambda: watch.connected)
        api.pause()
        api.store.delete(PODS, "shop", "old")
        api.store.create(PODS, a_pod("new"))
        api.store.compact()
        api.start()
        records = told.wait_for(lambda records: lists(records) == 2)
        assert names(records) == ["old", "new"]
        assert removed(records) == ["uid-of-old"]
        wait_until(lambda: watch.connected)
        assert watch.restarts >= 2


def test_a_dropped_connection_is_taken_up_where_it_broke(api: ApiServer, tmp_path: Path) -> None:
    api.store.create(PODS, a_pod("web-1"))
    with watching(api, tmp_path) as (watch, told):
        told.wait_for(lists)
        wait_until(lambda: watch.connected)
        api.drop_connections()
        api.store.create(PODS, a_pod("web-2"))
        records = told.wait_for(lambda records: "web-2" in names(records))
        assert lists(records) == 1
        assert watch.restarts == 1
    assert api.traffic().requests[("list", "pods")] == 1


def test_an_api_server_that_is_away_at_first_is_waited_for(api: ApiServer, tmp_path: Path) -> None:
    api.store.create(PODS, a_pod("web"))
    api.pause()
    with watching(api, tmp_path) as (watch, told):
        wait_until(lambda: watch.restarts >= 2)
        assert not watch.connected
        assert watch.last_event_ns is None
        assert told.items == []
        api.start()
        assert names(told.wait_for(lists)) == ["web"]
        wait_until(lambda: watch.connected)


def test_an_api_server_that_goes_away_is_noticed_and_its_pods_kept(api: ApiServer, tmp_path: Path) -> None:
    api.store.create(PODS, a_pod("web"))
    with watching(api, tmp_path) as (watch, told):
        wait_until(lambda: watch.connected)
        api.pause()
        wait_until(lambda: not watch.connected)
        assert removed(told.items) == []
        told_ns = watch.last_event_ns
        assert told_ns is not None
        wait_until(lambda: watch.restarts >= 4)
        assert watch.last_event_ns == told_ns, "what is known gets older, and shows it"
        api.start()
        wait_until(lambda: watch.connected)
        assert names(told.items) == ["web"]


@pytest.mark.parametrize(
    "status", [HTTPStatus.FORBIDDEN, HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.TOO_MANY_REQUESTS]
)
def test_a_refused_request_is_tried_again(api: ApiServer, tmp_path: Path, status: HTTPStatus) -> None:
    api.store.create(PODS, a_pod("web"))
    api.faults.fail_with = status
    with watching(api, tmp_path) as (watch, told):
        wait_until(lambda: watch.restarts >= 2)
        api.faults.fail_with = None
        assert names(told.wait_for(lists)) == ["web"]


def test_failures_are_logged_once_and_not_at_every_attempt(
    api: ApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    api.faults.fail_with = HTTPStatus.FORBIDDEN
    with watching(api, tmp_path) as (watch, _):
        wait_until(lambda: watch.restarts >= 4)
        warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert len(warnings) == 1
        assert "the API server says 403" in warnings[0]
        assert "role must allow get, list and watch" in warnings[0]
        api.faults.fail_with = None
        wait_until(lambda: watch.connected)
    assert caplog.messages[-1] == "watching pods again"


def test_repeated_attempts_wait_longer_and_longer(api: ApiServer, tmp_path: Path) -> None:
    api.pause()
    with watching(api, tmp_path, replace(QUICK, first_retry=0.05, longest_retry=10)) as (watch, _):
        time.sleep(1.0)
        assert 2 <= watch.restarts <= 6


def test_events_that_come_twice_are_told_once(api: ApiServer, tmp_path: Path) -> None:
    api.faults.repeat_events = 3
    with watching(api, tmp_path) as (_, told):
        told.wait_for(lists)
        api.store.create(PODS, a_pod("web"))
        api.store.update(PODS, "shop", "web", lambda pod: deleted_at(pod, "2026-11-30T01:11:55Z", 15))
        api.store.delete(PODS, "shop", "web")
        api.store.create(PODS, a_pod("last"))
        records = told.wait_for(lambda records: "last" in names(records))
    assert names(records) == ["web", "web", "last"]
    assert removed(records) == ["uid-of-web"]


def test_events_in_the_wrong_order_bring_no_pod_back(api: ApiServer, tmp_path: Path) -> None:
    api.store.create(PODS, a_pod("web"))
    with watching(api, tmp_path) as (watch, told):
        told.wait_for(lists)
        wait_until(lambda: watch.connected)
        api.pause()
        api.store.update(PODS, "shop", "web", lambda pod: deleted_at(pod, "2026-11-30T01:11:55Z", 15))
        api.store.delete(PODS, "shop", "web")
        api.faults.reverse_events = True
        api.start()
        told.wait_for(removed)
        api.faults.reverse_events = False
        api.store.create(PODS, a_pod("last"))
        records = told.wait_for(lambda records: "last" in names(records))
    kinds = [type(record) for record in records]
    assert kinds[:2] == [PodChanged, PodsListed]
    assert kinds[2:] == [PodChanged, PodRemoved, PodChanged]
    assert names(records)[-2:] == ["web", "last"]


@pytest.mark.parametrize(
    "junk",
    [
        b"<html>bad gateway</html>\n",
        b"{}\n",
        b'{"type":"ADDED","object":{}}\n',
        b'{"type":"SURPRISE","object":{"metadata":{"resourceVersion":"1"}}}\n',
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        b'{"type":"ERROR","object":{"code":500,"message":"etcd leader changed"}}\n',
    ],
    ids=["html", "empty", "no version", "unknown type", "no text", "deep", "error"],
)
def test_a_line_of_junk_costs_a_new_list_and_no_event(api: ApiServer, tmp_path: Path, junk: bytes) -> None:
    with watching(api, tmp_path) as (watch, told):
        told.wait_for(lists)
        wait_until(lambda: watch.connected)
        api.faults.junk_line = junk
        api.store.create(PODS, a_pod("web"))
        records = told.wait_for(lambda records: lists(records) == 2)
        assert names(records) == ["web"]
        assert watch.restarts == 1


def test_a_pod_that_is_not_understood_does_not_hide_the_others(
    api: ApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = a_pod("broken")
    broken["spec"]["containers"] = "none"
    api.store.create(PODS, broken)
    api.store.create(PODS, a_pod("web"))
    with watching(api, tmp_path) as (_, told):
        assert names(told.wait_for(lists)) == ["web"]
    assert "pod shop/broken: spec.containers is not a list: 'none'" in caplog.text


def test_a_watch_that_ends_in_the_ordinary_way_is_no_failure(api: ApiServer, tmp_path: Path) -> None:
    with watching(api, tmp_path, replace(QUICK, watch_lasts=1.0, settled_after=0.3)) as (watch, told):
        wait_until(lambda: api.traffic().requests.get(("watch", "pods"), 0) >= 3)
        api.store.create(PODS, a_pod("web"))
        told.wait_for(names)
        assert watch.restarts == 0
        assert watch.connected


def test_a_watch_goes_on_with_the_token_that_replaced_its_own(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    with ApiServer(token="first") as api:
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", api.url)
        kubeconfig.write_text(
            kubeconfig.read_text().replace('"user": {}', f'"user": {{"tokenFile": "{token}"}}')
        )
        told: Told = Collected()
        watch = watch_pods(connect(kubeconfig), NODE, told, timing=QUICK)
        watch.start()
        try:
            wait_until(lambda: watch.connected)
            token.write_text("second")
            api.token = "second"
            api.drop_connections()
            wait_until(lambda: watch.restarts)
            api.store.create(PODS, a_pod("web"))
            assert names(told.wait_for(names)) == ["web"]
            assert lists(told.items) == 1
        finally:
            watch.stop()


def test_a_silent_stream_is_given_up_for_a_new_list_and_is_no_failure(
    api: ApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with watching(api, tmp_path, replace(QUICK, watch_silence=0.3)) as (watch, told):
        told.wait_for(lambda records: lists(records) >= 3)
        api.store.create(PODS, a_pod("web"))
        told.wait_for(names)
        assert watch.restarts == 0
        assert watch.connected
    assert caplog.messages == []


def test_a_server_that_falls_silent_for_good_is_noticed(tmp_path: Path) -> None:
    """As after a suspended machine: the connection looks alive, and nobody is at its other end."""

    def answer(head: bytes) -> Iterator[bytes]:
        if b"watch=1" in head or watched.is_set():
            watched.set()
            yield CHUNKED if b"watch=1" in head else b""
            stopped.wait(10)
        else:
            yield ok(b'{"metadata":{"resourceVersion":"5"},"items":[]}')

    watched, stopped = threading.Event(), threading.Event()
    with scripted(answer) as server:
        connection = connect(write_kubeconfig(tmp_path / "k", server.url))
        timing = replace(QUICK, watch_silence=0.3, list_silence=0.3)
        told: Told = Collected()
        watch = watch_pods(connection, NODE, told, timing=timing)
        watch.start()
        try:
            wait_until(watched.is_set)
            wait_until(lambda: not watch.connected and watch.restarts)
            assert lists(told.items) == 1
        finally:
            stopped.set()
            watch.stop()


def test_bookmarks_keep_a_quiet_watch_current(tmp_path: Path) -> None:
    with ApiServer(bookmark_seconds=0.05) as api, watching(api, tmp_path) as (watch, told):
        told.wait_for(lists)
        wait_until(lambda: watch.connected)
        api.store.create(PODS, a_pod("there", node="another"))
        reached = time.time_ns()
        wait_until(lambda: (watch.last_event_ns or 0) > reached)
        time.sleep(0.2)
        api.store.compact()
        api.drop_connections()
        api.store.create(PODS, a_pod("here"))
        assert lists(told.wait_for(lambda records: "here" in names(records))) == 1


@pytest.mark.parametrize("cut", [1, 40, -1], ids=["its first byte", "its middle", "its last byte"])
def test_a_connection_that_breaks_within_a_line_is_taken_up_before_that_line(
    tmp_path: Path, cut: int
) -> None:
    def line(name: str, version: int) -> bytes:
        pod = a_pod(name)
        pod["metadata"]["resourceVersion"] = str(version)
        return json.dumps({"type": "ADDED", "object": pod}).encode() + b"\n"

    def answer(head: bytes) -> Iterator[bytes]:
        if b"watch=1" not in head:
            yield ok(b'{"metadata":{"resourceVersion":"5"},"items":[]}')
        elif b"resourceVersion=5&" in head:
            yield CHUNKED + chunk(line("whole", 6) + line("cut", 7)[:cut])
        else:
            yield CHUNKED + chunk(line("cut", 7))
            stopped.wait(5)

    stopped = threading.Event()
    with scripted(answer) as server:
        told: Told = Collected()
        connection = connect(write_kubeconfig(tmp_path / "k", server.url))
        watch = watch_pods(connection, NODE, told, timing=QUICK)
        watch.start()
        try:
            records = told.wait_for(lambda records: "cut" in names(records))
            assert (names(records), lists(records)) == (["whole", "cut"], 1)
            assert b"resourceVersion=6&" in server.requests[-1]
            assert watch.restarts == 1
        finally:
            stopped.set()
            watch.stop()


def test_an_api_server_whose_versions_went_back_is_listed_again(tmp_path: Path) -> None:
    """A restored etcd: the watch was opened at a version of the future, and would stay silent."""

    def answer(head: bytes) -> Iterator[bytes]:
        version = 900 if len(server.requests) < 3 else 40
        metadata = {"resourceVersion": str(version)}
        if b"watch=1" not in head:
            yield ok(json.dumps({"metadata": metadata, "items": [a_pod(f"at-{version}")]}).encode())
            return
        event = json.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "40"}}}).encode()
        yield CHUNKED + b"%x\r\n%s\n\r\n" % (len(event) + 1, event)
        stopped.wait(5)

    stopped = threading.Event()
    with scripted(answer) as server:
        told: Told = Collected()
        watch = watch_pods(
            connect(write_kubeconfig(tmp_path / "k", server.url, "t")), NODE, told, timing=QUICK
        )
        watch.start()
        try:
            told.wait_for(lambda records: {"at-900", "at-40"} <= set(names(records)))
            assert removed(told.wait_for(removed)) == ["uid-of-at-900"]
        finally:
            stopped.set()
            watch.stop()


def test_a_restored_etcd_is_noticed_though_the_api_server_tells_nothing_of_it(tmp_path: Path) -> None:
    """A real API server sends a watch from a version of the future neither events nor bookmarks."""
    with ApiServer(bookmark_seconds=0.1) as api:
        for number in range(40):
            api.store.create(PODS, a_pod(f"before-{number}"))
        with watching(api, tmp_path, replace(QUICK, watch_silence=0.8)) as (watch, told):
            told.wait_for(lists)
            wait_until(lambda: watch.connected)
            api.pause()
            api.store = Store()
            api.store.create(PODS, a_pod("before-0"))
            api.store.create(PODS, a_pod("restored"))
            api.start()
            records = told.wait_for(lambda records: len(removed(records)) == 39)
            assert "restored" in names(records)
            assert "uid-of-before-0" not in removed(records)
            dying = deleted_at(a_pod("before-0"), "2026-11-30T01:11:55Z", 15)
            api.store.update(PODS, "shop", "before-0", lambda _: dying)
            told.wait_for(lambda records: names(records)[-1] == "before-0")


def test_a_listener_that_fails_is_told_again(api: ApiServer, tmp_path: Path) -> None:
    told: Told = Collected()
    faults = [RuntimeError("first"), RuntimeError("second")]

    def emit(record: ClusterRecord) -> None:
        if isinstance(record, PodChanged) and faults:
            raise faults.pop()
        told(record)

    api.store.create(PODS, a_pod("web"))
    watch = watch_pods(connection_to(api, tmp_path), NODE, emit, timing=QUICK)
    watch.start()
    try:
        told.wait_for(names)
    finally:
        watch.stop()


def test_a_stopped_watch_tells_nothing_more(api: ApiServer, tmp_path: Path) -> None:
    with watching(api, tmp_path) as (watch, told):
        told.wait_for(lists)
        wait_until(lambda: watch.connected)
        began = time.monotonic()
        watch.stop()
        assert time.monotonic() - began < 1.0
        api.store.create(PODS, a_pod("late"))
        time.sleep(0.2)
        assert names(told.items) == []
        assert not watch.connected
