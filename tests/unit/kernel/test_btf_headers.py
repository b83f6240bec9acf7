"""The header tree: made once for each kernel, private, and every way it can fail in one line."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.kernel.btf_headers import argument_counts, has_enumerator, header_tree, kernel_version
from agent.kernel.errors import KernelSideError

TYPES = "struct task_struct {\n\tint pid;\n};\n"


def a_bpftool(directory: Path, script: str) -> str:
    """An executable in bpftool's place."""
    tool = directory / "bpftool"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    return str(tool)


@pytest.fixture
def btf(tmp_path: Path) -> Path:
    path = tmp_path / "vmlinux"
    path.write_bytes(b"\x9f\xeb types of one kernel")
    return path


@pytest.fixture
def bpftool(tmp_path: Path) -> str:
    """Writes a line per call into `calls`, so that a test can see whether it was run again."""
    return a_bpftool(tmp_path, f"echo \"$@\" >> {tmp_path}/calls\nprintf '%s' '{TYPES}'")


def test_the_tree_has_the_types_and_every_header_that_bcc_asks_for(
    tmp_path: Path, btf: Path, bpftool: str
) -> None:
    tree = header_tree(tmp_path / "cache", btf, bpftool)
    assert (tree / "include/vmlinux.h").read_text() == TYPES
    assert (tmp_path / "calls").read_text() == f"btf dump file {btf} format c\n"
    files = {str(path.relative_to(tree / "include")) for path in tree.rglob("*") if path.is_file()}
    assert files >= {"linux/kconfig.h", "linux/version.h", "asm/page.h", "uapi/linux/bpf.h", "linux/types.h"}
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [tree.name]


def test_the_version_is_the_running_kernels(tmp_path: Path, btf: Path, bpftool: str) -> None:
    major, minor, patch = kernel_version()
    text = (header_tree(tmp_path / "cache", btf, bpftool) / "include/linux/version.h").read_text()
    assert f"KERNEL_VERSION({major}, {minor}, {patch})" in text


def test_a_kernel_that_is_known_is_not_dumped_again(tmp_path: Path, btf: Path, bpftool: str) -> None:
    first = header_tree(tmp_path / "cache", btf, bpftool)
    assert header_tree(tmp_path / "cache", btf, bpftool) == first
    assert len((tmp_path / "calls").read_text().splitlines()) == 1


def test_another_kernel_gets_a_tree_of_its_own(tmp_path: Path, btf: Path, bpftool: str) -> None:
    first = header_tree(tmp_path / "cache", btf, bpftool)
    btf.write_bytes(b"\x9f\xeb types of another kernel")
    assert header_tree(tmp_path / "cache", btf, bpftool) != first


def test_two_starts_at_once_make_one_tree(tmp_path: Path, btf: Path) -> None:
    """The slower one finds its place taken by a tree that is as good as its own."""
    cache = tmp_path / "cache"
    slow, quick = tmp_path / "slow", tmp_path / "quick"
    slow.mkdir()
    quick.mkdir()
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    slow_tool = a_bpftool(slow, f"touch {slow}/started\nread line < {gate}\nprintf '%s' '{TYPES}'")
    code = (
        "import sys; from pathlib import Path; from agent.kernel.btf_headers import header_tree\n"
        "print(header_tree(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(cache), str(btf), slow_tool], stdout=subprocess.PIPE, text=True
    ) as first:
        deadline = time.monotonic() + 20
        while not (slow / "started").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        tree = header_tree(cache, btf, a_bpftool(quick, f"printf '%s' '{TYPES}'"))
        gate.write_text("go\n")
        written, _ = first.communicate(timeout=20)
    assert (first.returncode, written.strip()) == (0, str(tree))
    assert [path.name for path in cache.iterdir()] == [tree.name]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'Error: failed to load BTF' >&2; exit 255", "failed to load BTF"),
        ("exit 1", "no types came out"),
        ("true", "no types came out"),
        ("echo 'struct other {'", "no types came out"),
    ],
)
def test_a_bpftool_that_gives_no_types_is_reported_and_leaves_no_tree(
    tmp_path: Path, btf: Path, script: str, said: str
) -> None:
    with pytest.raises(KernelSideError, match=said):
        header_tree(tmp_path / "cache", btf, a_bpftool(tmp_path, script))
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_bpftool_that_cannot_be_run_is_reported(tmp_path: Path, btf: Path) -> None:
    with pytest.raises(KernelSideError, match="install it again"):
        header_tree(tmp_path / "cache", btf, str(tmp_path / "none"))


def test_a_missing_bpftool_is_reported_with_how_to_get_it(
    tmp_path: Path, btf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path: None)
    with pytest.raises(KernelSideError, match="apt install bpftool"):
        header_tree(tmp_path / "cache", btf)


def test_a_kernel_without_btf_is_reported(tmp_path: Path) -> None:
    with pytest.raises(KernelSideError, match="CONFIG_DEBUG_INFO_BTF"):
        header_tree(tmp_path / "cache", tmp_path / "none")


def test_a_cache_that_others_can_write_is_refused(tmp_path: Path, btf: Path, bpftool: str) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    with pytest.raises(KernelSideError, match="--cache-dir"):
        header_tree(cache, btf, bpftool)


def test_a_link_in_the_caches_place_is_refused(tmp_path: Path, btf: Path, bpftool: str) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "cache").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(KernelSideError, match="--cache-dir"):
        header_tree(tmp_path / "cache", btf, bpftool)


def test_a_file_in_the_caches_place_is_refused(tmp_path: Path, btf: Path, bpftool: str) -> None:
    (tmp_path / "cache").write_text("")
    with pytest.raises(KernelSideError, match="--cache-dir"):
        header_tree(tmp_path / "cache", btf, bpftool)


@pytest.mark.parametrize(
    ("release", "numbers"),
    [
        ("6.1.0-57-amd64", (6, 1, 0)),
        ("5.10.223", (5, 10, 223)),
        ("6.18-rc3", (6, 18, 0)),
        ("6.12.300+deb13-cloud-amd64", (6, 12, 300)),
        ("next", (0, 0, 0)),
    ],
)
def test_a_release_has_its_numbers_at_the_front(release: str, numbers: tuple[int, int, int]) -> None:
    assert kernel_version(release) == numbers


def test_arguments_are_counted_without_the_context() -> None:
    types = (
        "typedef void (*btf_trace_tcp_send_reset)(void *, const struct sock *, const struct sk_buff *, "
        "const enum sk_rst_reason);\n"
        "typedef void (*btf_trace_softirq)(void *);\n"
        "typedef void (*other_trace_tcp_send_reset)(void *, int);\n"
    )
    assert argument_counts(types) == {"tcp_send_reset": 3, "softirq": 0}


def test_an_enumerator_is_found_by_its_whole_name() -> None:
    types = "enum skb_drop_reason {\n\tSKB_DROP_REASON_NO_SOCKET = 3,\n};\n"
    assert has_enumerator(types, "SKB_DROP_REASON_NO_SOCKET")
    assert not has_enumerator(types, "SKB_DROP_REASON_NO")
    assert not has_enumerator(types, "NO_SOCKET")


@given(st.text())
def test_no_text_breaks_the_reading_of_types_and_releases(text: str) -> None:
    argument_counts(text)
    has_enumerator(text, text)
    assert len(kernel_version(text)) == 3
