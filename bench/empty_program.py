"""An empty raw tracepoint program, as the measure of what a program costs that does nothing."""

import ctypes
import os
from pathlib import Path

from agent.kernel.btf_headers import DEFAULT_CACHE, header_tree
from agent.kernel.hooks import HookPlan
from agent.kernel.libbpf import program_runs
from agent.kernel.loader_child import compile_programs

TEXT = "#include <vmlinux.h>\nint empty(struct bpf_raw_tracepoint_args *ctx) { return 0; }\n"


class EmptyProgram:
    """Attached from the start to one tracepoint."""

    def __init__(self, tracepoint: str, cache: Path = DEFAULT_CACHE) -> None:
        module, library = compile_programs(header_tree(cache), TEXT, HookPlan((), (), ()), 0)
        self._module = module
        self._program = module.load_func(b"empty", module.RAW_TRACEPOINT).fd
        self._link = library.bpf_attach_raw_tracepoint(self._program, tracepoint.encode())
        assert self._link >= 0, os.strerror(ctypes.get_errno())

    def runs(self) -> tuple[int, int]:
        """Nanoseconds and runs so far."""
        return program_runs(self._program)
