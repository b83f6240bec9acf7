"""Gives up what the process may do beyond what it still needs, for good."""

import ctypes
import errno
import os
from pathlib import Path

from agent.kernel.capabilities import CAPABILITY_BITS, KEPT_ONCE_ATTACHED
from agent.kernel.errors import KernelSideError

LAST_CAPABILITY = Path("/proc/sys/kernel/cap_last_cap")

_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_VERSION_3 = 0x20080522
"""_LINUX_CAPABILITY_VERSION_3 of linux/capability.h: two words of 32 bits for each set."""


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def drop_capabilities(kept: frozenset[str] = KEPT_ONCE_ATTACHED) -> None:
    """Keep, of the capabilities that this thread has, no more than `kept`; programs it starts get no others.

    Threads that it starts from now on inherit this; those that run already keep what they have, so it is
    called before there are any. Raises KernelSideError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    numbers = {CAPABILITY_BITS[name] for name in kept}
    for number in range(int(LAST_CAPABILITY.read_text()) + 1):
        if number not in numbers and libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) < 0:
            # Without CAP_SETPCAP the bounding set stays: no_new_privs below is then what holds.
            _demand_expected(errno.EPERM)
            break
    _demand(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    header = _Header(_VERSION_3, 0)
    sets = (_Sets * 2)()
    _demand(libc.capget(ctypes.byref(header), sets))
    for word, one in enumerate(sets):
        mask = sum(1 << (number - 32 * word) for number in numbers if number // 32 == word)
        one.permitted &= mask
        one.effective = one.permitted
        one.inheritable = 0
    _demand(libc.capset(ctypes.byref(header), sets))


def _demand(result: int) -> None:
    if result < 0:
        raise KernelSideError(f"cannot drop capabilities ({os.strerror(ctypes.get_errno())})")


def _demand_expected(number: int) -> None:
    if ctypes.get_errno() != number:
        raise KernelSideError(f"cannot drop capabilities ({os.strerror(ctypes.get_errno())})")
