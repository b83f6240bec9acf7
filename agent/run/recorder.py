"""Writes what the agent takes in to a file, from which `agent replay` makes the same metrics and report."""

import contextlib
import logging
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from agent.core.counts import CountsRead, KernelCounts, changes_between
from agent.core.kept_lines import KeptLines
from agent.core.observation import OwnState, OwnStateRead
from agent.core.recording import RecordingHeader, begins_recording, entry_line, header_line
from agent.core.records import Record
from agent.core.tracker import Tracker

LONGEST_HEADER = 1_000_000

_log = logging.getLogger(__name__)


class Recorder:
    """A recording in FILE, and in FILE.1 what came before; used by one thread at a time.

    When FILE takes half of the limit it becomes FILE.1, in place of an older one. The new FILE begins with
    the lines about the pods that are still known and with the counters as they are, so each of the two can be
    replayed alone. Where these lines leave less than half of that for new ones, FILE grows beyond it: a file
    that was full when it began would be begun again at each reading. A FILE that an agent before has left
    becomes FILE.1 too. Raises OSError where FILE cannot be written at the start, ValueError where it is no
    recording; a later failure ends the recording.
    """

    def __init__(self, path: Path, limit_bytes: int, header: RecordingHeader) -> None:
        self._path = path
        self._half = limit_bytes // 2
        self._header = header_line(header)
        self._kept = KeptLines()
        self._counts = KernelCounts()
        self._own = OwnState()
        self._begun_with = 0
        self._grown = 0
        _set_aside(path)
        self._file: TextIO | None = None
        self._begin(())

    def took(self, record: Record) -> None:
        """Write a record that the agent takes in."""
        line = entry_line(record)
        self._kept.add(record, line)
        self._write(line)

    def read(self, at_ns: int, counts: KernelCounts, own: OwnState, tracker: Tracker) -> None:
        """Write what has changed of counters and own state; begin a new file if it is time."""
        changed = changes_between(self._counts, counts)
        if changed != KernelCounts():
            self._write(entry_line(CountsRead(at_ns, changed)))
        if own != self._own:
            self._write(entry_line(OwnStateRead(at_ns, own)))
        self._counts, self._own = counts, own
        self._kept.forget(tracker)
        if self._grown > max(self._half - self._begun_with, self._half // 2):
            self._rotate(at_ns)
        self._flush()

    def close(self, at_ns: int) -> None:
        """End the recording with the time of its end."""
        self._write(entry_line(OwnStateRead(at_ns, self._own)))
        self._flush()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begin(self, lines: Iterable[str]) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.fchmod(descriptor, 0o600)  # it may have been there, empty and for others to read
        self._file = open(descriptor, "w", encoding="utf-8")  # noqa: SIM115 (open until the agent ends)
        begins_with = (self._header, *lines)
        self._file.writelines(begins_with)
        self._begun_with = sum(map(len, begins_with))
        self._grown = 0

    def _rotate(self, at_ns: int) -> None:
        if self._file is None:
            return
        state = (
            entry_line(CountsRead(at_ns, self._counts)),
            entry_line(OwnStateRead(at_ns, self._own)),
        )
        try:
            self._file.close()
            self._path.replace(_older(self._path))
            self._begin((*self._kept.lines(), *state))
        except OSError as error:
            self._give_up(error)

    def _write(self, line: str) -> None:
        if self._file is None:
            return
        try:
            self._file.write(line)
        except OSError as error:
            self._give_up(error)
        self._grown += len(line)

    def _flush(self) -> None:
        if self._file is None:
            return
        try:
            self._file.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        _log.warning("the recording in %s has ended: %s; the agent goes on", self._path, error.strerror)
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        self._file = None


def _older(path: Path) -> Path:
    return path.with_name(path.name + ".1")


def _set_aside(path: Path) -> None:
    """Keep the recording of an agent that ended. Raises ValueError before a file of another kind is lost."""
    for file in (path, _older(path)):
        if file.is_file() and not begins_recording(_first_line(file)):
            raise ValueError(f"{file} is there and is no recording: choose another file with --record")
    # One that ended before it took anything in must not cost the recording of the one before it.
    if path.is_file() and path.stat().st_size > len(_first_line(path)):
        path.replace(_older(path))


def _first_line(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.readline(LONGEST_HEADER)
