"""What user space reads is what the programs write: agent/kernel/layout.py against bpf/records.h."""

import ctypes
import re

import pytest

from agent.core.orders import HookEvidence
from agent.core.phases import Fact
from agent.kernel import layout
from agent.kernel.hooks import COUNTED_HOOKS
from agent.kernel.loader import sources_directory

HEADER = (sources_directory() / "records.h").read_text()
SIZES = {"u64": 8, "u32": 4, "s32": 4, "u16": 2, "u8": 1, "char": 1, "struct lc_address": 16}
STRUCTURES = {
    "lc_pod": layout.PodEntry,
    "lc_container": layout.ContainerEntry,
    "lc_port_key": layout.PortKey,
    "lc_port": layout.PortEntry,
    "lc_drop_key": layout.DropKey,
    "lc_drop_count": layout.DropCount,
    "lc_source_key": layout.SourceKey,
    "lc_hook_count": layout.HookCount,
    "lc_record": layout.RecordBytes,
    "lc_connection": layout.Connection,
}


def fields_of(structure: str) -> list[tuple[str, int, int]]:
    """Name, offset and size of each field, laid out as C does."""
    body = re.search(rf"struct {structure} {{(.*?)}};", HEADER, re.DOTALL)
    assert body is not None
    fields, offset = [], 0
    for kind, name, _, count in re.findall(r"^\s*(struct \w+|\w+) (\w+)(\[(\d+)\])?;", body[1], re.MULTILINE):
        alignment = min(SIZES[kind], 8)
        offset += -offset % alignment
        size = SIZES[kind] * int(count or 1)
        fields.append((name, offset, size))
        offset += size
    return fields


@pytest.mark.parametrize("name", STRUCTURES)
def test_a_structure_has_the_fields_of_the_header(name: str) -> None:
    structure = STRUCTURES[name]
    found = [
        (field[0], getattr(structure, field[0]).offset, getattr(structure, field[0]).size)
        for field in structure._fields_
    ]
    assert found == fields_of(name)
    assert ctypes.sizeof(structure) % 4 == 0


def enumerators(name: str) -> dict[str, int]:
    body = re.search(rf"enum {name} {{(.*?)}};", HEADER, re.DOTALL)
    assert body is not None
    return {key: int(value) for key, value in re.findall(r"(\w+) = (\d+)", body[1])}


def test_facts_have_the_bits_of_the_header() -> None:
    bits = enumerators("lc_fact")
    assert bits.pop("FACT_CLOSED_BY_EXIT") == layout.PORT_CLOSED_BY_EXIT
    assert bits == {f"FACT_{fact.name}": fact.value for fact in Fact}


def test_evidence_has_the_bits_of_the_header() -> None:
    bits = enumerators("lc_evidence")
    assert bits == {f"EVIDENCE_{evidence.name}": evidence.value for evidence in HookEvidence}


def test_record_types_have_the_numbers_of_the_header() -> None:
    types = enumerators("lc_record_type")
    assert types == {name: number for name, number in vars(layout).items() if name.startswith("RECORD_")}


def test_kinds_have_the_codes_of_the_header() -> None:
    codes = enumerators("lc_kind")
    assert codes.pop("KIND_LATE") == layout.LATE_CODE
    assert codes == {f"KIND_{kind.name}": code for code, kind in layout.KIND_OF_CODE.items()}


def test_hooks_are_counted_in_the_order_of_the_header() -> None:
    body = re.search(r"enum lc_hook {(.*?)}", HEADER, re.DOTALL)
    assert body is not None
    programs = [f"on_{name.lower()}" for name in re.findall(r"HOOK_(\w+)", body[1])]
    assert programs == [hook.program for hook in COUNTED_HOOKS]
