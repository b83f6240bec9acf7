"""The few calls of libbpf.so.1 that reading maps and a ring buffer takes."""

import ctypes
import os
from collections.abc import Callable, Iterator
from functools import cache
from typing import Generic, TypeVar, cast

from agent.kernel.errors import KernelSideError

Key = TypeVar("Key", bound="ctypes._SimpleCData[int] | ctypes.Structure | ctypes.Array[ctypes.c_uint8]")
Value = TypeVar("Value", bound="ctypes._SimpleCData[int] | ctypes.Structure")

_BATCH = 1024
_ENOENT = 2
_SAMPLE_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

BPF_ANY = 0
BPF_NOEXIST = 1


@cache
def library() -> ctypes.CDLL:
    """libbpf, or KernelSideError when the node does not have it."""
    try:
        loaded = ctypes.CDLL("libbpf.so.1", use_errno=True)
    except OSError:
        raise KernelSideError("libbpf.so.1 is missing: install it (Debian: apt install libbpf1)") from None
    loaded.ring_buffer__new.restype = ctypes.c_void_p
    loaded.ring_buffer__new.argtypes = [ctypes.c_int, _SAMPLE_CALLBACK, ctypes.c_void_p, ctypes.c_void_p]
    loaded.ring_buffer__poll.argtypes = [ctypes.c_void_p, ctypes.c_int]
    loaded.ring_buffer__consume.argtypes = [ctypes.c_void_p]
    loaded.ring_buffer__free.argtypes = [ctypes.c_void_p]
    loaded.ring_buffer__free.restype = None
    return loaded


class BpfMap(Generic[Key, Value]):
    """A hash or array map, by its descriptor."""

    def __init__(self, descriptor: int, key: type[Key], value: type[Value]) -> None:
        self.descriptor = descriptor
        self._key = key
        self._value = value

    def get(self, key: Key) -> Value | None:
        """The entry, or None."""
        value = self._value()
        if library().bpf_map_lookup_elem(self.descriptor, ctypes.byref(key), ctypes.byref(value)) < 0:
            return None
        return value

    def put(self, key: Key, value: Value, flags: int = BPF_ANY) -> bool:
        """Write the entry; False when the map is full or (BPF_NOEXIST) has it."""
        done = library().bpf_map_update_elem(
            self.descriptor, ctypes.byref(key), ctypes.byref(value), ctypes.c_uint64(flags)
        )
        return bool(done == 0)

    def remove(self, key: Key) -> None:
        """Delete the entry if it is there."""
        library().bpf_map_delete_elem(self.descriptor, ctypes.byref(key))

    def items(self) -> Iterator[tuple[Key, Value]]:
        """Every entry that stays in the map while it is read; read in batches (Linux 5.6)."""
        keys, values = (self._key * _BATCH)(), (self._value * _BATCH)()
        position = (ctypes.c_uint8 * 64)()
        start = None
        while True:
            count = ctypes.c_uint32(_BATCH)
            failed = library().bpf_map_lookup_batch(
                self.descriptor, start, ctypes.byref(position), keys, values, ctypes.byref(count), None
            )
            if failed < 0 and ctypes.get_errno() != _ENOENT:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            for index in range(count.value):
                key = self._key.from_buffer_copy(keys, index * ctypes.sizeof(self._key))
                value = self._value.from_buffer_copy(values, index * ctypes.sizeof(self._value))
                yield cast(Key, key), cast(Value, value)
            if failed < 0:
                return
            start = ctypes.byref(position)


class RingBuffer:
    """A BPF ring buffer; `receive` is called with the bytes of each record, on the thread that polls."""

    def __init__(self, descriptor: int, receive: Callable[[bytes], None]) -> None:
        def sample(_context: object, data: int, size: int) -> int:
            receive(ctypes.string_at(data, size))
            return 0

        self._callback = _SAMPLE_CALLBACK(sample)
        self._ring = library().ring_buffer__new(descriptor, self._callback, None, None)
        if not self._ring:
            raise KernelSideError(f"libbpf cannot open the ring buffer ({os.strerror(ctypes.get_errno())})")

    def poll(self, timeout_ms: int) -> None:
        """Wait for records and deliver them."""
        library().ring_buffer__poll(self._ring, timeout_ms)

    def close(self) -> None:
        """Free the mapping."""
        library().ring_buffer__free(self._ring)
        self._ring = None


class _ProgramInfo(ctypes.Structure):
    """struct bpf_prog_info up to run_cnt (uapi/linux/bpf.h; run_time_ns and run_cnt since Linux 5.1)."""

    _fields_ = (
        ("head", ctypes.c_uint8 * 192),
        ("run_time_ns", ctypes.c_uint64),
        ("run_cnt", ctypes.c_uint64),
    )


def program_runs(program: int) -> tuple[int, int]:
    """Nanoseconds and runs of a program since it was loaded, counted while kernel.bpf_stats_enabled is 1."""
    info = _ProgramInfo()
    size = ctypes.c_uint32(ctypes.sizeof(info))
    if library().bpf_obj_get_info_by_fd(program, ctypes.byref(info), ctypes.byref(size)) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(info.run_time_ns), int(info.run_cnt)
