"""Lays the rows of `ls` out for a terminal: who needs a person first, and long text folded. Pure but for `here`.

A family has one row, `lead +8`, which stands where its weightiest member would, and has that one's command.

On a terminal of 80 columns:

    NAME     ATTENTION  SINCE  TOKENS  DOING
    billing  answer        4m     82k  Which of the two tables may I drop, users_old or accounts?
                                       answer billing TEXT
    docs     working      12m     15k  shell: make html
    11 idle: 'ls -a' lists them
    13 agents: 1 answer, 1 working, 11 idle

A row has its command in the same line where both fit, and below it otherwise. What doesn't fit the terminal's height is
folded, the least urgent first, into one line a kind. When even those who need a person don't fit, each has one line.
"""

from __future__ import annotations

import os
import sys
import time

from substrat.cli import attention, output
from substrat.protocol.attention import COMMANDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from substrat.cli.output import Agent

_RIGHT = ("SINCE", "TOKENS", "UNREAD")
"""Columns of numbers, which stand at their right edge."""
_DISPENSABLE = ("WORKSPACE", "NETWORK", "MODEL", "PROGRAM", "UNREAD", "WORK", "TOKENS")
"""Columns that a narrow terminal goes without, in the order in which they go."""
_WIDE, _FOR_WIDE = 120, frozenset({"WORKSPACE", "NETWORK", "MODEL", "PROGRAM"})
"""Columns of a terminal from which on it shows the columns that seldom change."""
_CUTS = (("WORKSPACE", 20), ("DOING", 40), ("NAME", 20), ("DOING", 30), ("MODEL", 8))
"""Which columns are cut to fit a terminal, in this order, and to what width."""
_LEAST = dict(_CUTS)
_NARROW = (("SINCE", 0), ("NAME", 8), ("DOING", 12), ("ATTENTION", 0))
"""What follows on a terminal of fewer than 60 columns or so; 0: the column goes."""
_WANTED, _WANTED_WIDE = 32, 60
"""Columns that DOING keeps before the others go, and before those of `_FOR_WIDE` go."""
_LEAST_REASON = 16
"""Columns that a reason has beside its command; where a command has several ways, the others go for it."""
_LEAST_REST = 12
"""Columns of a second line that are worth it that a reason goes on there."""


class Place:
    """Where the table is printed.

    Args:
        now: the time, in seconds since the epoch.
        columns: the terminal's width; None: there is none, and nothing is cut.
        lines: the lines there are; None: as many as it takes.
        colour: whether to use colours.
        here: the directory that workspaces are shown relative to.
        home: the user's own.
    """

    __slots__ = ("colour", "columns", "here", "home", "lines", "now")

    def __init__(
        self, now: float, columns: int | None = None, lines: int | None = None, *, colour: bool = False, here: str = "",
        home: str = "",
    ) -> None:  # fmt: skip
        self.now = now
        self.columns = columns
        self.lines = lines
        self.colour = colour
        self.here = here
        self.home = home


def here(columns: int | None, lines: int | None) -> Place:
    """Return this process's standard output as the place of a table."""
    colour = output.has_colour(sys.stdout)
    try:
        directory = os.getcwd()
    except OSError:
        directory = ""  # it was removed
    return Place(time.time(), columns, lines, colour=colour, here=directory, home=os.environ.get("HOME", ""))


def laid_out(agents: list[Agent], place: Place) -> list[str]:
    """Return the lines of the table, its heads first and its counts last.

    Args:
        agents: agent objects; those without the member `family` have a row each.
        place: where they are printed.
    """
    families: dict[object, list[Agent]] = {}
    for agent in sorted(agents, key=attention.weight):
        families.setdefault(agent.get("family", agent.get("name")), []).append(agent)
    kinds = [list(map(attention.kind, family)) for family in families.values()]
    # More rows than lines aren't shown, so nothing else is looked up for them.
    table = _Table(list(families.values())[: place.lines], [row[0] for row in kinds[: place.lines]], place)
    counts = output.wrapped(attention.counts([kind for row in kinds for kind in row]), 0, place.columns).split("\n")
    room = None if place.lines is None else place.lines - 1 - len(counts)
    rows = table.rows(has_second_lines=True)
    shown = _fitting(rows, kinds, room)
    if any(table.commands[shown:]):
        rows = table.rows(has_second_lines=False)
        shown = _fitting(rows, kinds, room)
    folded = _folded(kinds, shown)
    if place.columns is not None:
        folded = (output.shortened(line, place.columns) for line in folded)
    return [table.heads(), *(line for row in rows[:shown] for line in row), *folded, *counts]


def _fitting(rows: Sequence[Sequence[str]], kinds: Sequence[Sequence[str]], room: int | None) -> int:
    """Return how many rows are shown, so that they and a line for each kind of the agents that are folded fit."""
    if room is None:
        return len(rows)
    shown, taken = 0, 0
    while shown < len(rows) and taken + len(rows[shown]) <= room:
        taken += len(rows[shown])
        shown += 1
    folded = {kind for row in kinds[shown:] for kind in row}
    while shown > 0 and taken + len(folded) > room:
        shown -= 1
        taken -= len(rows[shown])
        folded.update(kinds[shown])
    return shown


def _folded(kinds: Sequence[Sequence[str]], shown: int) -> Iterator[str]:
    """Give a line for each kind of the agents that aren't shown."""
    seen, rest = ([kind for row in rows for kind in row] for rows in (kinds[:shown], kinds[shown:]))
    for kind in sorted(dict.fromkeys(rest), key=attention.place_of):
        more = "more " if kind in seen else ""
        yield f"{rest.count(kind)} {more}{kind}: 'ls -a' lists them"


class _Table:
    """The cells of the rows, and the columns that are shown."""

    def __init__(self, families: Sequence[Sequence[Agent]], kinds: list[str], place: Place) -> None:
        self._place = place
        self._kinds = kinds
        self._columns = _columns(families, kinds, place)
        self.commands = [
            attention.command_of(family) if kind in COMMANDS else ""
            for kind, family in zip(self._kinds, families, strict=True)
        ]
        """What a person types next for each."""
        self._said = [
            f"{why}: {todo}" if todo else why for why, todo in zip(self._columns["DOING"], self.commands, strict=True)
        ]
        self._sizes = self._fitted()

    def heads(self) -> str:
        """Return the line above the rows."""
        line = self._line({title: title for title in self._sizes})
        return output.paint(line, output.BOLD, on=self._place.colour)

    def rows(self, *, has_second_lines: bool) -> list[list[str]]:
        """Return each row's lines.

        Args:
            has_second_lines: whether a command that doesn't fit into DOING gets a line of its own.
        """
        if self._place.columns is None and not self._place.colour:
            return [[line] for line in self._plain()]
        cells = (dict(zip(self._columns, row, strict=True)) for row in zip(*self._columns.values(), strict=True))
        made = zip(cells, self.commands, self._kinds, strict=True)
        return [self._row(*one, has_second_lines=has_second_lines) for one in made]

    def _plain(self) -> list[str]:
        """Return the rows without colours, where nothing is cut; a template makes most of them, in a third of the time."""
        template = "  ".join(f"%{size if title in _RIGHT else -size}s" for title, size in self._sizes.items())
        columns = {**self._columns, "DOING": self._said}
        rows = list(zip(*(columns[title] for title in self._sizes), strict=True))
        lines = [(template % row).rstrip() for row in rows]
        if "".join(lines).isascii():
            return lines
        found = zip(lines, rows, strict=True)
        return [line if line.isascii() else self._line(dict(zip(self._sizes, row, strict=True))) for line, row in found]

    def _row(self, cells: Mapping[str, str], command: str, kind: str, *, has_second_lines: bool) -> list[str]:
        width = self._sizes["DOING"] if self._place.columns is not None else None
        why = cells["DOING"]
        if not command or width is None or output.width(why) + 2 + output.width(command) <= width:
            doing = f"{why}: {command}" if command else why
            return [self._line({**cells, "DOING": doing}, kind)]
        if has_second_lines:
            return self._two_lines(cells, why, command, kind, width)
        if width - output.width(command) - 2 < _LEAST_REASON:
            command = _first_way(command)
        room = width - output.width(command) - 2
        doing = f"{output.shortened(why, room)}: {command}" if room > 0 else command
        return [self._line({**cells, "DOING": doing}, kind)]

    def _two_lines(self, cells: Mapping[str, str], why: str, command: str, kind: str, width: int) -> list[str]:
        """Return a row whose reason goes on in a second line, before the command.

        A command with a long name has its first way only.
        """
        columns = self._place.columns or 0
        before = sum(self._sizes[title] + 2 for title in self._sizes if title not in {"DOING", "WORKSPACE"})
        if before + output.width(command) > columns:
            command = _first_way(command)
        first, rest = _split(why, width)
        room = columns - before - output.width(command) - 2
        if rest and room >= _LEAST_REST:
            below = f"{output.shortened(rest, room)}: {command}"
        else:
            first, below = why, command
        indent = " " * min(before, max(0, columns - output.width(below)))
        return [self._line({**cells, "DOING": first}, kind), indent + output.shortened(below, columns)]

    def _line(self, cells: Mapping[str, str], kind: str = "") -> str:
        parts = []
        for title, size in self._sizes.items():
            cell = cells[title]
            if not cell.isascii() or len(cell) > size:
                cell = output.shortened(cell, size) if self._place.columns is not None else cell
                cell += " " * (size - output.width(cell))
            filled = cell.rjust(size) if title in _RIGHT else cell.ljust(size)
            if title == "ATTENTION" and self._place.colour:
                filled = attention.paint(cell, kind, on=True) + filled[len(cell) :]
            parts.append(filled)
        return "  ".join(parts).rstrip()

    def _fitted(self) -> dict[str, int]:
        """Return the columns that are shown, each with its width."""
        sizes: dict[str, int] = {}
        for title, column in self._columns.items():
            if title in {"WORK", "UNREAD"} and set(column) <= {"-", "0"}:
                continue
            if title == "PROGRAM" and len(set(column)) < 2:
                continue
            sizes[title] = _widest([title, *(self._said if title == "DOING" else column)])
        columns = self._place.columns
        if columns is None:
            return sizes
        for title in _DISPENSABLE:
            least = {**_LEAST, "DOING": _WANTED_WIDE if title in _FOR_WIDE else _WANTED}
            wanted = sum(min(least.get(kept, size), size) for kept, size in sizes.items()) + 2 * (len(sizes) - 1)
            if title in sizes and (wanted > columns or (title in _FOR_WIDE and columns < _WIDE)):
                del sizes[title]
        excess = sum(sizes.values()) + 2 * (len(sizes) - 1) - columns
        for title, narrowest in (*_CUTS, *_NARROW):
            if title not in sizes or excess <= 0:
                continue
            if not narrowest:
                excess -= sizes.pop(title) + 2
                sizes["DOING"] += max(0, -excess)
                continue
            less = min(excess, max(0, sizes[title] - narrowest))
            sizes[title] -= less
            excess -= less
        return sizes


def _first_way(command: str) -> str:
    """Return the first of the ways that a command names: `resume anna` of `resume anna, or accept anna`."""
    return command.partition(", ")[0]


def _split(text: str, columns: int) -> tuple[str, str]:
    """Split a text where its beginning fills so many columns, between two words if there is a place for that."""
    if output.width(text) <= columns:
        return text, ""
    kept = text[:columns]
    while output.width(kept) > columns:
        kept = kept[:-1]
    space = kept.rfind(" ")
    end = space if space > len(kept) // 2 else len(kept)
    return text[:end], text[end:].lstrip()


def _widest(cells: Sequence[str]) -> int:
    """Return how many columns the widest of some cells takes."""
    return max(map(len if "".join(cells).isascii() else output.width, cells))


def _columns(families: Sequence[Sequence[Agent]], kinds: list[str], place: Place) -> dict[str, list[str]]:
    """Return the cells of families, column by column: those of the roots, but for what all members make up.

    Args:
        families: each sorted by weight.
        kinds: those of the weightiest of each.
        place: where they are printed.
    """
    roots = [family[0] if len(family) == 1 else _root(family) for family in families]
    since = [str(attention.since(family[0])) for family in families]
    ages = {stamp: output.age(stamp, place.now) for stamp in set(since)}
    names, unread, programs, models, networks, workspaces = (
        output.texts_of([root.get(key) for root in roots])
        for key in ("name", "unread", "program", "model", "network", "workspace")
    )
    paths = {path: _short_path(path, place) for path in set(workspaces)}
    return {
        "NAME": [
            f"{name} +{len(family) - 1}" if len(family) > 1 else name for name, family in zip(names, families, strict=True)
        ],
        "ATTENTION": kinds,
        "SINCE": [ages[stamp] for stamp in since],
        "TOKENS": [shortened(_tokens(family[0]) if len(family) == 1 else sum(map(_tokens, family))) for family in families],
        "UNREAD": unread,
        "PROGRAM": programs,
        "MODEL": models,
        "NETWORK": networks,
        "WORK": list(map(output.work_of, roots)),
        "DOING": list(map(attention.doing_of, families, roots)),
        "WORKSPACE": [paths[path] for path in workspaces],
    }


def _root(family: Sequence[Agent]) -> Agent:
    return next((one for one in family if one.get("parent") is None), family[0])


def _tokens(agent: Agent) -> int:
    tokens = agent.get("tokens")
    given, made = (tokens.get("input"), tokens.get("output")) if isinstance(tokens, dict) else (0, 0)
    return (given if isinstance(given, int) else 0) + (made if isinstance(made, int) else 0)


def shortened(total: int) -> str:
    """Say a number of tokens in at most five characters: `950`, `82k`, `1.2M`."""
    if total < 10_000:
        return str(total)
    for size, unit in ((1_000, "k"), (1_000_000, "M"), (1_000_000_000, "G")):
        if total < 999.5 * size or unit == "G":
            return f"{total / size:.1f}{unit}" if total < 10 * size else f"{total / size:.0f}{unit}"
    raise AssertionError


def _short_path(path: str, place: Place) -> str:
    """Return a path from the present directory on, or from the home on, where it lies below it."""
    if path == place.here:
        return "."
    for base, short in ((place.here, ""), (place.home, "~/")):
        if base not in {"", "/"} and path.startswith(f"{base}/"):
            return short + path[len(base) + 1 :]
    return path
