from itertools import combinations

import pytest

from agent.lab.node.address_plan import RUNS, plan_of_run


def test_no_two_runs_share_an_address() -> None:
    seen: set[str] = set()
    for index in range(RUNS):
        plan = plan_of_run(index)
        networks = {str(plan.pods_v4), str(plan.pods_v6), str(plan.services_v4), str(plan.services_v6)}
        assert len(networks) == 4
        assert not networks & seen
        seen |= networks


def test_the_ranges_of_one_run_are_apart() -> None:
    plan = plan_of_run(RUNS - 1)
    for one, other in combinations([plan.pods_v4, plan.services_v4], 2):
        assert not one.overlaps(other)
    assert not plan.pods_v6.overlaps(plan.services_v6)


@pytest.mark.parametrize(
    ("networks", "overlaps"),
    [
        (["0.0.0.0/0", "::/0", "192.0.2.0/24", "fe80::/64"], False),
        (["10.0.0.0/8"], True),
        (["10.200.0.17"], True),
        (["10.201.0.0/16"], True),
        (["fd00::/8"], True),
        (["fd00:1a57:0:1::5"], True),
        (["10.200.1.0/24"], False),
    ],
)
def test_a_plan_knows_what_the_host_uses_already(networks: list[str], overlaps: bool) -> None:
    assert plan_of_run(0).overlaps(networks) is overlaps
