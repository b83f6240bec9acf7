"""Commits of this node's nftables rules: the moment at which changed rules take effect.

The kernel tells of every rule of a transaction and then of its commit, each commit in a datagram of its own.
A socket filter keeps the commits alone, so that a transaction of thousands of rules neither wakes the agent
hundreds of times nor overflows the socket, which would lose the commit.
"""

import ctypes
import errno
import logging
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable

from pyroute2.netlink import NETLINK_NETFILTER
from pyroute2.netlink.exceptions import NetlinkDecodeError
from pyroute2.netlink.nfnetlink import NFNL_SUBSYS_NFTABLES, NFNLGRP_NFTABLES
from pyroute2.netlink.nfnetlink.nftsocket import NFT_MSG_NEWGEN, nft_gen_msg

from agent.core.records import NftablesCommitted

logger = logging.getLogger(__name__)

COMMIT_BYTES = 4096
"""A commit has 44."""

_SOL_NETLINK = 270
_NETLINK_ADD_MEMBERSHIP = 1
_SO_ATTACH_FILTER = 26
_TYPE_OFFSET = 4
_LOAD_HALF_WORD, _JUMP_IF_EQUAL, _RETURN = 0x28, 0x15, 0x06


class NftablesCommits:
    """Tells of commits in the network namespace of the thread that starts it.

    Where the kernel has no netfilter netlink, or the agent may not listen to it, there are none, and one line
    in the log says so.
    """

    def __init__(self, emit: Callable[[NftablesCommitted], None]) -> None:
        self._emit = emit
        self._stopping = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to watch; returns once nothing can be missed any more."""
        try:
            commits = _socket_of_commits()
        except OSError as error:
            logger.warning(
                "commits of nftables rules are not seen (%s): kube-proxy is known from its metrics alone",
                "NET_ADMIN is missing" if isinstance(error, PermissionError) else error.strerror,
            )
            return
        self._thread = threading.Thread(
            target=self._watch, args=(commits,), name="nftables-commits", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close its socket; it need not have been started."""
        os.eventfd_write(self._stopping, 1)
        if self._thread is not None:
            self._thread.join()
        os.close(self._stopping)

    def _watch(self, commits: socket.socket) -> None:
        ready = select.poll()
        ready.register(commits, select.POLLIN)
        ready.register(self._stopping, select.POLLIN)
        with commits:
            while self._stopping not in dict(ready.poll()):
                try:
                    message = commits.recv(COMMIT_BYTES)
                except OSError as error:
                    # Commits were lost to a full socket: what came of them is seen later, or not at all.
                    if error.errno == errno.ENOBUFS:
                        continue
                    logger.warning("commits of nftables rules are no longer seen (%s)", error.strerror)
                    return
                commit = commit_of(message, time.time_ns())
                if commit is not None:
                    self._emit(commit)


def commit_of(message: bytes, at_ns: int) -> NftablesCommitted | None:
    """The commit that a netlink message tells of; None for one that lacks its generation or process."""
    decoded = nft_gen_msg(message)
    try:
        decoded.decode()
    except (NetlinkDecodeError, struct.error):
        return None
    generation = decoded.get_attr("NFTA_GEN_ID")
    process = decoded.get_attr("NFTA_GEN_PROC_NAME")
    if generation is None or process is None:
        return None
    # A name that is no text comes as it is.
    name = process.decode(errors="replace") if isinstance(process, bytes) else process
    return NftablesCommitted(at_ns, generation, name)


def _socket_of_commits() -> socket.socket:
    commits = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_NETFILTER)
    try:
        _keep_commits_alone(commits)
        # A socket without an address of its own gets nothing: the kernel takes it for the sender.
        commits.bind((0, 0))
        commits.setsockopt(_SOL_NETLINK, _NETLINK_ADD_MEMBERSHIP, NFNLGRP_NFTABLES)
    except OSError:
        commits.close()
        raise
    return commits


def _keep_commits_alone(commits: socket.socket) -> None:
    """Attach a classic BPF program (linux/filter.h) that looks at the type of a datagram's first message."""
    # The type is in the node's byte order, and the filter reads it in network order.
    commit = socket.htons(NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWGEN)
    instructions = (
        (_LOAD_HALF_WORD, 0, 0, _TYPE_OFFSET),
        (_JUMP_IF_EQUAL, 0, 1, commit),
        (_RETURN, 0, 0, 0xFFFFFFFF),
        (_RETURN, 0, 0, 0),
    )
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in instructions))
    commits.setsockopt(
        socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", len(instructions), ctypes.addressof(program))
    )
