import itertools
from pathlib import Path
from types import TracebackType
from typing import Self

from agent.lab.node import host_command
from agent.lab.node.cgroup import CgroupDriver, Cgroups
from agent.lab.node.clients import Load, LoadPlan
from agent.lab.node.host_settings import ipv6_available, restore_if_unused
from agent.lab.node.lease import Lease
from agent.lab.node.leftover import LeftoverKind
from agent.lab.node.network import Addresses, Cni, Network
from agent.lab.node.pod import NAMESPACES, Pod
from agent.lab.node.probe import Prober
from agent.lab.node.runtime import Runtime
from agent.lab.node.service import Service


class ClientNamespace:
    """A network namespace on the pod network that belongs to no pod: where load generators and nginx run."""

    def __init__(self, netns: str, addresses: Addresses) -> None:
        self.path = NAMESPACES / netns
        self.addresses = addresses


class Node:
    """One lab run's node. Use it as a context manager: leaving it removes everything it made."""

    def __init__(self, lease: Lease, cni: Cni, driver: CgroupDriver) -> None:
        self.lease = lease
        self.cni = cni
        self.cgroups = Cgroups(lease, driver)
        self.runtime = Runtime.launch()
        self.network = Network(lease, cni)
        self._service_numbers = itertools.count(1)
        self._load_numbers = itertools.count(1)

    @classmethod
    def start(cls, cni: Cni, driver: CgroupDriver = CgroupDriver.CGROUPFS) -> Self:
        """Remove what dead runs left, claim names and addresses, and make the pod network.

        Raises NodeError: not root, no cgroup v2, a tool missing, no free addresses.
        """
        lease = Lease.claim()
        try:
            return cls(lease, cni, driver)
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
        return ClientNamespace(netns, self.network.attach(netns))

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
        return Prober()

    def close(self) -> None:
        """End every process and remove everything that this run put on the host."""
        self.runtime.close()
        self.lease.close()
        restore_if_unused()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
