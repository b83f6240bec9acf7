import array
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import agent
from agent.lab.node.errors import NodeError

MESSAGE_BYTES = 1 << 17
START_TIMEOUT_S = 10.0
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def module_argv(module: str, *arguments: str) -> list[str]:
    """The command that runs one of this package's modules in the interpreter that runs the lab."""
    return [sys.executable, "-m", module, *arguments]


def module_environment() -> dict[str, str]:
    """The environment in which `module_argv` finds this package, installed or not."""
    return {"PYTHONPATH": str(Path(agent.__file__).parents[1])}


class Process:
    """A process that the runtime started; signalled from here it is signalled from outside its pod."""

    def __init__(self, runtime: "Runtime", number: int, pid: int, pidfd: int) -> None:
        self.pid = pid
        self.number = number
        self._runtime = runtime
        self._pidfd = pidfd
        self._ended = threading.Event()
        self._status: int | None = None

    @property
    def status(self) -> int | None:
        """Exit code, or minus the number of the signal that killed it; None while it runs."""
        return self._status

    def signal(self, signum: int) -> None:
        """Send a signal; none is sent to a process that has ended."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signum)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for the end, at most `timeout` seconds; the status as above."""
        self._ended.wait(timeout)
        return self._status

    def _end(self, status: int) -> None:
        self._status = status
        self._ended.set()

    def __del__(self) -> None:
        os.close(self._pidfd)


@dataclass
class _Pending:
    answered: threading.Event
    process: Process | None = None
    error: str | None = None


class Runtime:
    """Starts processes in namespaces and cgroups; its own process ends them should the lab die."""

    def __init__(self, control: socket.socket, process: subprocess.Popen[bytes]) -> None:
        self._control = control
        self._process = process
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._pending: dict[int, _Pending] = {}
        self._running: dict[int, Process] = {}
        self._reader = threading.Thread(target=self._read, name="lab-runtime", daemon=True)
        self._reader.start()

    @classmethod
    def launch(cls) -> Self:
        """Start the runtime's process."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    str(Path(__file__).with_name("runtime_process.py")),
                    str(theirs.fileno()),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        return cls(ours, process)

    def start(
        self,
        argv: Sequence[str] | None,
        *,
        environment: Mapping[str, str] | None = None,
        namespace: Path | None = None,
        cgroup: Path | None = None,
        init: bool = False,
        joining: Process | None = None,
        output: Path | None = None,
    ) -> Process:
        """Start a process and return once its program runs.

        `argv` None is a pause process. `namespace` is the network namespace's path; `init` makes it PID 1 of
        a new pid namespace; `joining` puts it into the pid namespace of that process. Raises NodeError if it
        cannot run.
        """
        number = next(self._numbers)
        pending = _Pending(threading.Event())
        command = {
            "number": number,
            "argv": list(argv) if argv is not None else None,
            "env": {"PATH": SEARCH_PATH, "LANG": "C.UTF-8", **(environment or {})},
            "netns": str(namespace) if namespace else None,
            "cgroup": str(cgroup) if cgroup else None,
            "init": init,
            "join": joining.number if joining else None,
            "output": str(output) if output else None,
        }
        with self._lock:
            self._pending[number] = pending
            try:
                self._control.send(json.dumps(command).encode())
            except OSError as error:
                raise NodeError(f"the lab's runtime process is gone: {error.strerror}") from None
        if not pending.answered.wait(START_TIMEOUT_S):
            raise NodeError("the lab's runtime process does not answer")
        if pending.process is None:
            what = argv[0] if argv else "pause"
            raise NodeError(f"cannot start {what}: {pending.error}")
        return pending.process

    def close(self) -> None:
        """Kill every process that was started and is still there; returns when they are reaped."""
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        try:
            self._process.wait(START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(START_TIMEOUT_S)
        self._control.close()

    def _read(self) -> None:
        while True:
            try:
                message, descriptors = _receive(self._control)
            except OSError:
                message, descriptors = b"", []
            if not message:
                self._give_up()
                return
            self._dispatch(json.loads(message), descriptors)

    def _dispatch(self, message: dict[str, Any], descriptors: list[int]) -> None:
        number: int = message["number"]
        if "status" in message:
            self._running.pop(number)._end(message["status"])
            return
        with self._lock:
            pending = self._pending.pop(number)
        if "error" in message:
            pending.error = message["error"]
        else:
            process = Process(self, number, message["pid"], descriptors[0])
            self._running[number] = process
            pending.process = process
        pending.answered.set()

    def _give_up(self) -> None:
        """The runtime's process has ended, and with it all that it had started."""
        for process in self._running.values():
            process._end(-signal.SIGKILL)
        self._running.clear()
        with self._lock:
            for pending in self._pending.values():
                pending.error = "the lab's runtime process is gone"
                pending.answered.set()
            self._pending.clear()


def _receive(control: socket.socket) -> tuple[bytes, list[int]]:
    size = array.array("i").itemsize
    message, ancillary, _, _ = control.recvmsg(
        MESSAGE_BYTES, socket.CMSG_SPACE(4 * size), socket.MSG_CMSG_CLOEXEC
    )
    descriptors = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(data[: len(data) - len(data) % size])
    return message, list(descriptors)
