import itertools
from pathlib import Path
from types import TracebackType
from typing import Self

from agent.lab.node import host_command
from agent.lab.node.cgroup import CgroupDriver, Cgroups
from agent.lab.node.client_namespace import ClientNamespace
from agent.lab.node.clients import Load, LoadPlan
from agent.lab.node.host_settings import ipv6_available, restore_if_unused
from agent.lab.node.lease import Lease
from agent.lab.node.leftover import LeftoverKind
from agent.lab.node.network import Cni, Network
from agent.lab.node.pod import NAMESPACES, Pod
from agent.lab.node.probe import Prober
from agent.lab.node.runtime import Runtime
from agent.lab.node.service import Service


class Node:
    """One lab run's node. Use it as a context manager: leaving it removes everything it made."""

    def __init__(self, lease: Lease, cgroups: Cgroups, network: Network) -> None:
        self.lease = lease
        self.cgroups = cgroups
        self.network = network
        self.runtime = Runtime.launch()
        self._service_numbers = itertools.count(1)
        self._load_numbers = itertools.count(1)
        self._probers: list[Prober] = []

    @classmethod
    def start(cls, cni: Cni, driver: CgroupDriver = CgroupDriver.CGROUPFS) -> Self:
        """Remove what dead runs left, claim names and addresses, and make the pod network.

        Raises NodeError: not root, no cgroup v2, a tool missing, no free addresses.
        """
        lease = Lease.claim()
        try:
            return cls(lease, Cgroups(lease, driver), Network(lease, cni))
        except BaseException:
            lease.close()
            restore_if_unused()
            raise

    @property
    def directory(self) -> Path:
        """Where this run's logs and records are; removed at the end."""
        return self.lease.directory

    def client_namespace(self, name: str) -> ClientNamespace:
        """Make a client namespace; it lives as long as the node."""
        netns = f"lastcall-lab-{self.lease.index}-{name}"
        self.lease.note(LeftoverKind.NETNS, netns)
        host_command.run(["ip", "netns", "add", netns])
        return ClientNamespace(NAMESPACES / netns, self.network.attach(netns))

    def service(self, name: str, port: int) -> Service:
        """Make a Service address with no endpoints; names must differ within a run."""
        return Service(self.lease, name, next(self._service_numbers), port, ipv6=ipv6_available())

    def start_pod(self, name: str, uid: str | None = None) -> Pod:
        """Make a pod without containers: namespace, pause process, network."""
        return Pod.start(self.runtime, self.network, self.cgroups, self.lease, name, uid)

    def start_load(self, namespace: ClientNamespace, plan: LoadPlan) -> Load:
        """Start a load generator in the namespace."""
        records = self.directory / f"load-{next(self._load_numbers)}.jsonl"
        return Load.start(self.runtime, namespace.path, plan, records)

    def prober(self) -> Prober:
        """Start a kubelet-style prober in the host's network namespace."""
        prober = Prober()
        self._probers.append(prober)
        return prober

    def close(self) -> None:
        """End every process and remove everything that this run put on the host."""
        for prober in self._probers:
            prober.close()
        self.runtime.close()
        self.lease.close()
        restore_if_unused()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
