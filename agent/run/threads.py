"""Threads that have ended though they should not, and what is said of it."""

import logging
import threading
from collections.abc import Iterable

_log = logging.getLogger(__name__)


def ended_thread(threads: Iterable[threading.Thread]) -> str | None:
    """The first of the threads that was started and runs no more, in words; None if all of them run."""
    for thread in threads:
        if thread.ident is not None and not thread.is_alive():
            return f"the thread {thread.name!r} has ended"
    return None


def say_in_one_line(fault: threading.ExceptHookArgs) -> None:
    """What ended a thread, in place of a traceback: for threading.excepthook."""
    name = fault.thread.name if fault.thread is not None else "unknown"
    reason = " ".join(f"{fault.exc_type.__name__}: {fault.exc_value or ''}".split())
    _log.error("the thread %r has ended: %s; please report it", name, reason)
