"""A machine without processes: containers that obey at once or never, and a log of what was asked of them."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class FinishedProcess:
    """A hook's process that has already ended."""

    exit_code: int

    def wait(self, timeout: float) -> int | None:
        return self.exit_code


@dataclass(slots=True)
class FakeContainer:
    machine: "FakeMachine"
    argv: tuple[str, ...]
    env: Mapping[str, str]
    container_id: str
    ended: threading.Event = field(default_factory=threading.Event)
    status: int | None = None

    def stop_signal(self, number: int) -> None:
        self.machine.note("stop signal")
        if not self.machine.ignores_sigterm:
            self._end(0)

    def kill(self) -> None:
        self.machine.note("kill")
        self._end(-9)

    def wait(self, timeout: float) -> int | None:
        self.ended.wait(timeout)
        return self.status

    def exec_in(self, argv: list[str]) -> FinishedProcess:
        self.machine.note("hook")
        return FinishedProcess(self.machine.hook_exit_code)

    def _end(self, status: int) -> None:
        self.status = status
        self.ended.set()


@dataclass(slots=True)
class FakeSandbox:
    machine: "FakeMachine"
    ip_addresses: tuple[str, ...] = ("10.9.0.7", "fd00::7")

    def start_container(self, argv: tuple[str, ...], env: Mapping[str, str]) -> FakeContainer:
        number = len(self.machine.containers)
        container = FakeContainer(self.machine, argv, env, f"{number:064x}")
        self.machine.containers.append(container)
        return container

    def kill_pause(self) -> None:
        self.machine.note("pause killed")

    def remove_network(self) -> None:
        self.machine.note("network removed")

    def remove(self) -> None:
        self.machine.note("removed")


@dataclass(slots=True)
class FakeMachine:
    """Probes pass at once; a test calls the callbacks in `probes` for what comes later."""

    ignores_sigterm: bool = False
    hook_exit_code: int = 0
    containers: list[FakeContainer] = field(default_factory=list)
    probes: dict[str, Callable[[bool], None]] = field(default_factory=dict)
    log: list[tuple[float, str]] = field(default_factory=list)

    def note(self, what: str) -> None:
        self.log.append((time.monotonic(), what))

    def when(self, what: str) -> float:
        return next(moment for moment, noted in self.log if noted == what)

    def start_sandbox(self, name: str, uid: str) -> FakeSandbox:
        return FakeSandbox(self)

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
        self.probes[name.rsplit("/", 1)[1]] = on_result
        on_result(True)

    def forget_probe(self, name: str) -> None:
        self.probes.pop(name.rsplit("/", 1)[1], None)
