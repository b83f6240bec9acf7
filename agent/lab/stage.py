"""What stays up for a whole lab run: the node, the control plane, the agent under test."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent.lab.agent_process import AgentProcess
from agent.lab.controlplane.api import ApiServer
from agent.lab.controlplane.kube_proxy import KubeProxy
from agent.lab.controlplane.kubeconfig import write_kubeconfig
from agent.lab.controlplane.kubelet import Kubelet
from agent.lab.controlplane.node_objects import node_object
from agent.lab.controlplane.resources import NODES
from agent.lab.controlplane.slice_controller import SliceController
from agent.lab.controlplane.store import Store
from agent.lab.machine import Machine
from agent.lab.node.client_namespace import ClientNamespace
from agent.lab.node.network import Cni
from agent.lab.node.node import Node

NODE_NAME = "lab-node"


@dataclass(frozen=True, slots=True)
class Stage:
    """The parts of a running lab. `agent` is None only in tests that leave it out.

    nginx has a namespace, and with it an address, of its own: with one address for both, a connection through
    the Service and one of nginx's may want the same ports to the same pod, and the node's address translation
    then gives one of them another port, or a new one for every SYN.
    """

    node: Node
    clients: ClientNamespace
    ingress: ClientNamespace
    store: Store
    api: ApiServer
    slices: SliceController
    kube_proxy: KubeProxy
    kubelet: Kubelet
    kubeconfig: Path
    agent: AgentProcess | None

    @property
    def client_addresses(self) -> frozenset[str]:
        """Where connections of clients come from; all others to a pod are the kubelet's."""
        namespaces = (self.clients.addresses, self.ingress.addresses)
        found = [address for addresses in namespaces for address in (addresses.v4, addresses.v6)]
        return frozenset(address for address in found if address is not None)


@contextmanager
def stage(cni: Cni, *, with_agent: bool) -> Iterator[Stage]:
    """Set everything up, and take it down at the end. Raises LabError and NodeError."""
    with ExitStack() as stack:
        node = stack.enter_context(Node.start(cni))
        prober = node.prober()
        stack.callback(prober.close)
        store = Store()
        api = stack.enter_context(ApiServer(store))
        host_address = str(node.lease.plan.pods_v4[1])
        store.create(NODES, node_object(NODE_NAME, host_address, time.time()))
        slices = SliceController(store)
        stack.callback(slices.stop)
        kube_proxy = KubeProxy(store)
        stack.callback(kube_proxy.stop)
        kubelet = Kubelet(store, NODE_NAME, host_address, Machine(node, prober))
        kubeconfig = write_kubeconfig(node.directory / "kubeconfig", api.url)
        agent = None
        if with_agent:
            log = node.directory / "agent.log"
            agent = AgentProcess(NODE_NAME, kubeconfig, kube_proxy.metrics_url, log)
            stack.callback(agent.stop)
        clients, ingress = node.client_namespace("clients"), node.client_namespace("ingress")
        yield Stage(node, clients, ingress, store, api, slices, kube_proxy, kubelet, kubeconfig, agent)
