"""A node with a bridge, a client outside its pods, and the stand-in for the API server."""

from collections.abc import Iterator

import pytest

from agent.lab.controlplane.api import ApiServer
from agent.lab.node.client_namespace import ClientNamespace
from agent.lab.node.network import Cni
from agent.lab.node.node import Node


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with Node.start(Cni.BRIDGE) as started:
        yield started


@pytest.fixture(scope="module")
def outside(node: Node) -> ClientNamespace:
    return node.client_namespace("outside")


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server
