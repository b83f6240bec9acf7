"""The layouts of bpf/records.h, and what their numbers mean."""

import ctypes
from ipaddress import IPv6Address

from agent.core.kinds import Kind
from agent.core.records import Address

LATE_CODE = 0
KIND_OF_CODE = {
    1: Kind.REFUSED,
    2: Kind.STALE,
    3: Kind.UNACCEPTED,
    4: Kind.UNREAD,
    5: Kind.UNANSWERED,
    6: Kind.ABORTED,
    7: Kind.UNREACHABLE,
    8: Kind.OVERFLOW,
}

PORT_CLOSED_BY_EXIT = 256

RECORD_LISTENER_OPENED = 1
RECORD_LISTENER_CLOSED = 2
RECORD_SIGNAL = 3
RECORD_EXIT = 4
RECORD_DROP = 5
RECORD_PROCESS_ENTERED = 6
RECORD_ENTERED_PROCESS_ENDED = 7
RECORD_KUBELET_CONNECTED = 8
RECORD_KUBELET_DISCONNECTED = 9

AddressBytes = ctypes.c_uint8 * 16


class PodEntry(ctypes.Structure):
    """struct lc_pod"""

    _fields_ = (("facts", ctypes.c_uint32), ("evidence", ctypes.c_uint32))


class ContainerEntry(ctypes.Structure):
    """struct lc_container"""

    _fields_ = (
        ("netns", ctypes.c_uint64),
        ("signalled_ns", ctypes.c_uint64),
        ("exited_ns", ctypes.c_uint64),
        ("facts", ctypes.c_uint32),
        ("pad", ctypes.c_uint32),
    )


class PortKey(ctypes.Structure):
    """struct lc_port_key"""

    _fields_ = (("netns", ctypes.c_uint64), ("port", ctypes.c_uint16), ("pad", ctypes.c_uint16 * 3))


class PortEntry(ctypes.Structure):
    """struct lc_port"""

    _fields_ = (
        ("listener", ctypes.c_uint64),
        ("opened_ns", ctypes.c_uint64),
        ("closed_ns", ctypes.c_uint64),
        ("listeners", ctypes.c_uint32),
        ("facts", ctypes.c_uint32),
        ("init_pid", ctypes.c_uint32),
        ("pad", ctypes.c_uint32),
    )


class DropKey(ctypes.Structure):
    """struct lc_drop_key"""

    _fields_ = (
        ("netns", ctypes.c_uint64),
        ("port", ctypes.c_uint16),
        ("kind", ctypes.c_uint8),
        ("facts", ctypes.c_uint8),
        ("pad", ctypes.c_uint32),
    )


class DropCount(ctypes.Structure):
    """struct lc_drop_count"""

    _fields_ = (("count", ctypes.c_uint64), ("first_ns", ctypes.c_uint64), ("last_ns", ctypes.c_uint64))


class SourceKey(ctypes.Structure):
    """struct lc_source_key"""

    _fields_ = (("netns", ctypes.c_uint64), ("address", AddressBytes))


class Connection(ctypes.Structure):
    """struct lc_connection"""

    _fields_ = (
        ("local", AddressBytes),
        ("remote", AddressBytes),
        ("local_port", ctypes.c_uint16),
        ("remote_port", ctypes.c_uint16),
        ("pad", ctypes.c_uint32),
    )


class LastDrop(ctypes.Structure):
    """struct lc_last_drop"""

    _fields_ = (
        ("at_ns", ctypes.c_uint64),
        ("sequence", ctypes.c_uint32),
        ("kind", ctypes.c_uint8),
        ("pad", ctypes.c_uint8 * 3),
    )


class HookCount(ctypes.Structure):
    """struct lc_hook_count"""

    _fields_ = (("events", ctypes.c_uint64), ("lost", ctypes.c_uint64))


class ProcessName(ctypes.Structure):
    """struct lc_process_name"""

    _fields_ = (("comm", ctypes.c_char * 16),)


class RecordBytes(ctypes.Structure):
    """struct lc_record"""

    _fields_ = (
        ("at_ns", ctypes.c_uint64),
        ("netns", ctypes.c_uint64),
        ("source", AddressBytes),
        ("type", ctypes.c_uint32),
        ("pid", ctypes.c_uint32),
        ("init_pid", ctypes.c_uint32),
        ("value", ctypes.c_int32),
        ("port", ctypes.c_uint16),
        ("source_port", ctypes.c_uint16),
        ("kind", ctypes.c_uint8),
        ("facts", ctypes.c_uint8),
        ("signal", ctypes.c_uint8),
        ("pad", ctypes.c_uint8),
        ("comm", ctypes.c_char * 16),
    )


def to_address(raw: bytes) -> Address:
    """16 bytes in network order as an address; IPv4 comes out of its mapped form."""
    address = IPv6Address(raw)
    return address.ipv4_mapped or address


def from_address(address: Address) -> bytes:
    """The inverse of to_address."""
    if address.version == 4:
        return b"\0" * 10 + b"\xff\xff" + address.packed
    return address.packed
