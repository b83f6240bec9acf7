"""The bytes of a ring buffer record as a typed record."""

from agent.core.phases import Fact
from agent.core.records import (
    ConnectionDropped,
    ContainerExited,
    EnteredProcessEnded,
    KubeletConnected,
    KubeletDisconnected,
    ListenerClosed,
    ListenerOpened,
    ProcessEntered,
    SignalResult,
    StopSignalSent,
)
from agent.kernel.layout import (
    KIND_OF_CODE,
    RECORD_DROP,
    RECORD_ENTERED_PROCESS_ENDED,
    RECORD_EXIT,
    RECORD_KUBELET_CONNECTED,
    RECORD_KUBELET_DISCONNECTED,
    RECORD_LISTENER_CLOSED,
    RECORD_LISTENER_OPENED,
    RECORD_PROCESS_ENTERED,
    RECORD_SIGNAL,
    RecordBytes,
    to_address,
)

Decoded = (
    ListenerOpened
    | ListenerClosed
    | StopSignalSent
    | ContainerExited
    | ProcessEntered
    | EnteredProcessEnded
    | KubeletConnected
    | KubeletDisconnected
    | ConnectionDropped
)


def decode(raw: bytes, clock_offset: int) -> tuple[Decoded, int]:
    """The record and the process that caused it. Raises ValueError on bytes that no program writes."""
    try:
        fields = RecordBytes.from_buffer_copy(raw)
    except ValueError:
        raise ValueError(f"a record has {len(raw)} bytes") from None
    return _record(fields, fields.at_ns + clock_offset), int(fields.pid)


def _record(fields: RecordBytes, at_ns: int) -> Decoded:
    if fields.type == RECORD_LISTENER_OPENED:
        return ListenerOpened(at_ns, fields.netns, fields.port, fields.init_pid)
    if fields.type == RECORD_LISTENER_CLOSED:
        return ListenerClosed(at_ns, fields.netns, fields.port, bool(fields.value))
    if fields.type == RECORD_SIGNAL:
        result = SignalResult(fields.value)
        return StopSignalSent(at_ns, fields.netns, fields.init_pid, fields.signal, result, _name(fields))
    if fields.type == RECORD_EXIT:
        return ContainerExited(at_ns, fields.netns, fields.init_pid, fields.value)
    if fields.type == RECORD_PROCESS_ENTERED:
        return ProcessEntered(at_ns, fields.netns, fields.pid, _name(fields))
    if fields.type == RECORD_ENTERED_PROCESS_ENDED:
        return EnteredProcessEnded(at_ns, fields.netns, fields.pid, fields.value)
    if fields.type == RECORD_KUBELET_CONNECTED:
        return KubeletConnected(at_ns, fields.netns, fields.port, fields.source_port)
    if fields.type == RECORD_KUBELET_DISCONNECTED:
        return KubeletDisconnected(at_ns, fields.netns, fields.port, fields.source_port)
    if fields.type == RECORD_DROP and fields.kind in KIND_OF_CODE:
        return ConnectionDropped(
            at_ns,
            fields.netns,
            fields.port,
            KIND_OF_CODE[fields.kind],
            Fact(fields.facts),
            to_address(bytes(fields.source)),
            fields.source_port,
        )
    raise ValueError(f"a record has type {fields.type} and kind {fields.kind}")


def _name(fields: RecordBytes) -> str:
    return str(fields.comm.decode(errors="replace"))
