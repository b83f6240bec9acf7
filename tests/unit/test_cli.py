"""The command line: every command explains itself, and imports nothing of the others."""

import importlib
import subprocess
import sys

import pytest

from agent.cli import COMMANDS, main


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"usage: agent {command}" in capsys.readouterr().out


def test_the_help_lists_every_command_with_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    words = " ".join(capsys.readouterr().out.split())
    for command, what_it_does in COMMANDS.items():
        assert f"{command} {what_it_does}" in words


@pytest.mark.parametrize(
    ("arguments", "named"),
    [([], "COMMAND"), (["nonsense"], "nonsense"), (["run", "--nonsense"], "--nonsense")],
)
def test_an_unknown_word_is_named_with_exit_code_2(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert named in capsys.readouterr().err


def test_the_exit_code_is_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    command = importlib.import_module("agent.doctor.command")
    for code in (0, 1):
        monkeypatch.setattr(command, "run", lambda _, code=code: code)
        assert main(["doctor"]) == code


@pytest.mark.parametrize("arguments", [["--help"], ["doctor", "--help"]])
def test_a_command_imports_neither_the_agent_nor_the_lab_unless_called(arguments: list[str]) -> None:
    """A command has to work where the dependencies of another are missing."""
    code = (
        "import sys\nfrom agent.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "others = [name for name in sys.modules if name.startswith(('agent.run', 'agent.lab'))]\n"
        "print(others, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr.strip() == "[]"


def flags_of_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    return capsys.readouterr().out


def test_every_flag_of_run_names_its_environment_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = flags_of_run(monkeypatch, capsys)
    flags = [line.split()[0] for line in text.splitlines() if line.startswith("  --")]
    assert flags
    for flag in flags:
        assert f"[LASTCALL_{flag.removeprefix('--').upper().replace('-', '_')}]" in text


def test_the_environment_is_taken_where_no_flag_is_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LASTCALL_LISTEN", "from-the-environment")
    assert main(["run"]) == 1
    assert "from-the-environment" in capsys.readouterr().err
    assert main(["run", "--listen", "from-the-flag"]) == 1
    assert "from-the-flag" in capsys.readouterr().err
