"""Each way of the lab's server to start, serve and stop, as one client sees it."""

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.lab.node.network import Cni
from agent.lab.node.node import Node
from agent.lab.node.server import OnStop, ServerSettings
from tests.e2e.lab_node import Client, serving


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with Node.start(Cni.BRIDGE) as node:
        yield node


def test_a_draining_server_answers_what_is_in_flight_and_closes_idle_connections(node: Node) -> None:
    with (
        serving(node) as served,
        Client(served.addresses.v4) as idle,
        Client(served.addresses.v4) as busy,
    ):
        assert idle.ask().startswith("HTTP/1.1 200")
        busy.send("/slow?ms=300")
        time.sleep(0.1)
        served.container.stop_signal(signal.SIGTERM)
        assert idle.receive() == ""
        with pytest.raises(ConnectionRefusedError):
            Client(served.addresses.v4)
        answer = busy.receive()
        assert answer.startswith("HTTP/1.1 200")
        assert "Connection: close" in answer
        assert served.container.wait(1.0) == 0
        assert served.resets_sent() == 1


def test_a_draining_server_may_keep_accepting_for_a_time(node: Node) -> None:
    with serving(node, ServerSettings(keep_accepting_s=0.4)) as served:
        served.container.stop_signal(signal.SIGTERM)
        time.sleep(0.1)
        with Client(served.addresses.v4) as late:
            assert "Connection: close" in late.ask()
        assert served.container.wait(2.0) == 0


def test_a_drained_server_may_live_on_without_a_listener(node: Node) -> None:
    with serving(node, ServerSettings(exit_after_s=0.4)) as served:
        served.container.stop_signal(signal.SIGTERM)
        time.sleep(0.1)
        with pytest.raises(ConnectionRefusedError):
            Client(served.addresses.v4)
        assert served.container.wait(0.1) is None
        assert served.container.wait(1.0) == 0


def test_a_draining_server_may_wait_for_the_last_request_of_idle_connections(node: Node) -> None:
    with (
        serving(node, ServerSettings(close_idle_after_s=2.0)) as served,
        Client(served.addresses.v4) as kept,
    ):
        kept.ask()
        served.container.stop_signal(signal.SIGTERM)
        time.sleep(0.1)
        assert "Connection: close" in kept.ask()
        assert served.container.wait(3.0) == 0
        assert served.resets_sent() == 0


def test_a_server_that_exits_at_once_cuts_what_is_in_flight(node: Node) -> None:
    settings = ServerSettings(on_stop=OnStop.EXIT, exit_code=3)
    with serving(node, settings) as served, Client(served.addresses.v4) as busy:
        busy.send("/slow?ms=2000")
        time.sleep(0.1)
        served.container.stop_signal(signal.SIGTERM)
        assert busy.receive() == ""
        assert served.container.wait(1.0) == 3


def test_a_server_that_sleeps_instead_of_draining_answers_nothing_more(node: Node) -> None:
    settings = ServerSettings(on_stop=OnStop.SLEEP, exit_after_s=0.4)
    with serving(node, settings) as served, Client(served.addresses.v4) as kept:
        kept.ask()
        served.container.stop_signal(signal.SIGTERM)
        time.sleep(0.1)
        kept.send()
        with pytest.raises(ConnectionRefusedError):
            Client(served.addresses.v4)
        assert kept.receive() == ""
        assert served.container.wait(1.0) == 0
        assert served.resets_sent() == 1


def test_a_stalled_server_resets_connections_whose_requests_it_has_not_read(node: Node) -> None:
    settings = ServerSettings(on_stop=OnStop.STALL, exit_after_s=0.4)
    with serving(node, settings) as served, Client(served.addresses.v4) as kept:
        kept.ask()
        served.container.stop_signal(signal.SIGTERM)
        time.sleep(0.1)
        kept.send()
        with pytest.raises(ConnectionResetError):
            kept.receive()
        assert served.container.wait(1.0) == 0
        assert served.resets_sent() == 1


def test_a_holding_server_resets_what_waits_in_its_accept_queue(node: Node) -> None:
    settings = ServerSettings(on_stop=OnStop.HOLD, exit_after_s=0.4)
    with serving(node, settings) as served, Client(served.addresses.v4) as accepted:
        accepted.send("/slow?ms=200")
        time.sleep(0.1)
        served.container.stop_signal(signal.SIGTERM)
        time.sleep(0.05)
        with Client(served.addresses.v4) as waiting:
            waiting.send()
            assert accepted.receive().startswith("HTTP/1.1 200")
            with pytest.raises(ConnectionResetError):
                waiting.receive()
        assert served.container.wait(1.0) == 0
        assert served.resets_sent() == 1


def test_an_aborting_server_resets_a_request_that_it_has_read(node: Node) -> None:
    settings = ServerSettings(on_stop=OnStop.ABORT)
    with serving(node, settings) as served, Client(served.addresses.v4) as busy:
        busy.send("/slow?ms=2000")
        time.sleep(0.1)
        served.container.stop_signal(signal.SIGTERM)
        with pytest.raises(ConnectionResetError):
            busy.receive()
        assert served.container.wait(1.0) == 0


def test_a_server_without_a_handler_survives_the_stop_signal_until_it_is_killed(node: Node) -> None:
    with serving(node, ServerSettings(on_stop=OnStop.IGNORE)) as served:
        served.container.stop_signal(signal.SIGTERM)
        assert served.container.wait(0.2) is None
        with Client(served.addresses.v4) as client:
            assert client.ask().startswith("HTTP/1.1 200")
        served.container.kill()
        assert served.container.wait(1.0) == -signal.SIGKILL


def test_a_shell_as_pid_1_does_not_forward_the_stop_signal(node: Node) -> None:
    with serving(node, behind_shell=True) as served:
        served.container.stop_signal(signal.SIGTERM)
        assert served.container.wait(0.2) is None
        with Client(served.addresses.v4) as client:
            assert "Connection: keep-alive" in client.ask()
        served.container.kill()
        assert served.container.wait(1.0) == -signal.SIGKILL
        with pytest.raises(ConnectionRefusedError):
            Client(served.addresses.v4)


def test_only_the_declared_stop_signal_stops_the_server(node: Node) -> None:
    with serving(node, ServerSettings(stop_signals=(signal.SIGQUIT,))) as served:
        served.container.stop_signal(signal.SIGTERM)
        assert served.container.wait(0.2) is None
        served.container.stop_signal(signal.SIGQUIT)
        assert served.container.wait(1.0) == 0


def test_a_slow_starter_refuses_until_it_listens(node: Node) -> None:
    with serving(node, ServerSettings(bind_after_s=0.6)) as served:
        time.sleep(0.2)
        with pytest.raises(ConnectionRefusedError):
            Client(served.addresses.v4)
        time.sleep(0.8)
        with Client(served.addresses.v4) as client:
            assert client.ask().startswith("HTTP/1.1 200")


def test_a_slow_starter_that_is_stopped_early_ends_without_ever_listening(node: Node) -> None:
    with serving(node, ServerSettings(bind_after_s=30.0)) as served:
        time.sleep(0.3)
        served.container.stop_signal(signal.SIGTERM)
        assert served.container.wait(1.0) == 0


def test_the_accept_queue_of_a_server_that_never_accepts_fills_up(node: Node) -> None:
    settings = ServerSettings(accept=False, backlog=2)
    # The probe of `serving` is still in the queue, so two more fit into a backlog of 2.
    with (
        serving(node, settings) as served,
        Client(served.addresses.v4) as first,
        Client(served.addresses.v4, timeout_s=0.5) as second,
    ):
        with pytest.raises(TimeoutError):
            Client(served.addresses.v4, timeout_s=0.5)
        served.container.kill()
        for client in (first, second):
            with pytest.raises(ConnectionResetError):
                client.receive()


def test_a_wedged_health_check_hangs_while_requests_are_answered(node: Node) -> None:
    with (
        serving(node) as served,
        Client(served.addresses.v4) as client,
        Client(served.addresses.v4, timeout_s=0.3) as prober,
    ):
        assert prober.ask("/healthz").startswith("HTTP/1.1 200")
        client.ask("/wedge")
        prober.send("/healthz")
        with pytest.raises(TimeoutError):
            prober.receive()
        assert client.ask().startswith("HTTP/1.1 200")


def test_a_wedged_process_answers_nothing_and_does_not_stop(node: Node) -> None:
    with (
        serving(node) as served,
        Client(served.addresses.v4) as client,
        Client(served.addresses.v4, timeout_s=0.3) as other,
    ):
        client.ask("/wedge?what=process")
        other.send()
        with pytest.raises(TimeoutError):
            other.receive()
        served.container.stop_signal(signal.SIGTERM)
        assert served.container.wait(0.2) is None


def test_readiness_fails_once_a_server_is_stopping(node: Node) -> None:
    with (
        serving(node, ServerSettings(keep_accepting_s=0.5)) as served,
        Client(served.addresses.v4) as client,
    ):
        assert client.ask("/readyz").startswith("HTTP/1.1 200")
        served.container.stop_signal(signal.SIGTERM)
        time.sleep(0.1)
        assert client.ask("/readyz").startswith("HTTP/1.1 503")


def test_idle_connections_are_closed_after_the_servers_timeout(node: Node) -> None:
    settings = ServerSettings(idle_timeout_s=0.2)
    with serving(node, settings) as served, Client(served.addresses.v4) as client:
        assert "Connection: keep-alive" in client.ask()
        assert client.receive() == ""


def test_a_server_without_keep_alive_closes_after_each_answer(node: Node) -> None:
    with (
        serving(node, ServerSettings(keep_alive=False)) as served,
        Client(served.addresses.v4) as client,
    ):
        assert "Connection: close" in client.ask()
        assert client.receive() == ""


def test_a_server_on_ipv4_only_refuses_ipv6(node: Node) -> None:
    with serving(node, ServerSettings(host="0.0.0.0")) as served:
        assert served.addresses.v6 is not None
        with pytest.raises(ConnectionRefusedError):
            Client(served.addresses.v6)


def test_the_connection_log_holds_every_accepted_connection(node: Node, tmp_path: Path) -> None:
    log = tmp_path / "connections.jsonl"
    with serving(node, ServerSettings(connection_log=str(log))) as served:
        started_ns = time.time_ns()
        with Client(served.addresses.v4) as client:
            client.ask()
        lines = [json.loads(line) for line in log.read_text().splitlines()]
    logged = next(line for line in lines if line["peer_port"] == client.port)
    assert started_ns <= logged["accepted_ns"] <= time.time_ns()
    assert ":" not in logged["peer"]
