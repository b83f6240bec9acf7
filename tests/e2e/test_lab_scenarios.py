"""Every scenario of the lab, with the ordinary agent in its own process: its counts equal the clients'."""

import json
import subprocess
import sys
from typing import Any

import pytest

from agent.lab.scenarios import SCENARIOS

LAB = (sys.executable, "-m", "agent.cli", "lab", "--json")
NAMES = [scenario.name for scenario in SCENARIOS]
ROUTED_NAMES = ["network-gone", "exits-at-once", "keepalive-reuse"]


def played(*flags: str, timeout: float) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """A lab run and its results by scenario."""
    ended = subprocess.run([*LAB, *flags], capture_output=True, text=True, timeout=timeout)
    results = [json.loads(line) for line in ended.stdout.splitlines()]
    return ended, {result["scenario"]: result for result in results}


@pytest.fixture(scope="module")
def bridge() -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    return played("--all", timeout=400)


@pytest.fixture(scope="module")
def routed() -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    flags = [flag for name in ROUTED_NAMES for flag in ("--scenario", name)]
    return played("--cni", "routed", *flags, timeout=150)


@pytest.mark.timeout(450)
@pytest.mark.parametrize("name", NAMES)
def test_the_counts_equal_the_clients_on_a_bridge(
    name: str, bridge: tuple[subprocess.CompletedProcess[str], dict[str, Any]]
) -> None:
    ended, results = bridge
    assert name in results, ended.stderr
    problems = {play["variant"]: play["problems"] for play in results[name]["plays"]}
    assert not any(problems.values()), json.dumps(results[name]["plays"], indent=2)


@pytest.mark.timeout(200)
@pytest.mark.parametrize("name", ROUTED_NAMES)
def test_the_counts_equal_the_clients_on_routes(
    name: str, routed: tuple[subprocess.CompletedProcess[str], dict[str, Any]]
) -> None:
    ended, results = routed
    assert name in results, ended.stderr
    assert results[name]["equal"], json.dumps(results[name]["plays"], indent=2)


@pytest.mark.timeout(450)
def test_a_run_without_problems_ends_with_success(
    bridge: tuple[subprocess.CompletedProcess[str], dict[str, Any]],
) -> None:
    ended, _ = bridge
    assert (ended.returncode, ended.stderr) == (0, "")
