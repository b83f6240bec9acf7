"""The attached programs and a pod network, shared by the tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.core.records import KernelRecord
from agent.kernel.kernel_side import KernelSide
from agent.lab.node.client_namespace import ClientNamespace
from agent.lab.node.network import Cni
from agent.lab.node.node import Node
from tests.kernel.recording_kernel import RecordingKernel
from tests.kernel.scripted_pod import Client, ScriptedPod, client_of, discard, scripted_pod


@pytest.fixture(scope="session")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelSide]:
    side = KernelSide(Path(tmp_path_factory.mktemp("cache")), discard)
    assert [
        status for status in side.statuses if (status.reason or "").startswith("the kernel does not")
    ] == []
    side.start()
    yield side
    side.stop()


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordingKernel]:
    records: list[KernelRecord] = []
    side = KernelSide(Path(tmp_path_factory.mktemp("cache")), records.append)
    side.start()
    yield RecordingKernel(side, records)
    side.stop()


@pytest.fixture(scope="session", params=list(Cni), ids=lambda cni: str(cni.value))
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    with Node.start(request.param) as started:
        yield started


@pytest.fixture(scope="session")
def bridge() -> Iterator[Node]:
    with Node.start(Cni.BRIDGE) as started:
        yield started


@pytest.fixture(scope="session")
def namespace(node: Node) -> ClientNamespace:
    return node.client_namespace("client")


@pytest.fixture(scope="session")
def outside(bridge: Node) -> ClientNamespace:
    return bridge.client_namespace("outside")


@pytest.fixture
def pod(kernel: KernelSide, bridge: Node) -> Iterator[ScriptedPod]:
    with scripted_pod(kernel, bridge) as started:
        yield started


@pytest.fixture
def client(outside: ClientNamespace, pod: ScriptedPod) -> Iterator[Client]:
    with client_of(outside, pod.pod.addresses.v4) as made:
        yield made
