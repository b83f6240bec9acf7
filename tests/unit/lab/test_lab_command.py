"""The lab command's errors are one line, and its list tells of every scenario."""

import argparse
import os

import pytest

from agent.lab.command import add_arguments, run
from agent.lab.scenarios import SCENARIOS


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(words)


def test_the_list_names_every_scenario_and_its_fix(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(parsed("--list")) == 0
    printed = capsys.readouterr().out
    assert all(scenario.name in printed and scenario.happens in printed for scenario in SCENARIOS)
    assert all(len(line) <= 110 for line in printed.splitlines())


def test_without_root_one_line_says_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert run(parsed()) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "root" in error


@pytest.mark.parametrize(
    "words",
    [("--scenario", "none"), ("--cni", "magic"), ("--seed", "x"), ("--all", "--scenario", "clean")],
)
def test_wrong_flags_are_usage_errors(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(*words)
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err
