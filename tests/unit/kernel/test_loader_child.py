"""What the loader child compiles."""

import re
from pathlib import Path

import pytest

from agent.kernel.errors import KernelSideError
from agent.kernel.hooks import COUNTED_HOOKS, SEND_RESET_ENTRIES
from agent.kernel.loader import sources_directory
from agent.kernel.loader_child import (
    INITIAL_PID_NAMESPACE,
    MAPS,
    SOURCES,
    consumed_syn_range,
    pid_namespace_macros,
    program_text,
)

KALLSYMS = """\
ffffffff81000000 T _text
ffffffff81a10000 T tcp_rcv_established
ffffffff81a20000 T tcp_rcv_state_process
ffffffff81a20000 t alias_at_the_same_address
ffffffff81a21c40 t tcp_try_undo
ffffffffc0000000 t of_a_module\t[nf_nat]
"""


def kallsyms(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "kallsyms"
    path.write_text(text)
    return path


def test_the_text_is_every_source_of_the_directory_once() -> None:
    directory = sources_directory()
    assert sorted(SOURCES) == sorted(path.name for path in directory.iterdir() if path.suffix in (".c", ".h"))
    text = program_text(directory)
    assert text.startswith("#include <vmlinux.h>\n")
    for name in SOURCES:
        assert text.count((directory / name).read_text()) == 1


def test_every_hook_has_its_program_in_the_text() -> None:
    text = program_text(sources_directory())
    for hook in (*COUNTED_HOOKS, *SEND_RESET_ENTRIES):
        assert re.search(rf"\b{hook.program}\(", text), hook.program


def test_every_map_that_is_handed_over_is_in_the_text() -> None:
    text = program_text(sources_directory())
    for name in MAPS:
        assert re.search(rf"^BPF_\w+\((?:[^;]*, )?{name}\b", text, re.MULTILINE), name


def test_a_missing_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(KernelSideError, match=r"records\.h"):
        program_text(tmp_path)


def test_a_function_ends_where_the_next_address_begins(tmp_path: Path) -> None:
    found = consumed_syn_range(kallsyms(tmp_path, KALLSYMS))
    assert found == (0xFFFFFFFF81A20000, 0xFFFFFFFF81A21C40)


def test_hidden_addresses_give_no_range(tmp_path: Path) -> None:
    hidden = re.sub(r"^\w+", "0" * 16, KALLSYMS, flags=re.MULTILINE)
    assert consumed_syn_range(kallsyms(tmp_path, hidden)) is None


def test_a_kernel_without_the_function_gives_no_range(tmp_path: Path) -> None:
    without = "".join(line for line in KALLSYMS.splitlines(True) if "tcp_rcv_state" not in line)
    assert consumed_syn_range(kallsyms(tmp_path, without)) is None


def test_on_a_machine_of_its_own_no_number_of_a_process_is_translated() -> None:
    assert pid_namespace_macros(INITIAL_PID_NAMESPACE) == ()


def test_on_a_node_that_is_a_container_its_pid_namespace_is_compiled_in() -> None:
    assert "PID_NAMESPACE=4026532345U" in pid_namespace_macros(4026532345)
