"""What the documentation says of commands, kinds, phases and hooks is what the code has."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from agent.core.boundaries import Boundary, Source
from agent.core.kinds import Kind
from agent.core.life import Stage, StageWitness
from agent.core.phases import Phase
from agent.core.prestop import PreStopOutcome
from agent.core.reason import Reason
from agent.core.termination import Scope, terminations
from agent.core.tracker import Tracker
from agent.kernel.hooks import COUNTED_HOOKS, SEND_RESET_ENTRIES
from agent.outputs.metric_document import metrics_document
from agent.outputs.termination_json import termination_json
from tests.unit.core.test_recorded_lives import cluster_records

ROOT = Path(__file__).parents[2]
KINDS_AND_PHASES = ROOT / "docs/kinds-and-phases.md"
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
AGENT = "import sys; from agent.cli import main; sys.exit(main())"


def code_lines(text: str) -> Iterator[str]:
    """The lines of indented and fenced code blocks, and code spans that look like a command."""
    fenced = False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield line.strip()
        else:
            yield from re.findall(r"`((?:sudo )?(?:make|agent|\.venv/bin/agent) [^`]+)`", line)


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every make and agent command in the documentation: what it calls, and its words."""
    for document in DOCUMENTS:
        for line in code_lines(document.read_text()):
            words = shlex.split(line.removeprefix("sudo "))
            if words and words[0] in ("make", "agent", ".venv/bin/agent"):
                yield words[0].rpartition("/")[2], words[1:]


@cache
def help_of(subcommand: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", AGENT, subcommand, "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"agent {subcommand} --help: {done.stderr or done.stdout}"
    return done.stdout


def test_the_documentation_has_the_two_commands() -> None:
    documented = list(commands())
    assert ("make", ["lab"]) in documented
    assert ("make", ["test"]) in documented
    assert any(program == "agent" for program, _ in documented)


def test_every_make_target_in_the_documentation_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for program, words in commands():
        if program == "make":
            assert words[0] in targets, f"make {words[0]}"


@pytest.mark.parametrize(
    "words",
    [words for program, words in commands() if program == "agent"],
    ids=lambda words: " ".join(words),
)
def test_every_agent_command_in_the_documentation_exists_with_its_flags(words: list[str]) -> None:
    subcommand, *arguments = words
    text = help_of(subcommand)
    for flag in (argument.partition("=")[0] for argument in arguments if argument.startswith("-")):
        assert re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", text), f"agent {subcommand} has no {flag}"


def table(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    section = KINDS_AND_PHASES.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def test_the_kinds_table_has_every_kind_in_order() -> None:
    assert [row[0] for row in table("Kinds")] == [f"`{kind.value}`" for kind in Kind]


def test_each_kind_names_a_hook_that_it_costs() -> None:
    costs = {f"`{hook.name}`": hook.costs for hook in COUNTED_HOOKS}
    for kind, row in zip(Kind, table("Kinds"), strict=True):
        assert kind in costs[row[2]], f"{kind.value} does not depend on {row[2]}"


def test_the_phases_table_has_every_phase_in_order() -> None:
    assert [row[0] for row in table("Phases")] == [f"`{phase.value}`" for phase in Phase]


def test_the_hooks_table_has_every_hook_with_its_variant_and_kinds() -> None:
    documented = [(row[0], row[1], row[2]) for row in table("Hooks")]
    hooks = (*COUNTED_HOOKS, *SEND_RESET_ENTRIES)
    assert documented == [
        (f"`{hook.name}`", f"`{hook.attach_type.value}`", ", ".join(kind.value for kind in hook.costs))
        for hook in hooks
    ]


def test_the_metrics_document_is_what_the_table_of_metrics_says() -> None:
    assert (ROOT / "docs/metrics.md").read_text() == metrics_document(), "run make docs"


def test_the_schema_of_terminations_has_every_key_and_value() -> None:
    text = (ROOT / "docs/terminations.md").read_text()
    for values in (Scope, Reason, Boundary, Source, PreStopOutcome, Phase, Stage, StageWitness, Kind):
        for value in values:
            assert f"`{value.value}`" in text, f"{values.__name__} {value.value}"
    tracker = Tracker()
    for record in cluster_records("prestop-sleep"):
        tracker.apply(record)
    (end,) = terminations(tracker.lives.values(), {}, None)
    for key in keys_of(termination_json(end)) - {boundary.value for boundary in Boundary}:
        assert f"`{key}`" in text, key


def keys_of(value: object) -> set[str]:
    """All keys of a JSON value, however deep."""
    if isinstance(value, dict):
        return set(value) | {key for content in value.values() for key in keys_of(content)}
    return {key for item in value for key in keys_of(item)} if isinstance(value, list) else set()


def test_links_in_the_documentation_lead_somewhere() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"
