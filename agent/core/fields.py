"""Typed access to the fields of an API object, which may be partial or hostile."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fields:
    """One JSON object and where it was found. Its methods raise ValueError, naming the field and its content.

    The API server leaves out what is empty: a missing or null field reads as its empty value.
    """

    content: Mapping[str, object]
    path: str

    @classmethod
    def of(cls, value: object, path: str) -> "Fields":
        """The fields of a JSON object."""
        if not isinstance(value, Mapping):
            raise _wrong(path, "an object", value)
        return cls(value, path)

    def within(self, key: str) -> "Fields":
        """The object under `key`, empty where there is none."""
        value = self.content.get(key)
        return Fields({} if value is None else _object(value, self._at(key)), self._at(key))

    def has(self, key: str) -> bool:
        """Whether `key` is there and not null."""
        return self.content.get(key) is not None

    def each(self, key: str) -> tuple["Fields", ...]:
        """The objects of the list under `key`."""
        return tuple(
            Fields(_object(value, f"{self._at(key)}[{index}]"), f"{self._at(key)}[{index}]")
            for index, value in enumerate(self._list(key))
        )

    def texts(self, key: str) -> tuple[str, ...]:
        """The texts of the list under `key`."""
        return tuple(_text(value, f"{self._at(key)}[{index}]") for index, value in enumerate(self._list(key)))

    def text(self, key: str) -> str:
        """The text under `key`, which must be there and not be empty."""
        value = self.optional_text(key)
        if not value:
            raise ValueError(f"{self._at(key)} is missing or empty")
        return value

    def optional_text(self, key: str) -> str | None:
        """The text under `key`, or None."""
        value = self.content.get(key)
        return None if value is None else _text(value, self._at(key))

    def flag(self, key: str) -> bool | None:
        """The truth value under `key`, or None."""
        value = self.content.get(key)
        if value is None or isinstance(value, bool):
            return value
        raise _wrong(self._at(key), "true or false", value)

    def number(self, key: str) -> int | None:
        """The whole number under `key`, or None."""
        value = self.content.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise _wrong(self._at(key), "a whole number", value)
        return value

    def count(self, key: str) -> int | None:
        """The whole number under `key`, which must not be negative, or None."""
        value = self.number(key)
        if value is not None and value < 0:
            raise _wrong(self._at(key), "a number of at least 0", value)
        return value

    def port(self, key: str) -> int | None:
        """The port number under `key` (1 to 65535), or None."""
        value = self.number(key)
        if value is not None and not 0 < value < 65536:
            raise _wrong(self._at(key), "a port", value)
        return value

    def _list(self, key: str) -> list[object]:
        value = self.content.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise _wrong(self._at(key), "a list", value)
        return value

    def _at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key


def is_text(value: str) -> bool:
    """Whether it can be written out: JSON can hold half a character (a lone surrogate), UTF-8 cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _object(value: object, path: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise _wrong(path, "an object", value)
    return value


def _text(value: object, path: str) -> str:
    if not isinstance(value, str) or not is_text(value):
        raise _wrong(path, "text", value)
    return value


def _wrong(path: str, expected: str, value: object) -> ValueError:
    return ValueError(f"{path or 'the object'} is not {expected}: {_shortened(value)}")


def _shortened(value: object) -> str:
    shown = repr(value) if isinstance(value, (str, int, float, bool)) else type(value).__name__
    return shown if len(shown) <= 60 else f"{shown[:60]}..."
