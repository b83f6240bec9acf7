"""What the kernel has counted, and what of it counts."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agent.core.kinds import Kind
from agent.core.phases import Fact
from agent.core.records import Address


@dataclass(frozen=True, slots=True)
class CountKey:
    """What a count is of: `kind` None is a late connection, which a dying pod accepted."""

    netns: int
    port: int
    kind: Kind | None
    facts: Fact


@dataclass(frozen=True, slots=True)
class Count:
    """How many connections, and when the first and the last of them came."""

    connections: int
    first_ns: int
    last_ns: int

    def __add__(self, other: "Count") -> "Count":
        return Count(
            self.connections + other.connections,
            min(self.first_ns, other.first_ns),
            max(self.last_ns, other.last_ns),
        )


@dataclass(frozen=True, slots=True)
class HookCounts:
    """What a hook has delivered, and what a full map or ring buffer did not take."""

    events: int
    lost: int


@dataclass(frozen=True, slots=True)
class KernelCounts:
    """One reading of the kernel's counters."""

    counts: Mapping[CountKey, Count] = field(default_factory=dict)
    sources: Mapping[tuple[int, Address], int] = field(default_factory=dict)
    hooks: Mapping[str, HookCounts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CountsRead:
    """A reading of the kernel's counters in a recording: only what has changed since the one before."""

    at_ns: int
    changed: KernelCounts


def changes_between(before: KernelCounts, after: KernelCounts) -> KernelCounts:
    """What of a reading is not as it was in the one before."""
    return KernelCounts(
        {key: count for key, count in after.counts.items() if before.counts.get(key) != count},
        {source: n for source, n in after.sources.items() if before.sources.get(source) != n},
        {hook: count for hook, count in after.hooks.items() if before.hooks.get(hook) != count},
    )


def with_starting_refusals(
    counts: Mapping[CountKey, Count],
    unserved: Mapping[CountKey, Count],
    served: Iterable[tuple[int, int]],
) -> dict[CountKey, Count]:
    """The counts, with those refusals on unserved ports that turned out to be of a starting server.

    A refusal on a port that nobody listened on is a drop only if somebody listens there later (`served`
    are the namespaces and ports where somebody has): otherwise it is a port scan.
    """
    ports = set(served)
    total = dict(counts)
    for key, count in unserved.items():
        if (key.netns, key.port) in ports:
            total[key] = total[key] + count if key in total else count
    return total
