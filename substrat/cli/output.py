"""Formats the output of `substratctl`: JSON, tables, times, errors on one line, colours."""

from __future__ import annotations

import os
import sys
import time
from functools import lru_cache

from substrat.cli.table import COMMAND_NAME
from substrat.visible import visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Mapping, Sequence
    from typing import TextIO

    from substrat import errors

    Agent = dict[str, object]
    Rows = Sequence[Sequence[str]]

BOLD, DIM, RED, GREEN, YELLOW, BLUE, MAGENTA, CYAN = "1", "2", "31", "32", "33", "34", "35", "36"
_STATE_COLOURS = {"running": GREEN, "queued": CYAN, "suspended": YELLOW, "failed": RED, "ended": DIM}


def neutralise(text: str) -> str:
    """Make text harmless for a terminal: characters that act, hide or reorder become visible, newline and tab stay."""
    return visible(text)


def one_line(text: str, most: int | None = None) -> str:
    """Make text harmless and fit for one line.

    Args:
        text: anything.
        most: shorten it to so many characters, behind a word where one ends in the second half.
    """
    flat = text
    # Most texts are such words, and lists have thousands.
    if not (text.isascii() and text.isprintable()) or "  " in text or text[:1] == " " or text[-1:] == " ":
        flat = neutralise(" ".join(text.split()))
    if most is None or len(flat) <= most:
        return flat
    end = flat.rfind(" ", most // 2, most)
    return flat[: end if end > 0 else most - 1] + "…"


def has_colour(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether to write colours to a stream: a terminal that has them and a person who wants them."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM", "dumb") != "dumb"


def paint(text: str, colour: str, *, on: bool) -> str:
    """Put text in a colour (an SGR parameter), if colours are on."""
    return f"\x1b[{colour}m{text}\x1b[0m" if on and text else text


def paint_state(state: str, *, on: bool) -> str:
    """Put a state's name in its colour."""
    colour = _STATE_COLOURS.get(state)
    return paint(state, colour, on=on) if colour else state


def put_json(document: object) -> None:
    """Write one JSON document on one line to standard output."""
    import json

    sys.stdout.write(json.dumps(document, separators=(",", ":")) + "\n")


def put_json_list(objects: Iterable[object]) -> None:
    """Write one JSON array on one line to standard output, each object as it comes.

    When fetching one fails, the output is no whole JSON document, and the exit status isn't 0.
    """
    import json

    comma = "["
    for one in objects:
        sys.stdout.write(comma + json.dumps(one, separators=(",", ":")))
        comma = ","
    sys.stdout.write("[]\n" if comma == "[" else "]\n")


def complain(problem: errors.SubstratError) -> int:
    """Write a failure to standard error as one line.

    Returns:
        Its exit status.
    """
    note(problem.message)
    return problem.exit_status


def agrees(question: str) -> bool:
    """Ask the person at the terminal a question; only `y` and `yes` agree."""
    sys.stdout.flush()
    sys.stderr.write(f"{one_line(question)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def note(sentence: str) -> None:
    """Write one line to standard error, after the pending text of standard output."""
    tell(f"{COMMAND_NAME}: {sentence}")


def tell(sentence: str) -> None:
    """Write one line to standard error, after the pending text of standard output; a terminal gets it broken at spaces."""
    sys.stdout.flush()
    line = one_line(sentence)
    if sys.stderr.isatty():
        line = _broken(line, terminal_width(sys.stderr))
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _broken(sentence: str, columns: int | None) -> str:
    """Break a sentence at spaces, so that a terminal breaks no word; what a person may copy stays in one piece.

    That is `a command`, 'a command', a path, and a command at the end: `anna needs you: why: substratctl show anna`.
    """
    if columns is None or width(sentence) <= columns:
        return sentence
    import re

    pieces = re.findall(r"(?:(?<=: )substratctl .*|`[^`]*`|(?<!\w)'[^']*'|\S)+", sentence)
    lines = [""]
    for piece in pieces:
        if lines[-1].strip() and width(lines[-1]) + 1 + width(piece) > columns:
            lines.append("  " + piece)
        else:
            lines[-1] += f" {piece}" if lines[-1] else piece
    return "\n".join(lines)


def text_of(value: object, absent: str = "-") -> str:
    """Return a value of an agent object as harmless text; nothing becomes `absent`."""
    return absent if value is None or value == "" else one_line(str(value))


def texts_of(values: Sequence[object]) -> list[str]:
    """Return values as `text_of` does; numbers and words are looked at all at once, in a tenth of the time."""
    if set(map(type, values)) == {int}:
        return list(map(str, values))
    try:
        joined = f"|{'|'.join(values)}|"  # type: ignore[arg-type]  # another value than a text is an error that is meant
    except TypeError:
        return list(map(text_of, values))
    are_words = joined.isascii() and joined.isprintable() and not any(odd in joined for odd in ("  ", "| ", " |", "||"))
    return list(values) if are_words else list(map(text_of, values))  # type: ignore[arg-type]


def turn_of(agent: Agent) -> dict[str, object] | None:
    """Return an agent object's turn, if it has one."""
    turn = agent.get("turn")
    return turn if isinstance(turn, dict) else None


def turn_summary(agent: Agent) -> str:
    """Say an agent's newest turn in two words: its number and how it ended."""
    turn = turn_of(agent)
    if turn is None:
        return "-"
    going = "frozen" if is_frozen(agent) else "running"
    return f"{text_of(turn.get('number'))} {text_of(turn.get('outcome'), going)}"


def is_frozen(agent: Agent) -> bool:
    """Say whether a suspended agent's turn is stopped in memory: any other suspended agent's turn has ended."""
    turn = turn_of(agent)
    return agent.get("state") == "suspended" and turn is not None and turn.get("outcome") is None


def table(
    titles: Sequence[str], rows: Rows, *, colour: bool, painted: int | None = None, numbers: Sequence[str] = ()
) -> str:
    """Lay out a table with aligned columns.

    Args:
        titles: the heads of the columns.
        rows: the cells, harmless already.
        colour: whether to use colours.
        painted: the column that holds a state.
        numbers: the heads of columns of numbers, which stand at their right edge.
    """
    columns = [_filled(column) for column in zip(titles, *rows, strict=True)]
    for index, title in enumerate(titles):
        if title in numbers:
            columns[index] = [cell.rstrip().rjust(len(cell)) for cell in columns[index]]
    if painted is not None and colour:
        padding = [cell[len(row[painted]) :] for cell, row in zip(columns[painted][1:], rows, strict=True)]
        states = [paint_state(row[painted], on=True) + spaces for row, spaces in zip(rows, padding, strict=True)]
        columns[painted] = [columns[painted][0], *states]
    lines = ["  ".join(row).rstrip() + "\n" for row in zip(*columns, strict=True)]
    if colour:
        lines[0] = paint(lines[0].rstrip(), BOLD, on=True) + "\n"
    return "".join(lines)


def _filled(cells: Sequence[str]) -> list[str]:
    """Fill the cells of a column up with spaces to the width of the widest."""
    widths = list(map(width, cells))
    most = max(widths)
    return [cell + " " * (most - taken) for cell, taken in zip(cells, widths, strict=True)]


def widths(titles: Sequence[str], rows: Rows) -> list[int]:
    """Return how wide each column of a table is."""
    return [max(map(width, column)) for column in zip(titles, *rows, strict=True)]


def cut(titles: Sequence[str], rows: Rows, columns: int | None, least: Mapping[str, int]) -> Rows:
    """Cut cells so that no line of a table is wider than a terminal, as far as that goes.

    Args:
        titles: the heads of the columns.
        rows: the cells.
        columns: the terminal's; None leaves the cells whole.
        least: the columns that may be cut, the first to be cut first, and how narrow each may become.
    """
    if columns is None:
        return rows
    sizes = dict(zip(titles, widths(titles, rows), strict=True))
    excess = sum(sizes.values()) + 2 * (len(sizes) - 1) - columns
    for title, narrowest in least.items():
        if title in sizes and excess > 0:
            less = min(excess, max(0, sizes[title] - narrowest))
            sizes[title] -= less
            excess -= less
    return [[shortened(cell, size) for cell, size in zip(row, sizes.values(), strict=True)] for row in rows]


def work_of(agent: Agent) -> str:
    """Say in a few characters what an agent's clone holds: `+2 ~3`, `landed ~1 &2`, `in lead`, or `-`."""
    work = agent.get("clone")
    if not isinstance(work, dict):
        return "-"
    more = work.get("work")
    record = more if isinstance(more, dict) else {}
    holder = record.get("in")
    commits = "landed" if work.get("landed") else f"in {holder}" if holder else f"+{text_of(work.get('ahead'))}"
    asides = len(record.get("branches", ())) + record.get("stashes", 0)
    parts = [
        "unkept" if record.get("unkept") else "",
        commits if work.get("ahead") else "",
        f"~{text_of(work['files'])}" if work.get("files") else "",
        f"&{asides}" if asides else "",
    ]
    return " ".join(filter(None, parts)) or "-"


def has_commits(agent: Agent) -> bool:
    """Say whether an agent's clone has commits that a landing could take along."""
    clone = agent.get("clone")
    found = clone.get("work") if isinstance(clone, dict) else None
    return isinstance(found, dict) and bool(found.get("commits")) and not found.get("landed")


def terminal_width(stream: TextIO, environ: Mapping[str, str] = os.environ) -> int | None:
    """Return the width that COLUMNS asks for, or that of a stream's terminal; None when there is neither."""
    return _asked_for(environ.get("COLUMNS")) or _terminal_size(stream)[0]


def terminal_height(stream: TextIO, environ: Mapping[str, str] = os.environ) -> int | None:
    """Return the height of a stream's terminal, which LINES may set; None when the stream is no terminal."""
    height = _terminal_size(stream)[1]
    return height and (_asked_for(environ.get("LINES")) or height)


def _asked_for(number: str | None) -> int | None:
    return int(number) if number and number.isascii() and number.isdigit() and int(number[:6]) > 0 else None


def _terminal_size(stream: TextIO) -> tuple[int | None, int | None]:
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return None, None
    return size.columns or None, size.lines or None


def wrapped(text: str, indent: int, columns: int | None) -> str:
    """Break a line between words, so that a terminal breaks none of them.

    Args:
        text: the line, harmless already.
        indent: where it begins on the terminal, and each further line with it.
        columns: the terminal's; None leaves the line whole.
    """
    if columns is None or indent + width(text) <= columns or columns < 2 * indent:
        return text
    first, *words = text.split(" ")
    lines = [first]
    for word in words:
        if lines[-1].strip() and indent + width(lines[-1]) + 1 + width(word) > columns:
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return ("\n" + " " * indent).join(lines)


def padded(text: str, columns: int) -> str:
    """Fill a text up with spaces to so many columns of a terminal."""
    return text + " " * (columns - width(text))


def shortened(text: str, columns: int) -> str:
    """Cut a text's end off, so that it takes at most so many columns of a terminal."""
    if width(text) <= columns:
        return text
    kept = text[: max(0, columns - 1)]
    while kept and width(kept) >= columns:
        kept = kept[:-1]
    return kept + "…" if columns > 0 else ""


def width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    import unicodedata

    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(unicodedata.category(letter) in {"Mn", "Me", "Cf"} for letter in text)


def age(stamp: object, now: float) -> str:
    """Say how long ago a time was, in one unit.

    Args:
        stamp: an RFC 3339 time in UTC.
        now: seconds since the epoch.
    """
    then = seconds_of(stamp)
    if then is None:
        return "-"
    passed = max(0, int(now - then))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if passed >= size:
            return f"{passed // size}{unit}"
    return f"{passed}s"


def seconds_of(stamp: object) -> float | None:
    """Return an RFC 3339 time in UTC as seconds since the epoch, or None if it isn't one.

    By hand, because `datetime` and `time.strptime` cost more to import than the rest of `ls` takes.
    """
    if not isinstance(stamp, str):
        return None
    try:
        hour, minute, second = int(stamp[11:13]), int(stamp[14:16]), float(stamp[17:].rstrip("Zz").split("+")[0])
        return _days(stamp[:10]) * 86400 + hour * 3600 + minute * 60 + second if 0 <= second < 61 else None
    except ValueError:
        return None


@lru_cache(100)  # a list has thousands of times, and few days
def _days(date: str) -> int:
    """Return the days from the epoch to a date.

    Raises:
        ValueError: it isn't one.
    """
    year, month, day = int(date[:4]), int(date[5:7]), int(date[8:10])
    # The proleptic Gregorian calendar, years beginning in March (so leap days come last).
    year -= month <= 2
    era_day = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return year * 365 + year // 4 - year // 100 + year // 400 + era_day - 719468


def clock(stamp: object) -> str:
    """Return the time of day of an RFC 3339 time, in the local zone."""
    then = seconds_of(stamp)
    return "--:--:--" if then is None else time.strftime("%H:%M:%S", time.localtime(then))


def local(stamp: object) -> str:
    """Return an RFC 3339 time as people read it, in the local zone: `2026-01-31 13:00:00`; what is none, as it is."""
    then = seconds_of(stamp)
    return text_of(stamp) if then is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(then))


def in_local_time(text: str, now: float | None = None) -> str:
    """Write the RFC 3339 times in a sentence as people read them, in the local zone: `02:30`, on another day with the date.

    Args:
        text: the sentence.
        now: the time, in seconds since the epoch; default: the present one.
    """
    if "Z" not in text:
        return text  # most sentences name no time
    import re

    def short(found: re.Match[str]) -> str:
        return local(found[0])[:16].removeprefix(time.strftime("%Y-%m-%d ", time.localtime(now)))

    return re.sub(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z", short, text)


def size(number: object) -> str:
    """Say a number of bytes in four characters: `812K`, `1.2G`."""
    if not isinstance(number, int):
        return "?"
    size, unit = number / 1024, "K"
    for larger in "MGT":
        if size < 1000:
            break
        size, unit = size / 1024, larger
    return f"{size:.1f}{unit}" if size < 10 and unit != "K" else f"{size:.0f}{unit}"


def lines_more(number: int) -> str:
    """Say how many lines more there are."""
    return f"{number} more line{'' if number == 1 else 's'}"
