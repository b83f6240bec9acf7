"""Compiles and attaches the programs in a process of its own, hands their descriptors over, and ends.

bcc and its compiler cost 170 MB of memory that nobody needs once the programs run. Run as
`python -m agent.kernel.loader_child SOCKET REQUEST`; the answer is one JSON object, its length before it, and
then one message per descriptor.
"""

import array
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent.kernel.btf_headers import COMPILER_FLAGS, header_tree
from agent.kernel.errors import KernelSideError
from agent.kernel.hooks import AttachType, Hook, HookPlan, HookStatus, plan_hooks

SOURCES = (
    "records.h",
    "state.c",
    "process_numbers.c",
    "packets.c",
    "probes.c",
    "counting.c",
    "listeners.c",
    "in_flight.c",
    "kubelet_connections.c",
    "state_changes.c",
    "resets.c",
    "lifecycle.c",
    "unreachable.c",
    "overflow.c",
    "discarded.c",
)
"""The programs are one translation unit: bcc rewrites map accesses in the main file only."""

MAPS = (
    "pods",
    "ports",
    "containers",
    "hook_counts",
    "records",
    "probing_processes",
    "drops",
    "unserved",
    "sources",
    "served_ports",
    "gone_addresses",
    "gone_count",
    "lost_attempts",
)

KALLSYMS = Path("/proc/kallsyms")
PID_NAMESPACE = Path("/proc/self/ns/pid")
INITIAL_PID_NAMESPACE = 0xEFFFFFFC
"""PROC_PID_INIT_INO of linux/proc_ns.h."""
PID_LEVELS = 8
"""How deep the pid namespace of a node may be nested; a node that is a container is at 1."""


def program_text(directory: Path) -> str:
    """The programs as one text for bcc."""
    try:
        parts = [(directory / name).read_text() for name in SOURCES]
    except OSError as error:
        raise KernelSideError(f"cannot read {error.filename} ({error.strerror}): install again") from None
    return "\n".join(["#include <vmlinux.h>", *parts])


def consumed_syn_range(kallsyms: Path = KALLSYMS) -> tuple[int, int] | None:
    """From tcp_rcv_state_process to the symbol after it (the file is sorted); None when it is hidden."""
    start = 0
    with kallsyms.open() as symbols:
        for symbol in symbols:
            address, _, name = symbol.split(maxsplit=3)[:3]
            if start and int(address, 16) > start:
                return start, int(address, 16)
            if name == "tcp_rcv_state_process":
                start = int(address, 16)
    return None


def pid_namespace_macros(inode: int) -> tuple[str, ...]:
    """None on a machine of its own: there the kernel's numbers of processes are those of /proc."""
    if inode == INITIAL_PID_NAMESPACE:
        return ()
    return (f"PID_NAMESPACE={inode}U", f"PID_LEVELS={PID_LEVELS}")


def load(request: dict[str, Any]) -> tuple[list[HookStatus], dict[str, int]]:
    """Compile, load and attach. Descriptors are named map:NAME, program:NAME and link:HOOK."""
    tree = header_tree(Path(request["cache"]))
    types = (tree / "include/vmlinux.h").read_text()
    plan = plan_hooks(types, consumed_syn_range())
    text = program_text(Path(request["sources"]))
    del types
    module, library = compile_programs(tree, text, plan, request["host_netns"])
    descriptors = {f"map:{name}": int(library.bpf_table_fd(module.module, name.encode())) for name in MAPS}
    statuses = [_attach(module, library, hook, descriptors) for hook in plan.hooks]
    statuses += [HookStatus(hook, False, reason) for hook, reason in plan.missing]
    return statuses, descriptors


def compile_programs(tree: Path, text: str, plan: HookPlan, host_netns: int) -> tuple[Any, Any]:
    """bcc's module of a program text, and its library. Raises KernelSideError."""
    os.environ["BCC_KERNEL_SOURCE"] = str(tree)
    try:
        from bcc import BPF
        from bcc.libbcc import lib
    except ImportError as error:
        raise KernelSideError(
            f"bcc is missing ({error}): install the distribution's own (Debian: apt install python3-bpfcc)"
        ) from None
    macros = (*plan.macros, *pid_namespace_macros(PID_NAMESPACE.stat().st_ino))
    flags = [*COMPILER_FLAGS, f"-DHOST_NETNS={host_netns}ULL", *(f"-D{macro}" for macro in macros)]
    try:
        return BPF(text=text.encode(), cflags=flags), lib
    except Exception as error:
        raise KernelSideError(f"the BPF programs cannot be compiled or loaded ({error})") from None


def _attach(module: Any, library: Any, hook: Hook, descriptors: dict[str, int]) -> HookStatus:
    raw = hook.attach_type is AttachType.RAW_TRACEPOINT
    try:
        function = module.load_func(hook.program.encode(), module.RAW_TRACEPOINT if raw else module.KPROBE)
    except Exception as error:
        return HookStatus(hook, False, f"the kernel does not load it: {error}")
    if raw:
        link = library.bpf_attach_raw_tracepoint(function.fd, hook.name.encode())
    else:
        link = library.bpf_attach_kprobe(
            function.fd, 0, f"lastcall_{hook.name}".encode(), hook.name.encode(), 0, 0
        )
    if link < 0:
        return HookStatus(hook, False, "the kernel does not attach it")
    descriptors[f"program:{hook.program}"] = function.fd
    descriptors[f"link:{hook.name}"] = link
    return HookStatus(hook, True)


def answer(statuses: list[HookStatus], descriptors: dict[str, int], error: str | None) -> bytes:
    """The JSON object that the parent reads."""
    return json.dumps(
        {
            "error": error,
            "hooks": [
                {"name": status.hook.name, "attached": status.attached, "reason": status.reason}
                for status in statuses
            ],
            "descriptors": list(descriptors),
        }
    ).encode()


def send(channel: socket.socket, body: bytes, descriptors: dict[str, int]) -> None:
    """Send the answer, then each descriptor in a message of its own."""
    channel.sendall(len(body).to_bytes(4, "big") + body)
    for descriptor in descriptors.values():
        rights = array.array("i", [descriptor])
        channel.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])


def main(arguments: list[str], exit_process: Callable[[int], None] = os._exit) -> None:
    """Serve one request. The process ends at once, so that bcc detaches nothing on its way out."""
    channel = socket.socket(fileno=int(arguments[0]))
    statuses: list[HookStatus] = []
    descriptors: dict[str, int] = {}
    error = None
    try:
        statuses, descriptors = load(json.loads(arguments[1]))
    except KernelSideError as failure:
        error = str(failure)
    send(channel, answer(statuses, descriptors, error), descriptors)
    exit_process(0)


if __name__ == "__main__":
    main(sys.argv[1:])
