"""A thread that has ended is found and is one line in the log."""

import threading
from collections.abc import Iterator

import pytest

from agent.run.threads import ended_thread, say_in_one_line


@pytest.fixture
def running() -> Iterator[threading.Thread]:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="loop")
    thread.start()
    yield thread
    stop.set()
    thread.join()


def test_threads_that_run_and_those_that_were_not_started_have_not_ended(running: threading.Thread) -> None:
    assert ended_thread([running, threading.Thread(name="later")]) is None


def test_a_thread_that_has_ended_is_named(running: threading.Thread) -> None:
    over = threading.Thread(name="records")
    over.start()
    over.join()
    assert ended_thread([running, over]) == "the thread 'records' has ended"


def test_what_ended_a_thread_is_one_line_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(threading, "excepthook", say_in_one_line)
    thread = threading.Thread(target=fail, name="sweep")
    thread.start()
    thread.join()
    assert caplog.messages == ["the thread 'sweep' has ended: RuntimeError: two lines; please report it"]
    assert capfd.readouterr() == ("", "")
