"""A header tree made from the running kernel's BTF, so that bcc compiles without kernel headers.

bcc asks for the headers of the kernel it runs on; nodes do not have them. Every type that the programs use
is in the kernel's own BTF, which bpftool writes as C. The few macros that bcc's helpers need besides are
defined here.
"""

import hashlib
import os
import platform
import re
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

from agent.kernel.errors import KernelSideError

VMLINUX_BTF = Path("/sys/kernel/btf/vmlinux")
DEFAULT_CACHE = Path("/run/lastcall")

COMPILER_FLAGS = (
    "-D_UAPI__LINUX_BPF_H__",
    "-D__LINUX_BPF_H__",
    "-DBPF_NO_PRESERVE_ACCESS_INDEX",
    "-Wno-everything",
    "-Werror=implicit-function-declaration",
)
"""Keep bcc's own copy of uapi/linux/bpf.h from redefining what vmlinux.h has."""

_EMPTY_HEADERS = (
    "include/uapi/linux/if_packet.h",
    "include/linux/log2.h",
    "include/uapi/linux/ptrace.h",
    "include/linux/types.h",
)


def header_tree(cache: Path = DEFAULT_CACHE, btf: Path = VMLINUX_BTF, bpftool: str | None = None) -> Path:
    """The header tree of the running kernel below `cache`, made if this kernel has none yet.

    Raises KernelSideError when there is no BTF, no bpftool, or the cache is not private to this user.
    """
    types = _read_btf(btf)
    _make_private(cache)
    tree = cache / f"headers-{hashlib.sha256(types).hexdigest()[:16]}"
    if not (tree / "include/vmlinux.h").is_file():
        _write_tree(tree, _types_as_c(btf, bpftool or _find_bpftool()))
    return tree


def _read_btf(btf: Path) -> bytes:
    try:
        return btf.read_bytes()
    except FileNotFoundError:
        raise KernelSideError(
            f"{btf} does not exist: this kernel has no BTF; use one built with CONFIG_DEBUG_INFO_BTF=y"
        ) from None
    except OSError as error:
        raise KernelSideError(f"cannot read {btf} ({error.strerror}): run as root") from None


def _make_private(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = directory.lstat()
    except OSError as error:
        raise KernelSideError(
            f"cannot make the cache directory {directory} ({error.strerror}): choose another with --cache-dir"
        ) from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise KernelSideError(
            f"{directory} is not a directory that only this user can write: choose another with --cache-dir"
        )


def _find_bpftool() -> str:
    found = shutil.which("bpftool", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        raise KernelSideError("bpftool is missing: install it (Debian: apt install bpftool)")
    return found


def _types_as_c(btf: Path, bpftool: str) -> str:
    try:
        done = subprocess.run(
            [bpftool, "btf", "dump", "file", str(btf), "format", "c"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KernelSideError(f"bpftool does not run ({error}): install it again") from None
    if done.returncode != 0 or "struct task_struct {" not in done.stdout:
        reason = done.stderr.strip().splitlines()[0] if done.stderr.strip() else "no types came out"
        raise KernelSideError(f"bpftool cannot read this kernel's BTF ({reason}): install a newer bpftool")
    return done.stdout


def _write_tree(tree: Path, types: str) -> None:
    """Write the tree beside its place and rename it there, so that a reader never sees half of it."""
    major, minor, patch = kernel_version()
    headers = {
        "include/vmlinux.h": types,
        "include/linux/kconfig.h": "#define CONFIG_BPF_SYSCALL 1\n",
        "include/linux/version.h": (
            "#define KERNEL_VERSION(a, b, c) (((a) << 16) + ((b) << 8) + ((c) > 255 ? 255 : (c)))\n"
            f"#define LINUX_VERSION_CODE KERNEL_VERSION({major}, {minor}, {patch})\n"
        ),
        "include/asm/page.h": f"#define PAGE_SIZE {os.sysconf('SC_PAGE_SIZE')}\n",
        "include/uapi/linux/bpf.h": "#include <vmlinux.h>\n",
        **dict.fromkeys(_EMPTY_HEADERS, ""),
    }
    unfinished = Path(tempfile.mkdtemp(prefix="unfinished-", dir=tree.parent))
    try:
        for name, text in headers.items():
            path = unfinished / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        unfinished.rename(tree)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        if not (tree / "include/vmlinux.h").is_file():
            raise KernelSideError(
                f"cannot write {tree} ({error.strerror}): free space or --cache-dir"
            ) from None


def kernel_version(release: str | None = None) -> tuple[int, int, int]:
    """The numbers at the front of a release such as `6.1.0-57-amd64`; (0, 0, 0) when there are none."""
    numbers = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", release or platform.release())
    if numbers is None:
        return 0, 0, 0
    return int(numbers[1]), int(numbers[2]), int(numbers[3] or 0)


def argument_counts(types: str) -> dict[str, int]:
    """How many arguments each tracepoint hands to a raw tracepoint program, by the btf_trace_* typedefs."""
    found = re.finditer(r"^typedef void \(\*btf_trace_(\w+)\)\(void \*(.*)\);$", types, re.MULTILINE)
    return {match[1]: match[2].count(",") for match in found}


def has_enumerator(types: str, name: str) -> bool:
    """Whether any enumeration of this kernel has a value of this name."""
    return re.search(rf"^\t{re.escape(name)} = ", types, re.MULTILINE) is not None
