"""Says which changes git on the host leaves out by what was marked in a git directory during a turn. Pure.

An example: after `git update-index --skip-worktree a.py` neither `git status` nor `git diff` shows a change of `a.py`. The
agent's git needs to write these files, so they aren't protected; a turn's end compares them with its start.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

RULES = ("info/exclude", "info/grafts")
"""Files of a git directory, a rule or an exception each line."""
REPLACE = "refs/replace"
_PACKED = re.compile(rb"^([0-9a-f]{40,64}) refs/replace/(\S+)$", re.MULTILINE)
_TOLD, _LONGEST = 3, 120
"""Lines that a sentence names, and characters of each: a person reads it in a terminal."""
_MOST_TEXT = 128 * 1024
"""Characters of one file's lines: they are written down for a daemon that takes the turn over."""
_SAYS = {
    "index": "`git status` and `git diff` on the host leave out changes of files that were marked so during the turn (`git "
    "ls-files -v` shows them as S or with a small letter)",
    "exclude": "new files may be missing in `git status` on the host, because this was changed during the turn",
    "grafts": "git on the host shows another history, because this was changed during the turn",
    "replace": "git on the host shows other objects in the place of some, because of what was made here during the turn "
    "(`git --no-replace-objects` shows the true ones)",
}


def rules(data: bytes) -> tuple[str, ...]:
    """Return the lines of a file of rules that count."""
    lines = (line.rstrip("\r") for line in data.decode("utf-8", "replace").split("\n"))
    return bounded(line for line in lines if line.strip() and not line.startswith("#"))


def packed(data: bytes) -> dict[str, str]:
    """Return which objects a file `packed-refs` has others shown for, by their names."""
    return {name.decode("ascii", "replace"): target.decode() for target, name in _PACKED.findall(data)}


def bounded(lines: Iterable[str]) -> tuple[str, ...]:
    """Return lines that can be written down; those that are too much are one line with their number and a checksum."""
    kept: list[str] = []
    room, rest, total = _MOST_TEXT, 0, 0
    for line in lines:
        if len(line) <= room:
            room -= len(line) + 1
            kept.append(line)
        else:
            room = 0
            rest, total = zlib.crc32(line.encode("utf-8", "replace"), rest), total + 1
    return (*kept, *([f"and {total} more, {rest:08x}"] if total else []))


def changes(before: Mapping[str, tuple[str, ...]], after: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, str, str]]:
    """Yield the files by which git hides more, or something else, than before.

    Args:
        before: the lines at a turn's start, by path.
        after: the same at its end.

    Yields:
        The path, a sentence, and all lines that came (`+`) or went (`-`).
    """
    for path in dict.fromkeys((*before, *after)):
        kind = path.rpartition("/")[2]
        was, now = Counter(before.get(path, ())), Counter(after.get(path, ()))
        # A mark that went hides nothing; an exception (`!keep`) that went does.
        gone = [] if kind == "index" else list((was - now).elements())
        new = list((now - was).elements())
        signed = [*(f"+{line}" for line in new), *(f"-{line}" for line in gone)]
        if not signed and kind != "index" and before.get(path) != after.get(path):
            signed = ["another order"]  # the last rule that fits counts (gitignore(5))
        if not signed:
            continue
        shown = ", ".join(f"'{line[:_LONGEST]}{'…' if len(line) > _LONGEST else ''}'" for line in signed[:_TOLD])
        more = f" and {len(signed) - _TOLD} more" if len(signed) > _TOLD else ""
        yield path, f"{path}: {_SAYS.get(kind, _SAYS['index'])}: {shown}{more}", "\n".join((*signed, ""))


def describe(paths: list[str]) -> str:
    """Return a sentence about paths that `changes` has yielded."""
    more = f" and {len(paths) - _TOLD} more" if len(paths) > _TOLD else ""
    return f"git on the host may hide changes, by what the turn has made in {', '.join(paths[:_TOLD])}{more}"
