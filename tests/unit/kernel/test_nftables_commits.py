"""Commits of nftables rules out of netlink messages, and nodes that cannot tell of them."""

import errno
import os
import socket
import struct
from collections.abc import Callable
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.records import NftablesCommitted, Record
from agent.kernel.nftables_commits import NftablesCommits, commit_of

GENERATION, PROCESS_ID, PROCESS_NAME = 1, 2, 3


def message_of(**attributes: bytes) -> bytes:
    """As the kernel sends it (uapi/linux/netfilter/nf_tables.h)."""
    numbers = {"generation": GENERATION, "process_id": PROCESS_ID, "name": PROCESS_NAME}
    body = b"".join(
        struct.pack("=HH", len(value) + 4, numbers[name]) + value + b"\0" * (-len(value) % 4)
        for name, value in attributes.items()
    )
    return struct.pack("=IHHIIBBH", 20 + len(body), 0x0A0F, 0, 1, 2283, 0, 0, 0) + body


def test_a_commit_has_its_generation_and_the_name_of_its_process() -> None:
    message = message_of(generation=b"\0\0\1\2", process_id=b"\0\0\x08\xeb", name=b"iptables-restor\0")
    assert commit_of(message, 5) == NftablesCommitted(5, 258, "iptables-restor")


def test_a_process_name_that_is_no_text_is_still_a_commit() -> None:
    commit = commit_of(message_of(generation=b"\0\0\0\1", name=b"\xff\xfe\0"), 5)
    assert commit == NftablesCommitted(5, 1, "\ufffd\ufffd")


def test_a_message_without_generation_or_name_is_passed_over() -> None:
    assert commit_of(message_of(generation=b"\0\0\0\1"), 5) is None
    assert commit_of(message_of(name=b"nft\0"), 5) is None


@given(st.binary(max_size=100) | st.binary(max_size=60).map(lambda tail: message_of() + tail))
def test_bytes_that_are_no_commit_raise_nothing(raw: bytes) -> None:
    commit_of(raw, 5)


def refuse(number: int) -> Callable[..., NoReturn]:
    def refusing(*_arguments: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    return refusing


@pytest.mark.parametrize(
    ("number", "reason"),
    [(errno.EPROTONOSUPPORT, "Protocol not supported"), (errno.EPERM, "NET_ADMIN is missing")],
)
def test_a_node_that_cannot_tell_of_commits_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int, reason: str
) -> None:
    monkeypatch.setattr(socket, "socket", refuse(number))
    records: list[Record] = []
    commits = NftablesCommits(records.append)
    commits.start()
    commits.stop()
    assert [record.message for record in caplog.records] == [
        f"commits of nftables rules are not seen ({reason}): kube-proxy is known from its metrics alone"
    ]


def test_a_watch_that_was_never_started_can_be_stopped() -> None:
    NftablesCommits(lambda _commit: None).stop()
