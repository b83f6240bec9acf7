"""The body of an HTTP answer, read as it comes and never further than a bound."""

import contextlib
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import urllib3

from agent.cluster.failures import Garbled, Silent, Unreachable, one_line

_READ_BYTES = 65536
_LONGEST_LINE_BYTES = 16 * 1024 * 1024
"""An object takes 1.5 MiB in etcd at most; written out as JSON with its managedFields it stays far below."""

_LONGEST_BODY_BYTES = 256 * 1024 * 1024


class ResponseBody:
    """A body that one thread reads and another may cut off. Reading raises Unreachable, Silent or Garbled."""

    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        self._response = response

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._response.close()

    def lines(self) -> Iterator[bytes]:
        """Each non-empty line as soon as it is complete; ends when the server ends the answer."""
        pending = bytearray()
        for piece in self._pieces():
            pending += piece
            *complete, rest = pending.split(b"\n") if b"\n" in piece else [pending]
            if len(rest) > _LONGEST_LINE_BYTES:
                raise Garbled(f"a line of more than {_LONGEST_LINE_BYTES} bytes")
            yield from (bytes(line) for line in complete if line.strip())
            pending = rest
        if pending.strip():
            raise Garbled("the answer ended in the middle of a line")

    def whole(self) -> bytes:
        """All of the body."""
        content = bytearray()
        for piece in self._pieces():
            content += piece
            if len(content) > _LONGEST_BODY_BYTES:
                raise Garbled(f"an answer of more than {_LONGEST_BODY_BYTES} bytes")
        return bytes(content)

    def beginning(self) -> bytes:
        """The first bytes of the body, or nothing if they do not come."""
        try:
            return next(self._pieces(), b"")
        except Unreachable:
            return b""

    def cut(self) -> None:
        """End the reading in another thread."""
        with contextlib.suppress(ValueError, RuntimeError, OSError):
            self._response.shutdown()

    def _pieces(self) -> Iterator[bytes]:
        try:
            yield from self._response.stream(_READ_BYTES, decode_content=True)
        except urllib3.exceptions.ReadTimeoutError:
            raise Silent("nothing came for too long") from None
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise Unreachable(f"the connection broke: {one_line(str(error))}") from None
