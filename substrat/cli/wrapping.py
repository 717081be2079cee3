"""Breaks text for a terminal between words, as it comes in pieces. Pure but for `writing`."""

from __future__ import annotations

import re
import sys

from substrat.cli import output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_PARTS = re.compile(r"\x1b\[[0-9;]*m|\n|[^\S\n]+|[^\s\x1b]+|\x1b")
"""A colour, the end of a line, white space, or a word (of a word that goes on in the next piece its beginning)."""


class WordWrap:
    """Breaks lines that are wider than a terminal; further lines begin where the words of the first one did.

    A word that comes in two pieces stays where its beginning is, since that was written already.

    Args:
        columns: the terminal's; None breaks nothing.
        hang: columns that further lines are indented besides.
    """

    def __init__(self, columns: int | None, hang: int = 0) -> None:
        self._columns = columns
        self._hang = hang
        self._at = 0
        self._indent: int | None = None
        # White space is written with the word after it: at the terminal's edge it would take a line of its own.
        self._space = ""

    def feed(self, text: str) -> str:
        """Take in the next piece and return the text to write now."""
        if self._columns is None:
            return text
        return "".join(self._part(part, self._columns) for part in _PARTS.findall(text))

    def _part(self, part: str, columns: int) -> str:
        if part[0] == "\x1b":
            return part
        if part == "\n":
            self._at, self._indent, self._space = 0, None, ""
            return part
        if part.isspace():
            self._space += part
            return ""
        if self._indent is None:
            self._indent = min(output.width(self._space) + self._hang, columns // 2)
        taken = output.width(part)
        space, self._space = self._space, ""
        if space and self._at > 0 and self._at + output.width(space) + taken > columns:
            space, self._at = "\n" + " " * self._indent, self._indent
        else:
            self._at += output.width(space)
        self._at = (self._at + taken) % columns or columns
        return space + part


def writing(hang: int = 0) -> Callable[[str], None]:
    """Return a function that writes to standard output, on a terminal with lines broken between words.

    Args:
        hang: columns that further lines of a broken line are indented besides.
    """
    wrap = WordWrap(output.terminal_width(sys.stdout) if sys.stdout.isatty() else None, hang)

    def write(text: str) -> None:
        sys.stdout.write(wrap.feed(text))

    return write
