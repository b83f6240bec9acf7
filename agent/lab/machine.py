"""The lab's node as the kubelet player sees it."""

from collections.abc import Callable, Mapping

from agent.lab.node.node import Node
from agent.lab.node.pod import Container, Pod
from agent.lab.node.probe import ProbeKind, Prober, ProbeResult, ProbeTarget


class PodSandbox:
    """A pod of the lab's node."""

    def __init__(self, pod: Pod) -> None:
        self._pod = pod

    @property
    def ip_addresses(self) -> tuple[str, ...]:
        """The pod's addresses, IPv4 first."""
        addresses = self._pod.addresses
        return (addresses.v4,) if addresses.v6 is None else (addresses.v4, addresses.v6)

    def start_container(self, argv: tuple[str, ...], env: Mapping[str, str]) -> Container:
        """Start a container in the pod."""
        return self._pod.start_container(argv, env)

    def kill_pause(self) -> None:
        """SIGKILL the pause process."""
        self._pod.kill_pause()

    def remove_network(self) -> None:
        """Remove the pod's link and its network namespace."""
        self._pod.remove_network()

    def remove(self) -> None:
        """Remove what is left of the pod."""
        self._pod.remove()


class Machine:
    """The runtime that the kubelet player uses: pods of the node, probes of its prober."""

    def __init__(self, node: Node, prober: Prober) -> None:
        self._node = node
        self._prober = prober

    def start_sandbox(self, name: str, uid: str) -> PodSandbox:
        """Start a pod without containers."""
        return PodSandbox(self._node.start_pod(name, uid))

    def watch_probe(
        self,
        name: str,
        address: str,
        port: int,
        path: str,
        period: float,
        timeout: float,
        on_result: Callable[[bool], None],
    ) -> None:
        """Probe until the probe is forgotten."""
        target = ProbeTarget(name, ProbeKind.HTTP_GET, address, port, path, period, timeout)

        def report(result: ProbeResult) -> None:
            on_result(result.success)

        self._prober.watch(target, report)

    def forget_probe(self, name: str) -> None:
        """Stop a probe."""
        self._prober.forget(name)
