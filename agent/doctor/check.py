"""The outcome of one check."""

from dataclasses import dataclass
from enum import Enum


class Status(Enum):
    """Ok; something is missing but the agent is of use without it; the agent cannot do its job."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """What was found and, unless all is well, what to do about it."""

    name: str
    status: Status
    found: str
    remedy: str | None = None


def usable(checks: tuple[Check, ...]) -> bool:
    """Whether the agent can do its job on a node with these outcomes."""
    return all(check.status is not Status.FAIL for check in checks)
