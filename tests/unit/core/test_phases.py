"""A phase follows from the facts that hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.phases import Fact, Phase, phase_of

SERVING = Fact.LISTENED
DELETED = SERVING | Fact.DELETED


@pytest.mark.parametrize(
    ("facts", "phase"),
    [
        (Fact(0), Phase.STARTING),
        (SERVING, Phase.RUNNING),
        (SERVING | Fact.CLOSED, Phase.RUNNING),
        (SERVING | Fact.SIGNALLED, Phase.RESTARTING),
        (SERVING | Fact.EXITED | Fact.CLOSED, Phase.RESTARTING),
        (DELETED, Phase.TERMINATING),
        (DELETED | Fact.PRESTOP_DECLARED, Phase.PRESTOP),
        (DELETED | Fact.PRESTOP_DECLARED | Fact.SIGNALLED, Phase.STOPPING),
        (DELETED | Fact.SIGNALLED | Fact.CLOSED, Phase.CLOSED),
        (DELETED | Fact.PRESTOP_DECLARED | Fact.CLOSED, Phase.CLOSED),
        (DELETED | Fact.SIGNALLED | Fact.CLOSED | Fact.EXITED, Phase.EXITED),
        (DELETED | Fact.EXITED | Fact.GONE, Phase.GONE),
        (SERVING | Fact.GONE, Phase.GONE),
    ],
)
def test_the_latest_fact_decides(facts: Fact, phase: Phase) -> None:
    assert phase_of(facts) is phase


@given(st.integers(0, 127))
def test_a_deleted_pod_is_dying_whatever_else_holds(bits: int) -> None:
    assert phase_of(Fact(bits) | Fact.DELETED).dying
