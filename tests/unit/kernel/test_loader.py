"""The parent's side of loading, with a script in the place of the loader child."""

import os
import sys
import textwrap
from pathlib import Path

import pytest

from agent.kernel import loader
from agent.kernel.errors import KernelSideError
from agent.kernel.hooks import COUNTED_HOOKS, HookStatus
from agent.kernel.loader import load_programs

ATTACHED, REFUSED = COUNTED_HOOKS[0], COUNTED_HOOKS[1]
CHILD = f"""\
import json, os, socket, sys
from agent.kernel.hooks import COUNTED_HOOKS, HookStatus
from agent.kernel.loader_child import answer, send
channel, request = socket.socket(fileno=int(sys.argv[3])), json.loads(sys.argv[4])
statuses = [HookStatus(COUNTED_HOOKS[0], True), HookStatus(COUNTED_HOOKS[1], False, "refused by the kernel")]
descriptors = {{
    "map:drops": os.memfd_create("drops"),
    "program:{ATTACHED.program}": os.memfd_create("program"),
    "link:{ATTACHED.name}": os.memfd_create("link"),
}}
for name, descriptor in descriptors.items():
    os.write(descriptor, f"{{name}} for {{request['host_netns']}}".encode())
"""


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The script that runs in the child's place; it gets the child's arguments after `-m MODULE`."""
    script, starter = tmp_path / "child.py", tmp_path / "python"
    starter.write_text(f'#!/bin/sh\nexec {sys.executable} {script} "$@"\n')
    starter.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(starter))
    monkeypatch.setenv("PYTHONPATH", str(Path(loader.__file__).parents[2]))
    return script


def complaint_about(child: Path, code: str) -> str:
    child.write_text(textwrap.dedent(code))
    with pytest.raises(KernelSideError) as raised:
        load_programs(7)
    return str(raised.value)


def test_statuses_and_descriptors_arrive_and_are_closed_together(child: Path) -> None:
    child.write_text(CHILD + "send(channel, answer(statuses, descriptors, None), descriptors)\n")
    loaded = load_programs(7)
    assert loaded.statuses == (
        HookStatus(ATTACHED, True),
        HookStatus(REFUSED, False, "refused by the kernel"),
    )
    named = {"map:drops": loaded.maps["drops"], f"link:{ATTACHED.name}": loaded.links[ATTACHED.name]}
    assert {name: os.pread(descriptor, 99, 0).decode() for name, descriptor in named.items()} == {
        name: f"{name} for 7" for name in named
    }
    loaded.close()
    for descriptor in (*named.values(), *loaded.programs.values()):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_an_error_of_the_child_is_told_in_its_words(child: Path) -> None:
    assert (
        complaint_about(child, CHILD + "send(channel, answer([], {}, 'no BTF here'), {})\n") == "no BTF here"
    )


def test_an_error_of_the_child_is_told_with_what_bcc_printed_of_it(child: Path) -> None:
    code = CHILD + "print('could not open bpf map: pods, error: Operation not permitted', flush=True)\n"
    said = complaint_about(child, code + "send(channel, answer([], {}, 'not loaded'), {})\n")
    assert said == "not loaded: could not open bpf map: pods, error: Operation not permitted"


def test_of_a_compilers_output_the_error_is_told(child: Path) -> None:
    said = complaint_about(
        child,
        """\
        print("warning: something else")
        print("/virtual/main.c:12:3: error: no member named 'sk_gone'")
        print("1 error generated.")
        """,
    )
    assert said == "the loader ended early: /virtual/main.c:12:3: error: no member named 'sk_gone'"


def test_a_child_that_prints_nothing_is_still_reported(child: Path) -> None:
    assert complaint_about(child, "") == "the loader ended early: it printed nothing"


def test_a_child_that_ends_in_the_middle_of_its_answer_is_reported(child: Path) -> None:
    cut = CHILD + "channel.sendall((100).to_bytes(4, 'big') + b'{')\nprint('out of memory')\n"
    assert complaint_about(child, cut) == "the loader ended early: out of memory"


def test_descriptors_that_do_not_come_are_reported(child: Path) -> None:
    said = complaint_about(child, CHILD + "send(channel, answer(statuses, descriptors, None), {})\n")
    assert "no descriptor" in said


def test_a_child_that_hangs_is_ended(child: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "LOAD_TIMEOUT_SECONDS", 1)
    pid_file = tmp_path / "pid"
    hanging = f"import os, time\nopen({str(pid_file)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)\n"
    assert "within 1 s" in complaint_about(child, hanging)
    assert not Path(f"/proc/{pid_file.read_text()}").exists()
