"""A kernel side whose records are kept, for tests of what it tells."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from agent.core.orders import Order
from agent.core.records import KernelRecord
from agent.kernel.kernel_side import KernelSide

ARRIVES_SECONDS = 5.0
SILENCE_SECONDS = 0.2
"""Records arrive within a few milliseconds: after this long nothing more comes."""

Told = TypeVar("Told", bound=KernelRecord)


@dataclass
class RecordingKernel:
    """The records are in the order in which they were told."""

    side: KernelSide
    records: list[KernelRecord] = field(default_factory=list)

    def carry_out(self, *orders: Order) -> None:
        self.side.carry_out(orders)

    def told(self, kind: type[Told], chosen: Callable[[Told], bool]) -> list[Told]:
        """The chosen records of one kind so far."""
        return [record for record in tuple(self.records) if isinstance(record, kind) and chosen(record)]

    def wait(self, kind: type[Told], chosen: Callable[[Told], bool]) -> Told:
        """The first of them; waits until there is one."""
        deadline = time.monotonic() + ARRIVES_SECONDS
        while not (found := self.told(kind, chosen)):
            assert time.monotonic() < deadline, f"no {kind.__name__} was told of"
            time.sleep(0.005)
        return found[0]

    def after_silence(self, kind: type[Told], chosen: Callable[[Told], bool]) -> list[Told]:
        """The chosen records once nothing more can come."""
        time.sleep(SILENCE_SECONDS)
        return self.told(kind, chosen)
