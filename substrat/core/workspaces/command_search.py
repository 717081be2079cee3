"""Finds the places where a command looks for its program, beside those that it names. Pure.

An example: `env PATH=tools:/usr/bin x` runs `tools/x` where there is one, and `$TOOL x` runs an unknown program.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_ASSIGNED = re.compile(r"[;&|({]*([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_SEARCHED = re.compile(r".*(PATH|LIB|HOME|DIR|PREFIX|PRELOAD|ENV)", re.IGNORECASE)
"""Variables with directories or files that programs take further programs from: `PATH`, `PYTHONPATH`, `LD_PRELOAD`."""
_OPTIONS = re.compile(r".*OPT(S|IONS?)?", re.IGNORECASE)
_NUMBERS = re.compile(r"(--[a-z-]+(=[0-9]+)?\s*)*")
"""Options that name no file: `--max-old-space-size=4096`."""
_PATH = frozenset({"$PATH", "${PATH}"})
_HOME = re.compile(r"\$HOME\b|\$\{HOME\}")
_PREFIXES = frozenset({"env", "exec", "command", "nohup", "time", "nice"})


def places(command: str) -> Iterator[str]:
    """Yield where a command looks for programs: paths, `.` for the directory that it is started in or one that isn't known.

    Args:
        command: as a shell reads it.
    """
    try:
        words = shlex.split(_HOME.sub("~", command))
    except ValueError:  # a shell would complain, and run nothing
        return
    is_first = True
    for word in words:
        if (assigned := _ASSIGNED.fullmatch(word)) is not None:
            yield from _assigned(*assigned.groups())
        elif is_first and not word.startswith("-") and word not in _PREFIXES:
            is_first = False
            if "$" in word or "`" in word:
                yield "."


def _assigned(name: str, value: str) -> Iterator[str]:
    if _SEARCHED.fullmatch(name):
        # Without a name between two colons it is the directory that the program is started in.
        yield from (
            "." if not part or "$" in part or "`" in part else part for part in value.split(":") if part not in _PATH
        )
    elif _OPTIONS.fullmatch(name) and not _NUMBERS.fullmatch(value):
        yield "."
