"""Starts the lab's processes, as a container runtime does; run by file name, one thread only.

It reads commands from the SOCK_SEQPACKET socket in argv[1] and answers each with the process's pid and pidfd,
then once more when that process has ended. When the socket closes, it kills all it started and ends.
"""

import ctypes
import json
import os
import selectors
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
MESSAGE_BYTES = 1 << 17
SET_ASIDE_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)

libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Child:
    number: int
    pid: int
    pidfd: int
    pid_namespace: int


def checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def enter(path: str, kind: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        checked(libc.setns(descriptor, kind), f"setns {path}")
    finally:
        os.close(descriptor)


def become(command: dict[str, Any]) -> NoReturn:
    """In the child: take the command's place in the node, then run its program or pause for ever."""
    checked(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    if command["cgroup"]:
        with open(os.path.join(command["cgroup"], "cgroup.procs"), "w") as procs:
            procs.write("0")
    if command["netns"]:
        enter(command["netns"], CLONE_NEWNET)
    for number in SET_ASIDE_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if command["output"]:
        output = os.open(command["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
    if command["argv"]:
        os.execvpe(command["argv"][0], command["argv"], command["env"])
    with open("/proc/self/comm", "w") as comm:
        comm.write("pause")
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    while True:
        signal.pause()


def fork(command: dict[str, Any], joined: Child | None, own_pid_namespace: int) -> int:
    """Fork the command's process, if asked as PID 1 of a new pid namespace; returns once its program runs."""
    complaints, complain = os.pipe()
    if command["init"]:
        checked(libc.unshare(CLONE_NEWPID), "unshare")
    elif joined:
        checked(libc.setns(joined.pid_namespace, CLONE_NEWPID), "setns")
    try:
        pid = os.fork()
        if pid == 0:
            try:
                become(command)
            except OSError as error:
                os.write(complain, str(error).encode())
            finally:
                os._exit(127)
    finally:
        checked(libc.setns(own_pid_namespace, CLONE_NEWPID), "setns")
        os.close(complain)
        with os.fdopen(complaints, "rb") as reader:
            complaint = reader.read().decode()
    if complaint:
        os.waitpid(pid, 0)
        raise OSError(complaint)
    return pid


class RuntimeProcess:
    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.selector = selectors.DefaultSelector()
        self.selector.register(control, selectors.EVENT_READ)
        self.children: dict[int, Child] = {}
        self.own_pid_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)

    def run(self) -> None:
        while True:
            for key, _ in self.selector.select():
                if isinstance(key.data, Child):
                    self.reap(key.data)
                    continue
                message = self.control.recv(MESSAGE_BYTES)
                if not message:
                    self.kill_all()
                    return
                self.obey(json.loads(message))

    def obey(self, command: dict[str, Any]) -> None:
        number = command["number"]
        joined = self.children.get(command["join"])
        try:
            if command["join"] is not None and joined is None:
                raise OSError("the container is not running")
            pid = fork(command, joined, self.own_pid_namespace)
        except OSError as error:
            self.tell({"number": number, "error": str(error)})
            return
        child = Child(
            number, pid, os.pidfd_open(pid), os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        )
        self.children[number] = child
        self.selector.register(child.pidfd, selectors.EVENT_READ, child)
        socket.send_fds(self.control, [json.dumps({"number": number, "pid": pid}).encode()], [child.pidfd])

    def reap(self, child: Child) -> None:
        _, status = os.waitpid(child.pid, 0)
        self.selector.unregister(child.pidfd)
        os.close(child.pidfd)
        os.close(child.pid_namespace)
        del self.children[child.number]
        self.tell({"number": child.number, "status": os.waitstatus_to_exitcode(status)})

    def tell(self, message: dict[str, Any]) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            self.control.send(json.dumps(message).encode())

    def kill_all(self) -> None:
        for child in self.children.values():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
        for child in self.children.values():
            os.waitpid(child.pid, 0)


if __name__ == "__main__":
    # The lab closes the socket when it wants an end; a Ctrl-C in its terminal is not for this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    RuntimeProcess(socket.socket(fileno=int(sys.argv[1]))).run()
