"""Whatever is wrong, a person gets one line that says what to do, and no traceback."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

AGENT = [sys.executable, "-m", "agent.cli"]


def outcome(
    arguments: list[str], environment: dict[str, str] | None = None, *, around: tuple[str, ...] = ()
) -> tuple[int, str]:
    done = subprocess.run(
        [*around, *AGENT, *arguments],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr


def complaint(arguments: list[str], *, around: tuple[str, ...] = ()) -> str:
    code, written = outcome(arguments, around=around)
    assert code != 0
    assert "Traceback" not in written
    assert len(written.strip().splitlines()) == 1, written
    return written


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    path = tmp_path / "kubeconfig"
    path.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "contexts: [{name: c, context: {cluster: k, user: u}}]\n"
        "clusters: [{name: k, cluster: {server: 'http://127.0.0.1:9'}}]\nusers: [{name: u, user: {}}]\n"
    )
    return str(path)


def hiding(path: str) -> tuple[str, ...]:
    """A command prefix that runs with an empty folder over a path, in a mount namespace of its own."""
    return ("unshare", "-m", "sh", "-c", f'mount -t tmpfs none {path} && exec "$@"', "sh")


def test_a_missing_kubeconfig_is_named() -> None:
    assert "/no/such/file" in complaint(["run", "--kubeconfig", "/no/such/file"])


def test_a_garbled_kubeconfig_is_named(tmp_path: Path) -> None:
    garbage = tmp_path / "config"
    garbage.write_bytes(b"\x00{[not: yaml")
    assert str(garbage) in complaint(["run", "--kubeconfig", str(garbage)])


def test_a_taken_port_is_named(kubeconfig: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        assert where in complaint(["run", "--kubeconfig", kubeconfig, "--listen", where])


@pytest.mark.parametrize(("flag", "value"), [("--listen", "nonsense"), ("--retention", "long")])
def test_a_wrong_value_is_named(kubeconfig: str, flag: str, value: str) -> None:
    assert value in complaint(["run", "--kubeconfig", kubeconfig, flag, value])


def test_a_wrong_kube_proxy_address_is_named(kubeconfig: str) -> None:
    assert "ftp" in complaint(["run", "--kubeconfig", kubeconfig, "--kube-proxy-metrics", "ftp://x"])


@pytest.mark.parametrize("arguments", [["run", "--nonsense"], ["nonsense"], []])
def test_an_unknown_word_ends_with_code_2(arguments: list[str]) -> None:
    code, written = outcome(arguments)
    assert code == 2
    assert "Traceback" not in written


def test_without_root_it_says_so(kubeconfig: str) -> None:
    around = ("setpriv", "--reuid", "65534", "--clear-groups")
    Path(kubeconfig).parent.chmod(0o755)
    assert "root" in complaint(["run", "--listen", "127.0.0.1:0"], around=around)


def test_a_kernel_without_btf_is_named(kubeconfig: str) -> None:
    said = complaint(
        ["run", "--kubeconfig", kubeconfig, "--listen", "127.0.0.1:0"], around=hiding("/sys/kernel/btf")
    )
    assert "BTF" in said


def test_a_missing_bcc_is_named(kubeconfig: str) -> None:
    said = complaint(
        ["run", "--kubeconfig", kubeconfig, "--listen", "127.0.0.1:0"],
        around=hiding("/usr/lib/python3/dist-packages/bcc"),
    )
    assert "bcc" in said


def test_a_missing_bpftool_is_named(kubeconfig: str, tmp_path: Path) -> None:
    code, written = outcome(
        ["run", "--kubeconfig", kubeconfig, "--listen", "127.0.0.1:0", "--cache-dir", str(tmp_path / "c")],
        around=(
            "unshare",
            "-m",
            "sh",
            "-c",
            'mount --bind /dev/null "$(readlink -f "$(which bpftool)")"; exec "$@"',
            "sh",
        ),
    )
    assert code == 1
    assert "bpftool" in written
    assert len(written.strip().splitlines()) == 1


def test_a_cache_that_others_can_write_is_refused(kubeconfig: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o777)
    cache.chmod(0o777)
    said = complaint(
        ["run", "--kubeconfig", kubeconfig, "--listen", "127.0.0.1:0", "--cache-dir", str(cache)]
    )
    assert str(cache) in said
