"""Records out of the ring buffer."""

import contextlib
from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.kinds import Kind
from agent.core.phases import Fact
from agent.core.records import (
    ConnectionDropped,
    EnteredProcessEnded,
    KubeletConnected,
    KubeletDisconnected,
    ProcessEntered,
    SignalResult,
    StopSignalSent,
)
from agent.kernel.decode import decode
from agent.kernel.layout import (
    RECORD_DROP,
    RECORD_ENTERED_PROCESS_ENDED,
    RECORD_KUBELET_CONNECTED,
    RECORD_KUBELET_DISCONNECTED,
    RECORD_PROCESS_ENTERED,
    RECORD_SIGNAL,
    AddressBytes,
    RecordBytes,
    from_address,
    to_address,
)


def test_a_drop_carries_its_source_in_plain_ipv4() -> None:
    raw = RecordBytes(
        at_ns=5,
        netns=7,
        type=RECORD_DROP,
        port=80,
        source_port=4000,
        kind=1,
        facts=Fact.LISTENED,
        source=AddressBytes(*from_address(IPv4Address("10.1.2.3"))),
    )
    record, _ = decode(bytes(raw), 100)
    assert record == ConnectionDropped(105, 7, 80, Kind.REFUSED, Fact.LISTENED, IPv4Address("10.1.2.3"), 4000)


def test_a_process_name_that_is_no_text_is_still_a_record() -> None:
    raw = RecordBytes(type=RECORD_SIGNAL, signal=15, value=1, comm=b"\xff\x1b[2J")
    record, _ = decode(bytes(raw), 0)
    assert isinstance(record, StopSignalSent)
    assert record.result is SignalResult.IGNORED


def test_an_entered_process_and_its_end_are_told_with_name_and_status() -> None:
    entered = RecordBytes(at_ns=5, netns=7, type=RECORD_PROCESS_ENTERED, pid=9, comm=b"sh")
    ended = RecordBytes(at_ns=6, netns=7, type=RECORD_ENTERED_PROCESS_ENDED, pid=9, value=1 << 8, comm=b"sh")
    assert decode(bytes(entered), 100) == (ProcessEntered(105, 7, 9, "sh"), 9)
    assert decode(bytes(ended), 100) == (EnteredProcessEnded(106, 7, 9, 256), 9)


def test_connections_of_the_kubelet_are_told_with_both_ports() -> None:
    fields = {"at_ns": 5, "netns": 7, "port": 80, "source_port": 4000}
    begun = RecordBytes(type=RECORD_KUBELET_CONNECTED, **fields)
    ended = RecordBytes(type=RECORD_KUBELET_DISCONNECTED, **fields)
    assert decode(bytes(begun), 100)[0] == KubeletConnected(105, 7, 80, 4000)
    assert decode(bytes(ended), 100)[0] == KubeletDisconnected(105, 7, 80, 4000)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_record_raise_value_error_and_nothing_else(raw: bytes) -> None:
    with contextlib.suppress(ValueError):
        decode(raw, 0)


@given(st.ip_addresses())
def test_addresses_survive_the_way_to_the_kernel_and_back(address: object) -> None:
    from ipaddress import ip_address

    given_address = ip_address(str(address))
    back = to_address(from_address(given_address))
    assert back == (getattr(given_address, "ipv4_mapped", None) or given_address)


def test_short_records_say_how_short() -> None:
    with pytest.raises(ValueError, match="3 bytes"):
        decode(b"abc", 0)
