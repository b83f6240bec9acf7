"""Starts the loader child, takes the descriptors it hands over, and holds them."""

import array
import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from agent.kernel.btf_headers import DEFAULT_CACHE
from agent.kernel.errors import KernelSideError
from agent.kernel.hooks import COUNTED_HOOKS, SEND_RESET_ENTRIES, HookStatus

LOAD_TIMEOUT_SECONDS = 120
"""Compilation takes 1 to 2 s on a node; under software emulation about a minute."""

_HOOKS = {hook.name: hook for hook in (*COUNTED_HOOKS, *SEND_RESET_ENTRIES)}


@dataclass(frozen=True, slots=True)
class LoadedPrograms:
    """The programs in the kernel: they stay attached until the link descriptors are closed."""

    statuses: tuple[HookStatus, ...]
    maps: dict[str, int]
    programs: dict[str, int]
    links: dict[str, int]

    def close(self) -> None:
        """Detach everything; the kernel frees programs and maps with their last descriptor."""
        for descriptor in (*self.links.values(), *self.programs.values(), *self.maps.values()):
            os.close(descriptor)


def sources_directory() -> Path:
    """Where the C sources are: beside the package in a checkout, inside it once installed."""
    package = Path(__file__).resolve().parent.parent
    checkout = package.parent / "bpf"
    return checkout if (checkout / "records.h").is_file() else package / "bpf"


def load_programs(host_netns: int, cache: Path = DEFAULT_CACHE) -> LoadedPrograms:
    """Compile and attach every hook that this kernel offers.

    `host_netns` is the cookie of the node's own network namespace. Raises KernelSideError when nothing can be
    loaded; a single hook that cannot attach is reported in `statuses` instead.
    """
    ours, theirs = socket.socketpair()
    request = json.dumps(
        {"cache": str(cache), "sources": str(sources_directory()), "host_netns": host_netns},
    )
    with ours:
        with theirs:
            child = subprocess.Popen(
                [sys.executable, "-m", "agent.kernel.loader_child", str(theirs.fileno()), request],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                # Ctrl-C in a terminal goes to a whole process group, and is the parent's to answer.
                process_group=0,
            )
        try:
            ours.settimeout(LOAD_TIMEOUT_SECONDS)
            return _receive(ours, child)
        except TimeoutError:
            raise KernelSideError(
                f"the BPF programs were not loaded within {LOAD_TIMEOUT_SECONDS} s: is this node out of CPU?"
            ) from None
        finally:
            child.kill()
            child.wait()
            if child.stdout is not None:
                child.stdout.close()


def _receive(channel: socket.socket, child: subprocess.Popen[bytes]) -> LoadedPrograms:
    header = _read(channel, 4)
    if header is None:
        raise KernelSideError(f"the loader ended early: {_complaint(child)}")
    body = _read(channel, int.from_bytes(header, "big"))
    if body is None:
        raise KernelSideError(f"the loader ended early: {_complaint(child)}")
    answer = json.loads(body)
    if answer["error"]:
        raise KernelSideError(": ".join([answer["error"], *_reported_errors(_output(child))[:1]]))
    names: dict[str, dict[str, int]] = {"map": {}, "program": {}, "link": {}}
    for descriptor in answer["descriptors"]:
        kind, _, name = descriptor.partition(":")
        names[kind][name] = _receive_descriptor(channel)
    statuses = tuple(
        HookStatus(_HOOKS[hook["name"]], hook["attached"], hook["reason"]) for hook in answer["hooks"]
    )
    return LoadedPrograms(statuses, names["map"], names["program"], names["link"])


def _read(channel: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        try:
            part = channel.recv(size - len(data))
        except ConnectionResetError:
            return None
        if not part:
            return None
        data += part
    return data


def _receive_descriptor(channel: socket.socket) -> int:
    received = array.array("i")
    _, ancillary, _, _ = channel.recvmsg(1, socket.CMSG_SPACE(received.itemsize))
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            received.frombytes(data[: received.itemsize])
            return received[0]
    raise KernelSideError("the loader handed over no descriptor: is the limit of open files reached?")


def _complaint(child: subprocess.Popen[bytes]) -> str:
    """The line of the child's output that says most: a compiler error, else the last line."""
    lines = _output(child)
    return (_reported_errors(lines) or lines[-1:] or ["it printed nothing"])[0]


def _output(child: subprocess.Popen[bytes]) -> list[str]:
    child.kill()
    output = child.stdout.read() if child.stdout is not None else b""
    return [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]


def _reported_errors(lines: list[str]) -> list[str]:
    """As compilers and bcc write them."""
    return [line for line in lines if "error:" in line]
