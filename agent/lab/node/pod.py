import os
import secrets
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from agent.lab.node import host_command
from agent.lab.node.cgroup import Cgroups
from agent.lab.node.lease import Lease
from agent.lab.node.leftover import Leftover, LeftoverKind, remove
from agent.lab.node.network import Network
from agent.lab.node.runtime import Process, Runtime

NAMESPACES = Path("/run/netns")


class Container:
    """A program in its pod's network namespace and its own cgroup, as PID 1 unless the pod shares its own."""

    def __init__(self, pod: "Pod", process: Process, container_id: str, cgroup_path: Path) -> None:
        self.container_id = container_id
        self.cgroup_path = cgroup_path
        self._pod = pod
        self._process = process

    @property
    def pid(self) -> int:
        """Of its PID 1, in the host's pid namespace."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Exit code, or minus the number of the signal that killed it; None while it runs."""
        return self._process.status

    def stop_signal(self, signum: int) -> None:
        """Send the stop signal to PID 1 from outside the pod, as runc does (si_code 0)."""
        self._process.signal(signum)

    def kill(self) -> None:
        """SIGKILL to the program; if it is PID 1, the kernel then kills the rest of the container."""
        self._process.kill()

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait at most `timeout` seconds for the end; the status as above."""
        return self._process.wait(timeout)

    def exec_in(self, argv: Sequence[str], environment: Mapping[str, str] | None = None) -> Process:
        """Start a process in the container's cgroup, pid and network namespaces, as an exec hook is started.

        Raises NodeError if the program cannot be executed or the container has ended.
        """
        return self._pod.exec_in(self, self._process, argv, environment)

    def remove(self) -> None:
        """Remove the cgroup of a container that has ended."""
        self._pod.remove_container(self)


class Pod:
    """A pod: a network namespace held by a pause process, its address, and its containers.

    A deletion in the kubelet's order: stop_signal or kill and wait for each container, kill_pause,
    remove_network, remove. `remove` alone does all of it at once.
    """

    def __init__(
        self, runtime: Runtime, network: Network, cgroups: Cgroups, lease: Lease, name: str, uid: str
    ) -> None:
        self.name = name
        self.uid = uid
        self.netns = f"cni-{uuid.uuid4()}"
        self.netns_path = NAMESPACES / self.netns
        self.log_path = lease.directory / f"{name}-{uid[:8]}.log"
        self._runtime = runtime
        self._network = network
        self._cgroups = cgroups
        self._containers: list[Container] = []
        lease.note(LeftoverKind.NETNS, self.netns)
        host_command.run(["ip", "netns", "add", self.netns])
        self.pause_id = secrets.token_hex(32)
        pause_cgroup = cgroups.create_container(uid, self.pause_id)
        self._pause = runtime.start(None, namespace=self.netns_path, cgroup=pause_cgroup, init=True)
        self._pause_cgroup = pause_cgroup
        self.addresses = network.attach(self.netns)

    @classmethod
    def start(
        cls,
        runtime: Runtime,
        network: Network,
        cgroups: Cgroups,
        lease: Lease,
        name: str,
        uid: str | None = None,
    ) -> Self:
        """Make the pod's namespace, pause process and network. `uid` is its API UID (8-4-4-4-12 hex)."""
        return cls(runtime, network, cgroups, lease, name, uid or str(uuid.uuid4()))

    @property
    def netns_inode(self) -> int:
        return os.stat(self.netns_path).st_ino

    @property
    def pause_pid(self) -> int:
        return self._pause.pid

    @property
    def containers(self) -> tuple[Container, ...]:
        return tuple(self._containers)

    def start_container(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str] | None = None,
        container_id: str | None = None,
        *,
        share_process_namespace: bool = False,
    ) -> Container:
        """Start a container and return once its program runs; its output goes to `log_path`.

        With `share_process_namespace` (shareProcessNamespace of a pod) it is no PID 1: the pause process is.
        """
        container_id = container_id or secrets.token_hex(32)
        cgroup = self._cgroups.create_container(self.uid, container_id)
        process = self._runtime.start(
            argv,
            environment=environment,
            namespace=self.netns_path,
            cgroup=cgroup,
            init=not share_process_namespace,
            joining=self._pause if share_process_namespace else None,
            output=self.log_path,
        )
        container = Container(self, process, container_id, cgroup)
        self._containers.append(container)
        return container

    def exec_in(
        self,
        container: Container,
        init: Process,
        argv: Sequence[str],
        environment: Mapping[str, str] | None,
    ) -> Process:
        return self._runtime.start(
            argv,
            environment=environment,
            namespace=self.netns_path,
            cgroup=container.cgroup_path,
            joining=init,
            output=self.log_path,
        )

    def remove_container(self, container: Container) -> None:
        self._cgroups.remove_container(container.cgroup_path)
        if container in self._containers:
            self._containers.remove(container)

    def kill_pause(self) -> None:
        """SIGKILL the pause process, as the runtime does when it stops the sandbox."""
        self._pause.kill()
        self._pause.wait(10.0)

    def remove_network(self) -> None:
        """Remove the veth pair, then the network namespace, as CNI DEL and the runtime do."""
        self._network.detach(self.netns)
        remove(Leftover(LeftoverKind.NETNS, self.netns))

    def remove(self) -> None:
        """End whatever is left of the pod and remove its cgroups; harmless when repeated."""
        for container in self.containers:
            container.kill()
        for container in self.containers:
            container.wait(10.0)
            container.remove()
        self.kill_pause()
        self.remove_network()
        self._cgroups.remove_container(self._pause_cgroup)
        self._cgroups.remove_pod(self.uid)
