"""Reading the kernel's counters out of its maps."""

from agent.core.counts import Count, CountKey, HookCounts, KernelCounts, with_starting_refusals
from agent.core.phases import Fact
from agent.core.records import Address
from agent.kernel.hooks import COUNTED_HOOKS
from agent.kernel.layout import KIND_OF_CODE, DropCount, DropKey, to_address
from agent.kernel.libbpf import BpfMap
from agent.kernel.maps import Maps


def read_counters(maps: Maps, offset_ns: int) -> KernelCounts:
    """Everything counted so far; `offset_ns` leads from CLOCK_BOOTTIME to the time since the epoch."""
    drops = _counts(maps.drops, offset_ns)
    unserved = _counts(maps.unserved, offset_ns)
    served = [(key.netns, key.port) for key, port in maps.ports.items() if port.facts & Fact.LISTENED]
    return KernelCounts(
        with_starting_refusals(drops, unserved, served), _sources(maps), read_hook_counts(maps)
    )


def _counts(table: BpfMap[DropKey, DropCount], offset: int) -> dict[CountKey, Count]:
    return {
        CountKey(key.netns, key.port, KIND_OF_CODE.get(key.kind), Fact(key.facts)): Count(
            count.count, count.first_ns + offset, count.last_ns + offset
        )
        for key, count in table.items()
        # An entry is made before it is counted in.
        if count.count
    }


def _sources(maps: Maps) -> dict[tuple[int, Address], int]:
    return {
        (key.netns, to_address(bytes(key.address))): int(count.value) for key, count in maps.sources.items()
    }


def read_hook_counts(maps: Maps) -> dict[str, HookCounts]:
    """Events and losses of each hook, by its name."""
    counted = {}
    for index, count in maps.hook_counts.items():
        if index.value < len(COUNTED_HOOKS):
            counted[COUNTED_HOOKS[index.value].name] = HookCounts(count.events, count.lost)
    return counted
