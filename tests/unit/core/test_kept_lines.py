"""Lines for the next file of a recording: few for what tells nothing new, all for what does."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from agent.core.kept_lines import KeptLines
from agent.core.observation import Observation
from agent.core.records import Pod, PodChanged
from agent.core.tracker import Tracker
from tests.unit.core.lives import SECOND, a_pod

READY = a_pod()
UNREADY = replace(READY, ready=False)
STARTED_AGAIN = replace(
    READY, containers=tuple(replace(each, container_id="d" * 64, restarts=1) for each in READY.containers)
)


def kept(*pods: Pod) -> list[int]:
    """The places of the states that are kept, of states that follow each other."""
    lines = KeptLines()
    for at_ns, pod in enumerate(pods):
        lines.add(PodChanged(at_ns, pod), str(at_ns))
    return [int(line) for line in lines.lines()]


def test_of_a_pod_that_becomes_ready_and_unready_the_first_and_the_last_line_stay() -> None:
    assert kept(*[READY, UNREADY] * 30) == [0, 59]


def test_when_a_run_of_a_container_was_first_and_last_told_of_stays() -> None:
    assert kept(READY, UNREADY, READY, STARTED_AGAIN, STARTED_AGAIN, STARTED_AGAIN) == [0, 2, 3, 5]


def test_everything_about_a_dying_pod_stays() -> None:
    dying = [replace(pod, deletion_requested_ns=5) for pod in (READY, UNREADY)]
    assert kept(READY, UNREADY, READY, *dying, *dying) == [0, 2, 3, 4, 5, 6]


def test_nothing_is_kept_of_a_pod_that_is_forgotten() -> None:
    lines = KeptLines()
    for at_ns in range(5):
        lines.add(PodChanged(at_ns, READY), "line")
    lines.forget(Tracker())
    lines.add(PodChanged(9, READY), "new")
    assert list(lines.lines()) == ["new"]


STATES = (
    READY,
    UNREADY,
    STARTED_AGAIN,
    replace(READY, containers=tuple(replace(each, running=False, exit_code=1) for each in READY.containers)),
    replace(READY, deletion_requested_ns=3 * SECOND),
    replace(UNREADY, deletion_requested_ns=3 * SECOND),
)


@given(st.lists(st.sampled_from(STATES), max_size=12))
def test_what_is_kept_tells_of_the_pod_all_that_the_whole_tells(states: list[Pod]) -> None:
    records = [PodChanged(place * SECOND, pod) for place, pod in enumerate(states)]
    whole, part = Observation(600 * SECOND).tracker, Observation(600 * SECOND).tracker
    for record in records:
        whole.apply(record)
    for place in kept(*states):
        part.apply(records[place])
    assert part.lives == whole.lives
