"""The Dockerfile, by what it copies, installs and starts; and built, where there is a base for it."""

import os
import re
import shutil
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from agent.cli import COMMANDS
from agent.run.command import DEFAULT_LISTEN
from tests.deploy.manifests import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
SCRIPT = ROOT / "scripts/build-image"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
BASE = os.environ.get("LASTCALL_TEST_BASE")


def copied() -> list[str]:
    """What is copied from the folder, not from another stage."""
    lines = re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
    return [source for line in lines for source in line.split()[:-1]]


def test_everything_that_is_copied_exists_and_is_let_through() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    let_through = {line[1:] for line in lines if line.startswith("!")}
    assert "*" in lines
    assert set(copied()) == let_through
    for source in copied():
        assert (ROOT / source).exists(), source
        assert not any(
            fnmatch(source, line) for line in lines[lines.index("*") + 1 :] if line[:1] not in "#!"
        )


def pins(path: Path) -> dict[str, str]:
    """Each requirement with its version and hashes, by name."""
    entries = re.split(r"^(?=[a-z0-9])", path.read_text(), flags=re.MULTILINE)[1:]
    return {entry.partition("==")[0]: entry.replace("\\\n", "").strip() for entry in entries}


def test_the_image_installs_what_running_takes_as_the_whole_lock_pins_it() -> None:
    image, everything = pins(ROOT / "requirements-image.lock"), pins(ROOT / "requirements.lock")
    assert image.items() <= everything.items()
    for requirement in PYPROJECT["project"]["dependencies"]:
        assert re.split(r"[<>=]", requirement)[0] in image
    assert not {"pytest", "mypy", "ruff", "hypothesis", "hatchling"} & image.keys()
    assert all("--hash=sha256:" in entry for entry in image.values())


def test_it_starts_the_agent_on_the_port_that_it_names() -> None:
    (entry,) = re.findall(r'^ENTRYPOINT \["(.+)"\]$', DOCKERFILE, re.MULTILINE)
    (command,) = re.findall(r'^CMD \["(.+)"\]$', DOCKERFILE, re.MULTILINE)
    assert entry in PYPROJECT["project"]["scripts"]
    assert command in COMMANDS
    assert f"EXPOSE {DEFAULT_LISTEN.rpartition(':')[2]}\n" in DOCKERFILE


def engine(folder: Path, name: str) -> None:
    """A program that prints what it is called with."""
    path = folder / name
    path.write_text('#!/bin/sh\necho "$(basename "$0") $*"\n')
    path.chmod(0o755)


def build(path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    tools = path / "tools"
    tools.mkdir(exist_ok=True)
    for tool in ("bash", "dirname", "basename", "sh"):
        found = shutil.which(tool)
        assert found is not None
        (tools / tool).symlink_to(found)
    environment = {"PATH": f"{path}:{tools}", **variables}
    return subprocess.run(
        [str(tools / "bash"), str(SCRIPT), "--extra"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize("name", ["docker", "podman", "buildah"])
def test_the_script_builds_with_the_engine_that_is_there(tmp_path: Path, name: str) -> None:
    engine(tmp_path, name)
    done = build(tmp_path, IMAGE="here/lastcall:1", BASE="own/debian")
    assert done.returncode == 0, done.stderr
    expected = "build --file Dockerfile --tag here/lastcall:1 --build-arg BASE=own/debian --extra ."
    assert done.stdout == f"{name} {expected}\n"


def test_the_script_starts_from_what_the_dockerfile_starts_from(tmp_path: Path) -> None:
    engine(tmp_path, "podman")
    (base,) = re.findall(r"^ARG BASE=(.+)$", DOCKERFILE, re.MULTILINE)
    assert f"BASE={base} " in build(tmp_path).stdout


def test_without_an_engine_the_script_says_what_to_install(tmp_path: Path) -> None:
    done = build(tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "buildah" in line


@pytest.mark.skipif(shutil.which("buildah") is None, reason="needs buildah (Debian: apt-get install buildah)")
@pytest.mark.skipif(BASE is None, reason="needs an image of Debian stable: name it in LASTCALL_TEST_BASE")
@pytest.mark.timeout(1200)
def test_the_image_is_built_and_the_agent_in_it_explains_itself() -> None:
    name = "localhost/lastcall-test"
    options = os.environ.get("LASTCALL_TEST_BUILD_OPTIONS", "").split()
    environment = {**os.environ, "ENGINE": "buildah", "IMAGE": name, "BASE": str(BASE)}
    subprocess.run([SCRIPT, *options], env=environment, check=True)
    started = subprocess.run(["buildah", "from", name], capture_output=True, text=True, check=True)
    made = started.stdout.strip()
    try:
        command = ["buildah", "run", "--isolation", "chroot", made, "--", "agent", "run", "--help"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "--kube-proxy-metrics" in done.stdout
    finally:
        subprocess.run(["buildah", "rm", made], capture_output=True, check=True)
        subprocess.run(["buildah", "rmi", name], capture_output=True, check=True)
