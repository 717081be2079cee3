r"""Draws a terminal's text as SVG: colours and wrapping as a terminal has them, no other control sequence.

For example `draw("$ ls\n\x1b[32mok\x1b[0m\n", columns=80, title="ls")` gives a window with two lines, the second
green.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from xml.sax.saxutils import escape

CELL_WIDTH, CELL_HEIGHT, FONT_SIZE = 7.8, 18, 13
"""Pixels. A monospaced font of 13 pixels is 0.6 of that wide; `textLength` makes any font so."""
FONTS = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
MARGIN = 16
FOREGROUND, BACKGROUND = "#d4d7dd", "#1b1e24"
COLOURS = {
    "31": "#ef6b73", "32": "#8fce7a", "33": "#e5c07b", "34": "#6cb2f5", "35": "#c98ae6", "36": "#5ec4c9",
}  # fmt: skip
_DIM = "#868c98"
_SEQUENCE = re.compile(r"\x1b\[([0-9;]*)m")


class Run(NamedTuple):
    """Neighbouring characters of one line in one style."""

    column: int
    text: str
    style: str


def draw(text: str, *, columns: int, title: str) -> str:
    """Return the SVG document.

    Args:
        text: lines as programs print them on a terminal, with SGR sequences (ECMA-48) for colours.
        columns: the terminal's width; longer lines are wrapped.
        title: the document's title, for readers that don't see the picture.
    """
    lines = layout(text, columns)
    width, height = columns * CELL_WIDTH + 2 * MARGIN, len(lines) * CELL_HEIGHT + 2 * MARGIN
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    found = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
        f'<g fill="{FOREGROUND}" font-family="{FONTS}" font-size="{FONT_SIZE}" xml:space="preserve">',
    ]
    for number, line in enumerate(lines):
        y = MARGIN + number * CELL_HEIGHT + FONT_SIZE
        for run in line:
            x, length = MARGIN + run.column * CELL_WIDTH, len(run.text) * CELL_WIDTH
            found.append(f'<text x="{x:g}" y="{y:g}" textLength="{length:g}"{run.style}>{escape(run.text)}</text>')
    return "\n".join([*found, "</g>", "</svg>", ""])


def layout(text: str, columns: int) -> list[list[Run]]:
    """Cut text into lines of styled runs; a line that is too long goes on in the next one."""
    lines: list[list[Run]] = []
    style = ""
    for source in text.replace("\r\n", "\n").rstrip("\n").split("\n"):
        line: list[Run] = []
        column = 0
        for number, part in enumerate(_SEQUENCE.split(source)):
            if number % 2:
                style = _style(part)
                continue
            rest = part
            while rest:
                if column == columns:
                    lines.append(line)
                    line, column = [], 0
                piece, rest = rest[: columns - column], rest[columns - column :]
                if piece.strip():
                    line.append(Run(column, piece, style))
                column += len(piece)
        lines.append(line)
    return lines


def _style(codes: str) -> str:
    """Return the attributes for a sequence's parameters (ECMA-48, SGR): `1;31` is bold and red."""
    found = ""
    for code in codes.split(";"):
        if code == "1":
            found += ' font-weight="bold"'
        elif code == "2":
            found += f' fill="{_DIM}"'
        elif code in COLOURS:
            found += f' fill="{COLOURS[code]}"'
    return found
