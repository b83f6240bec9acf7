"""Whatever is wrong, a person gets one line that says what to do, and no traceback."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

RUN = [sys.executable, "-m", "agent.cli", "run"]
USABLE = """\
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: lab, user: me}}]
clusters: [{name: lab, cluster: {server: 'http://127.0.0.1:9'}}]
users: [{name: me, user: {}}]
"""


def complaint(*arguments: str, around: tuple[str, ...] = (), code: int = 1) -> str:
    """The one line that `agent run` ends with; `around` is a command that it is run by."""
    done = subprocess.run(
        [*around, *RUN, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("agent")
    return line


@pytest.fixture
def usable(tmp_path: Path) -> list[str]:
    """Flags with which nothing is wrong, but that no API server answers, which is no error."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(USABLE)
    cache = str(tmp_path / "cache")
    return ["--kubeconfig", str(kubeconfig), "--listen", "127.0.0.1:0", "--cache-dir", cache]


def hiding(path: str) -> tuple[str, ...]:
    """A command that runs another with an empty folder over a path, in a mount namespace of its own."""
    return ("unshare", "-m", "sh", "-c", f'mount -t tmpfs none {path} && exec "$@"', "sh")


def test_without_root_it_says_so(usable: list[str]) -> None:
    assert "root" in complaint(*usable, around=("setpriv", "--reuid", "65534", "--clear-groups"))


def test_a_kernel_without_btf_is_named(usable: list[str]) -> None:
    assert "BTF" in complaint(*usable, around=hiding("/sys/kernel/btf"))


def test_a_missing_bcc_is_named_with_its_package(usable: list[str]) -> None:
    bcc = str(Path(bcc_package()).parent)
    assert "python3-bpfcc" in complaint(*usable, around=hiding(bcc))


def bcc_package() -> str:
    """Where the interpreter of the agent finds bcc."""
    command = [sys.executable, "-c", "import importlib.util as u; print(u.find_spec('bcc').origin)"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_missing_bpftool_is_named(usable: list[str]) -> None:
    """The system's own folders are searched whatever PATH says, so they are hidden."""
    script = 'for d in /usr/local/sbin /usr/sbin /sbin; do mount -t tmpfs none "$d" || true; done; exec "$@"'
    around = ("unshare", "-m", "sh", "-c", script, "sh", "env", "PATH=/nonexistent")
    assert "bpftool is missing" in complaint(*usable, around=around)


def test_a_bpftool_that_does_not_run_is_named(usable: list[str]) -> None:
    script = 'mount --bind /dev/null "$(readlink -f "$(PATH=$PATH:/usr/sbin command -v bpftool)")"; exec "$@"'
    assert "bpftool" in complaint(*usable, around=("unshare", "-m", "sh", "-c", script, "sh"))


def test_a_taken_port_is_named(usable: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        said = complaint(*usable, "--listen", where)
    assert where in said
    assert "--listen" in said


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--listen", "nonsense"),
        ("--listen", "127.0.0.1:65536"),
        ("--listen", "no-such-host.invalid:0"),
        ("--retention", "long"),
        ("--retention", "nan"),
        ("--retention", "-1"),
        ("--kube-proxy-metrics", "ftp://127.0.0.1/metrics"),
        ("--kube-proxy-metrics", "http://[::1"),
        ("--cache-dir", "/proc/lastcall"),
    ],
)
def test_a_wrong_value_is_named(usable: list[str], flag: str, value: str) -> None:
    assert value in complaint(*usable, f"{flag}={value}")


def test_a_node_without_a_name_is_told_which_flag_gives_one(usable: list[str]) -> None:
    assert "--node-name" in complaint(*usable, "--node-name=")


def test_a_cache_that_others_can_write_is_refused(usable: list[str], tmp_path: Path) -> None:
    cache = tmp_path / "open-to-all"
    cache.mkdir()
    cache.chmod(0o777)
    assert str(cache) in complaint(*usable, "--cache-dir", str(cache))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00{[not: yaml",
        b"just words",
        USABLE.replace("current-context: here", "current-context: elsewhere").encode(),
        USABLE.replace("http://127.0.0.1:9", "127.0.0.1:9").encode(),
        USABLE.replace("'http://127.0.0.1:9'", "'https://x', certificate-authority: /no/ca.crt").encode(),
    ],
    ids=["empty", "garbage", "words", "no such context", "no URL", "no such CA"],
)
def test_a_kubeconfig_that_says_nothing_usable_is_named(
    usable: list[str], tmp_path: Path, content: bytes
) -> None:
    kubeconfig = tmp_path / "unusable"
    kubeconfig.write_bytes(content)
    assert str(kubeconfig) in complaint(*usable, "--kubeconfig", str(kubeconfig))


@pytest.mark.parametrize("path", ["/no/such/file", "/proc"], ids=["missing", "a folder"])
def test_a_kubeconfig_that_cannot_be_read_is_named(usable: list[str], path: str) -> None:
    said = complaint(*usable, "--kubeconfig", path)
    assert f"cannot read kubeconfig {path}" in said
    assert "--kubeconfig" in said


def test_outside_a_pod_a_kubeconfig_is_asked_for() -> None:
    around = ("env", "-u", "KUBERNETES_SERVICE_HOST", "-u", "LASTCALL_KUBECONFIG")
    assert "--kubeconfig" in complaint("--listen", "127.0.0.1:0", around=around)


@pytest.mark.parametrize("arguments", [["--nonsense"], ["nonsense"], ["--listen"]])
def test_a_wrong_word_is_named_with_exit_code_2(arguments: list[str]) -> None:
    assert arguments[0] in complaint(*arguments, code=2)


def test_root_without_its_capabilities_is_told_which_to_add(usable: list[str]) -> None:
    around = ("setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-all")
    assert "add SYS_ADMIN to" in complaint(*usable, around=around)


def test_ctrl_c_while_it_loads_is_a_clean_end(usable: list[str]) -> None:
    """In a terminal it goes to the agent and to its loader."""
    agent = subprocess.Popen([*RUN, *usable], stderr=subprocess.PIPE, text=True, process_group=0)
    try:
        await_loader(agent.pid)
        os.killpg(agent.pid, signal.SIGINT)
        _, written = agent.communicate(timeout=30)
    finally:
        agent.kill()
    assert agent.returncode == 0
    assert "Traceback" not in written
    assert "loader" not in written


def await_loader(pid: int) -> None:
    """Until the agent's child is in the process group that it is to be in."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    deadline = time.monotonic() + 10
    while not any(os.getpgid(int(child)) != pid for child in children.read_text().split()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
