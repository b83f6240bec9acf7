"""A late count is right if it lies between what is late for certain and what may be."""

import json
from pathlib import Path

from agent.lab.late_connections import (
    LEARNED_WITHIN_NS,
    LateTruth,
    accepted_from,
    late_truth,
    wrong_late_counts,
)

DELETED = 1_000_000_000_000


def test_connections_of_others_and_from_before_the_deletion_do_not_count(tmp_path: Path) -> None:
    log = tmp_path / "web.accepted"
    entries = [
        ("10.9.0.2", DELETED - 1),
        ("10.9.0.2", DELETED + 1),
        ("10.9.0.2", DELETED + LEARNED_WITHIN_NS),
        ("10.9.0.1", DELETED + LEARNED_WITHIN_NS),
    ]
    log.write_text("".join(json.dumps({"peer": peer, "accepted_ns": at}) + "\n" for peer, at in entries))
    accepted = accepted_from(log, frozenset({"10.9.0.2"}))
    assert late_truth(accepted, DELETED) == LateTruth(at_least=1, at_most=2)


def test_a_count_outside_its_bounds_is_wrong() -> None:
    truth = {"web-1": LateTruth(1, 2), "web-2": LateTruth(1, 1)}
    assert wrong_late_counts(truth, {"web-1": 2, "web-2": 1}, {}) == {}
    assert wrong_late_counts(truth, {"web-1": 3}, {}) == truth


def test_connections_that_waited_unaccepted_are_late_as_well() -> None:
    truth = {"web-1": LateTruth(0, 1)}
    assert wrong_late_counts(truth, {"web-1": 4}, {"web-1": 3}) == {}
    assert wrong_late_counts(truth, {"web-1": 5}, {"web-1": 3}) == truth
