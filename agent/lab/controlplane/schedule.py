"""Actions that are due some time after the change that caused them, done in order by one thread."""

import heapq
import itertools
import threading
import time
from collections.abc import Callable

Action = Callable[[], None]


class DueActions:
    """A thread that runs actions when they are due. An exception ends it and is raised again by `stop()`."""

    def __init__(self) -> None:
        self._queue: list[tuple[float, int, Action]] = []
        self._order = itertools.count()
        self._stopping = False
        self._failure: Exception | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def after(self, seconds: float, action: Action) -> None:
        """Run an action in `seconds`; actions due at the same time keep their order."""
        with self._changed:
            heapq.heappush(self._queue, (time.monotonic() + seconds, next(self._order), action))
            self._changed.notify()

    def stop(self) -> None:
        """End the thread; actions not yet due are not run."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while (action := self._next()) is not None:
                action()
        except Exception as failure:
            self._failure = failure

    def _next(self) -> Action | None:
        with self._changed:
            while not self._stopping:
                if not self._queue:
                    self._changed.wait()
                elif (left := self._queue[0][0] - time.monotonic()) > 0:
                    self._changed.wait(left)
                else:
                    return heapq.heappop(self._queue)[2]
            return None
