"""The scenarios are those of the field, each complete."""

import pytest

from agent.lab.node.outcome import Via
from agent.lab.scenario import Scenario, Variant
from agent.lab.scenarios import COMMONEST, SCENARIOS

NAMES = [
    "clean",
    "exits-at-once",
    "prestop-too-short",
    "network-gone",
    "keepalive-reuse",
    "sleep-instead-of-drain",
    "grace-too-short",
    "accept-queue",
    "sigterm-ignored",
    "prestop-fails",
    "cold-start",
    "container-restart",
    "retried-get",
    "single-replica",
]


def test_there_is_one_scenario_for_each_failure_of_the_field() -> None:
    assert [scenario.name for scenario in SCENARIOS] == NAMES


def test_the_commonest_four_are_played_before_and_after_their_fix() -> None:
    assert len(COMMONEST) == 4
    assert all(scenario.variants == (Variant.BEFORE, Variant.AFTER) for scenario in COMMONEST)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: str(scenario.name))
def test_what_shows_a_failure_has_a_fix(scenario: Scenario) -> None:
    assert bool(scenario.shows) is (scenario.after is not None) is (scenario.fix is not None)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: str(scenario.name))
def test_every_scenario_has_load(scenario: Scenario) -> None:
    assert scenario.load
    assert all(stream.rate > 0 and stream.via is not Via.UPSTREAM for stream in scenario.load)


def test_a_scenario_without_a_fix_has_no_second_variant() -> None:
    with pytest.raises(ValueError, match="nothing to fix"):
        SCENARIOS[0].workload(Variant.AFTER)
