"""Empty raw tracepoint programs, as the measure of what a program costs that does nothing."""

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

from agent.kernel.btf_headers import header_tree
from agent.kernel.hooks import HookPlan
from agent.kernel.libbpf import program_runs
from agent.kernel.loader_child import compile_programs

PROGRAM = "int empty_{}(struct bpf_raw_tracepoint_args *ctx) {{ return 0; }}\n"


class EmptyPrograms:
    """One on each of these tracepoints, until `close`."""

    def __init__(self, tracepoints: Iterable[str], cache: Path) -> None:
        names = tuple(tracepoints)
        text = "#include <vmlinux.h>\n" + "".join(PROGRAM.format(name) for name in names)
        self._module, library = compile_programs(header_tree(cache), text, HookPlan((), (), ()), 0)
        self._programs: dict[str, int] = {}
        self._links: list[int] = []
        for name in names:
            program = self._module.load_func(f"empty_{name}".encode(), self._module.RAW_TRACEPOINT).fd
            link = library.bpf_attach_raw_tracepoint(program, name.encode())
            if link < 0:
                raise SystemExit(
                    f"an empty program does not attach to {name}: {os.strerror(ctypes.get_errno())}"
                )
            self._programs[name] = program
            self._links.append(link)

    def runs(self) -> dict[str, tuple[int, int]]:
        """Nanoseconds and runs so far, by tracepoint."""
        return {name: program_runs(descriptor) for name, descriptor in self._programs.items()}

    def close(self) -> None:
        """Detach them."""
        for link in self._links:
            os.close(link)
