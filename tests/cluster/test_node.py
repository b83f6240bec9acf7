"""A node name that the API server does not know is said, once; needs loopback only."""

from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from agent.cluster.connection import ApiConnection
from agent.cluster.node import warn_if_unknown
from agent.lab.controlplane.api import ApiServer
from agent.lab.controlplane.node_objects import node_object
from agent.lab.controlplane.resources import NODES
from tests.cluster.api_server import NODE, connection_to
from tests.cluster.scripted_server import ok, scripted
from tests.cluster.test_source_lookup import connection_to as connection_to_scripted


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer(token="secret") as server:
        server.store.create(NODES, node_object(NODE, "192.0.2.1", 1_796_000_000))
        yield server


@pytest.fixture
def connection(api: ApiServer, tmp_path: Path) -> ApiConnection:
    return connection_to(api, tmp_path)


@pytest.mark.parametrize("name", ["other-node", "LAB-NODE", f"{NODE}/status", "näme", "a?b#c"])
def test_a_name_that_no_node_has_is_one_line_that_says_what_to_do(
    name: str, api: ApiServer, connection: ApiConnection, caplog: pytest.LogCaptureFixture
) -> None:
    warn_if_unknown(connection, name)
    (message,) = caplog.messages
    assert message.startswith(f"the API server knows no node {name}, ")
    assert message.endswith("with --node-name")
    assert api.traffic().requests == {("get", "nodes"): 1}


def test_a_node_that_is_known_is_asked_for_once_and_nothing_is_said(
    api: ApiServer, connection: ApiConnection, caplog: pytest.LogCaptureFixture
) -> None:
    warn_if_unknown(connection, NODE)
    assert caplog.messages == []
    assert api.traffic().requests == {("get", "nodes"): 1}


@pytest.mark.parametrize("code", [HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS])
def test_an_api_server_that_does_not_say_accuses_no_name(
    code: HTTPStatus, api: ApiServer, connection: ApiConnection, caplog: pytest.LogCaptureFixture
) -> None:
    api.faults.fail_with = code
    warn_if_unknown(connection, NODE)
    api.stop()
    warn_if_unknown(connection, NODE)
    assert caplog.messages == []


def test_the_node_is_asked_for_from_the_cache_of_the_api_server(caplog: pytest.LogCaptureFixture) -> None:
    with scripted(lambda _: iter([ok(b"{}")])) as server:
        warn_if_unknown(connection_to_scripted(server), NODE)
        (request,) = server.requests
    assert request.startswith(f"GET /api/v1/nodes/{NODE}?resourceVersion=0 ".encode())
    assert caplog.messages == []
