"""Colour for terminals, none elsewhere."""

import os
from enum import Enum
from typing import TextIO


class Colour(Enum):
    """What is painted, by its meaning; values are SGR codes."""

    HEADING = "1"
    GOOD = "32"
    BAD = "1;31"
    QUIET = "2"


class Paint:
    """Paints text if `stream` is a terminal and NO_COLOR is not set (https://no-color.org)."""

    def __init__(self, stream: TextIO) -> None:
        self._active = stream.isatty() and not os.environ.get("NO_COLOR")

    def __call__(self, colour: Colour, text: str) -> str:
        """The text, painted."""
        return f"\x1b[{colour.value}m{text}\x1b[0m" if self._active else text
