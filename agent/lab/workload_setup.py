"""Putting a scenario's workload on the stage: Service, pods, proxies, and their removal."""

import random
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from agent.lab.controlplane.deployment import Deployment
from agent.lab.controlplane.endpoints import Backend, ingress_backends
from agent.lab.controlplane.ingress_controller import IngressController
from agent.lab.controlplane.node_objects import service_object
from agent.lab.controlplane.pod_template import PodTemplate
from agent.lab.controlplane.resources import ENDPOINT_SLICES, SERVICES
from agent.lab.controlplane.slice_objects import ServiceIdentity
from agent.lab.errors import LabError
from agent.lab.node.ingress import Ingress
from agent.lab.node.network import Addresses
from agent.lab.node.outcome import Via
from agent.lab.node.server import server_argv, shell_wrapped
from agent.lab.node.service import Endpoint, Service
from agent.lab.scenario import READYZ, Scenario, Variant, Workload
from agent.lab.stage import Stage

WORKLOAD = "web"
SERVICE_PORT = 80

_SYNC_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class RunningWorkload:
    """A workload that serves. `template` is what a rolling update gives its pods."""

    namespace: str
    deployment: Deployment
    template: PodTemplate
    service: Service
    ingress: Ingress | None
    directory: Path

    def connection_log(self, pod: str) -> Path:
        """The file in which the pod's server writes down what it accepts."""
        log = self.directory / f"{pod}.accepted"
        log.touch()
        return log


@contextmanager
def running_workload(
    stage: Stage, scenario: Scenario, variant: Variant, seed: int, *, keep: bool
) -> Iterator[RunningWorkload]:
    """Set it up and wait until it serves; at the end remove it, unless it is to be kept and all went well."""
    namespace = f"{scenario.name}-{variant.value}"
    chance = random.Random(f"{seed}/{namespace}")
    wanted = scenario.workload(variant)
    directory = stage.node.directory / namespace
    directory.mkdir()
    with ExitStack() as stack:
        identity = _service_identity(namespace, chance)
        service = stage.node.service(namespace, SERVICE_PORT)
        stack.callback(service.remove)
        stage.store.create(SERVICES, service_object(identity, service.v4, SERVICE_PORT, time.time()))
        stack.callback(stage.store.delete, SERVICES, namespace, identity.name)
        stage.slices.add(identity)
        stack.callback(stage.slices.remove, identity)

        def apply(backends: list[Backend]) -> None:
            service.sync([_endpoint(backend) for backend in backends])

        stage.kube_proxy.follow(identity, apply, delay_seconds=0.0)
        stack.callback(stage.kube_proxy.unfollow, identity)
        deployment = Deployment(stage.kubelet, namespace, WORKLOAD, wanted.replicas, chance)
        stack.callback(stage.kubelet.discard_all)
        deployment.start(_template(_warm(wanted), directory))
        backends = _wait_synced(stage, identity, service, wanted.replicas)
        stage.kube_proxy.follow(identity, apply, scenario.lag.kube_proxy)
        ingress = None
        if any(stream.via is Via.INGRESS for stream in scenario.load):
            ingress = Ingress.start(stage.node, stage.ingress, [_endpoint(backend) for backend in backends])
            stack.callback(ingress.stop)
            controller = _ingress_controller(stage, scenario, identity, ingress)
            stack.callback(controller.stop)
        yield RunningWorkload(
            namespace, deployment, _template(wanted, directory), service, ingress, directory
        )
        if keep:
            stack.pop_all()


def _ingress_controller(
    stage: Stage, scenario: Scenario, identity: ServiceIdentity, ingress: Ingress
) -> IngressController:
    def reload(backends: list[Backend]) -> None:
        ingress.reload([_endpoint(backend) for backend in backends])

    return IngressController(stage.store, identity, reload, scenario.lag.ingress)


def _service_identity(namespace: str, chance: random.Random) -> ServiceIdentity:
    return ServiceIdentity(
        namespace=namespace,
        name=WORKLOAD,
        uid=str(uuid.uuid4()),
        slice_name=f"{WORKLOAD}-{chance.randrange(36**5):05x}",
        slice_uid=str(uuid.uuid4()),
        port=8080,
    )


def _warm(workload: Workload) -> Workload:
    """The workload as it was before the update: it has long started, and is known to be ready."""
    return replace(workload, server=replace(workload.server, bind_after_s=0.0), readiness=READYZ)


def _template(workload: Workload, directory: Path) -> PodTemplate:
    server = replace(workload.server, connection_log=f"{directory}/$(POD_NAME).accepted")
    argv = server_argv(server)
    return PodTemplate(
        argv=tuple(shell_wrapped(argv) if workload.shell else argv),
        port=server.port,
        grace_seconds=workload.grace_seconds,
        prestop=workload.prestop,
        readiness=workload.readiness,
        liveness=workload.liveness,
    )


def _endpoint(backend: Backend) -> Endpoint:
    v4, v6 = (*backend.addresses, None)[:2]
    assert v4 is not None
    return Endpoint(Addresses(v4, v6), backend.port)


def _wait_synced(stage: Stage, identity: ServiceIdentity, service: Service, replicas: int) -> list[Backend]:
    """Wait until the slice has every pod and the rules have every endpoint. Raises LabError."""
    deadline = time.monotonic() + _SYNC_SECONDS
    while time.monotonic() < deadline:
        endpoint_slice = stage.store.get(ENDPOINT_SLICES, identity.namespace, identity.slice_name)
        if endpoint_slice is not None and len(service.endpoints) == replicas:
            backends = ingress_backends(stage.store, endpoint_slice)
            if len(backends) == replicas:
                return backends
        time.sleep(0.01)
    raise LabError(f"the Service's rules do not have {replicas} endpoints after {_SYNC_SECONDS:.0f} s")
