"""What the kubelet player needs of the machine (pods, containers, probes); `agent.lab.node` provides it."""

from collections.abc import Callable, Mapping
from typing import Protocol

from agent.lab.controlplane.prestop import HookContainer


class Container(HookContainer, Protocol):
    """A running container; its init process is signalled from outside, as a runtime does."""

    @property
    def container_id(self) -> str:
        """64 hex digits."""

    def stop_signal(self, number: int) -> None:
        """Signal the init process."""

    def kill(self) -> None:
        """SIGKILL the init process."""

    def wait(self, timeout: float) -> int | None:
        """Its exit code (or minus the signal that ended it), None if it runs on after `timeout` seconds."""


class Sandbox(Protocol):
    """A pod's network namespace and the pause process that holds it."""

    @property
    def ip_addresses(self) -> tuple[str, ...]:
        """The pod's addresses, the one of the Services first."""

    def start_container(self, argv: tuple[str, ...], env: Mapping[str, str]) -> Container:
        """Start a container in the pod."""

    def kill_pause(self) -> None:
        """SIGKILL the pause process."""

    def remove_network(self) -> None:
        """Take the pod's link away, as CNI DEL does."""

    def remove(self) -> None:
        """Remove what is left, whatever state it is in."""


class Runtime(Protocol):
    """Starts pods and probes them."""

    def start_sandbox(self, name: str, uid: str) -> Sandbox:
        """Start a pod without containers."""

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
        """GET `path` every `period` seconds from a process named kubelet; report whether the probe passed."""

    def forget_probe(self, name: str) -> None:
        """Stop a probe; unknown names are fine."""
