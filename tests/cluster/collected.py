"""Collects what a thread tells and waits for it."""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

PATIENCE_SECONDS = 10.0


class Collected(Generic[T]):
    """A list that another thread fills."""

    def __init__(self) -> None:
        self._items: list[T] = []
        self._grew = threading.Condition()

    def __call__(self, item: T) -> None:
        with self._grew:
            self._items.append(item)
            self._grew.notify_all()

    @property
    def items(self) -> list[T]:
        """What has been told so far."""
        with self._grew:
            return list(self._items)

    def wait_for(self, met: Callable[[list[T]], object], patience: float = PATIENCE_SECONDS) -> list[T]:
        """What has been told once `met` holds of it; fails the test if that does not come about."""
        with self._grew:
            if not self._grew.wait_for(lambda: met(self._items), patience):
                raise AssertionError(f"waited {patience} s in vain; told so far: {self._items}")
            return list(self._items)


def wait_until(met: Callable[[], object]) -> None:
    """Wait for what no thread tells of; fails the test if it does not come about."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while not met():
        assert time.monotonic() < ends, "waited in vain"
        time.sleep(0.01)
