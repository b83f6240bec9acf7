import signal

import pytest

from agent.lab.node.errors import NodeError
from agent.lab.node.host_command import how_it_ended, run


def test_a_tool_that_fails_in_silence_is_reported_with_its_exit_status() -> None:
    with pytest.raises(NodeError, match=r"^false failed: exit status 1$"):
        run(["false"])


def test_a_tool_killed_by_a_signal_is_reported_with_the_signal() -> None:
    with pytest.raises(NodeError, match=r"killed by SIGTERM$"):
        run(["sh", "-c", "kill -TERM $$"])


def test_a_crash_of_nft_says_that_tables_of_a_newer_nft_are_to_be_removed() -> None:
    assert how_it_ended("nft", -signal.SIGSEGV).startswith("killed by SIGSEGV; if 'nft list ruleset' ends so")
