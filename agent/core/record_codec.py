"""Records as JSON values and back, by the type hints of their dataclasses."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from enum import Enum
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address

from agent.core.counts import CountsRead
from agent.core.fields import is_text
from agent.core.observation import OwnStateRead
from agent.core.records import Record

RecordedEntry = Record | CountsRead | OwnStateRead
"""What a recording consists of."""

ENTRIES: Mapping[str, type] = {entry.__name__: entry for entry in typing.get_args(RecordedEntry)}
_NAME = "record"
_ADDRESS = {IPv4Address, IPv6Address}
_SMALLEST, _LARGEST = -(2**63), 2**64 - 1
"""What the kernel counts and stamps with: no number beyond is one of an agent's, and none of it overflows."""
_LONGEST_SHOWN = 60


class UnknownEntryError(ValueError):
    """The entry is of a kind that this version does not know."""


def to_json(entry: RecordedEntry) -> dict[str, object]:
    """The entry as a JSON object; fields that have their default are left out."""
    return {_NAME: type(entry).__name__, **_fields_of(entry)}


def from_json(value: object) -> RecordedEntry:
    """The entry that a JSON object describes. Raises ValueError in one line, UnknownEntryError among them."""
    if not isinstance(value, dict) or not isinstance(value.get(_NAME), str):
        raise ValueError(f"no record: {_shown(value)}")
    name = value[_NAME]
    if name not in ENTRIES:
        raise UnknownEntryError(f"unknown record {_shown(name)}")
    fields = {key: content for key, content in value.items() if key != _NAME}
    return typing.cast(RecordedEntry, _decoded(ENTRIES[name], fields, name))


def _fields_of(value: object) -> dict[str, object]:
    assert dataclasses.is_dataclass(value)
    return {
        field.name: _encoded(content)
        for field in dataclasses.fields(value)
        if (content := getattr(value, field.name)) != _default_of(field)
    }


def _default_of(field: "dataclasses.Field[object]") -> object:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _encoded(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, IPv4Address | IPv6Address):
        return str(value)
    if isinstance(value, Mapping):
        return [[_encoded(key), _encoded(content)] for key, content in value.items()]
    if isinstance(value, frozenset):
        return sorted(_encoded(item) for item in value)  # type: ignore[type-var]
    if isinstance(value, tuple):
        return [_encoded(item) for item in value]
    if dataclasses.is_dataclass(value):
        return _fields_of(value)
    return value


@cache
def _hints(kind: type) -> dict[str, object]:
    return typing.get_type_hints(kind)


def _decoded(hint: object, value: object, where: str) -> object:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _decoded_choice(arguments, value, where)
    if origin is tuple or origin is frozenset or hint is tuple:
        return _decoded_items(origin, arguments, value, where)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _decoded_mapping(arguments, value, where)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _decoded_dataclass(hint, value, where)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _decoded_enum(hint, value, where)
    return _decoded_scalar(hint, value, where)


def _decoded_choice(choices: tuple[object, ...], value: object, where: str) -> object:
    if value is None and types.NoneType in choices:
        return None
    rest = [choice for choice in choices if choice is not types.NoneType]
    if set(rest) == _ADDRESS:
        return ip_address(str(value)) if isinstance(value, str) else _refuse(value, where)
    return _decoded(rest[0], value, where) if len(rest) == 1 else _refuse(value, where)


def _decoded_items(origin: object, arguments: tuple[object, ...], value: object, where: str) -> object:
    items = value if isinstance(value, list) else _refuse(value, where)
    if origin is frozenset:
        return frozenset(_decoded(arguments[0], item, where) for item in items)
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuple(_decoded(arguments[0], item, where) for item in items)
    if len(items) != len(arguments):
        _refuse(value, where)
    return tuple(_decoded(hint, item, where) for hint, item in zip(arguments, items, strict=True))


def _decoded_mapping(arguments: tuple[object, ...], value: object, where: str) -> object:
    pairs = value if isinstance(value, list) else _refuse(value, where)
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        _refuse(value, where)
    return {_decoded(arguments[0], k, where): _decoded(arguments[1], v, where) for k, v in pairs}


def _decoded_dataclass(kind: type, value: object, where: str) -> object:
    fields = value if isinstance(value, dict) else _refuse(value, where)
    hints = _hints(kind)
    # What a newer version has added to a record is passed over.
    known = {
        name: _decoded(hints[name], content, f"{where}.{name}")
        for name, content in fields.items()
        if name in hints
    }
    try:
        return kind(**known)
    except TypeError as error:
        raise ValueError(f"{where}: {error}") from None


def _decoded_enum(kind: type[Enum], value: object, where: str) -> object:
    if type(value) not in (str, int):
        _refuse(value, where)
    try:
        return kind(value)
    except ValueError:
        return _refuse(value, where)


def _decoded_scalar(hint: object, value: object, where: str) -> object:
    if type(value) in (int, float) and not _SMALLEST <= typing.cast(float, value) <= _LARGEST:
        _refuse(value, where)
    if hint is float and type(value) is int:
        return float(value)
    if not isinstance(hint, type) or type(value) is not hint:
        _refuse(value, where)
    if isinstance(value, str) and not is_text(value):
        _refuse(value, where)
    return value


def _refuse(value: object, where: str) -> typing.NoReturn:
    raise ValueError(f"{where} is not what it should be: {_shown(value)}")


def _shown(value: object) -> str:
    shown = " ".join(repr(value).split())
    return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}..."
