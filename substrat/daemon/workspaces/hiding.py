"""Reads the files of git directories by which git hides changes from people, by the tables of `core`'s `git_hiding`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from substrat.core.workspaces import git_hiding
from substrat.daemon.kernel import descriptors, nofollow

if TYPE_CHECKING:
    from collections.abc import Iterable

_LONGEST = 1 << 20
"""Bytes of one file of rules."""
_LONGEST_PACKED = 64 << 20
"""Bytes of `packed-refs`: some 900,000 refs."""
_MOST_REFS = 200
"""Refs that are read one by one, each a file; people have a handful."""
_REF = 100
"""Bytes of a ref's file: an object's name in hexadecimal digits."""
UNREAD = ("something that can't be looked at: a link, or too much",)


def read(git_directories: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the lines by which git hides something, by the path of the file or directory they are in."""
    found: dict[str, tuple[str, ...]] = {}
    for git in git_directories:
        for path in (f"{git}/{name}" for name in git_hiding.RULES):
            data = nofollow.read_small(path, _LONGEST)
            lines = git_hiding.rules(data) if data is not None else UNREAD if os.path.lexists(path) else ()
            if lines:
                found[path] = lines
        if lines := _replaced(git):
            found[f"{git}/{git_hiding.REPLACE}"] = lines
    return found


def _replaced(git: str) -> tuple[str, ...]:
    """Return which objects git shows others for: `OBJECT by OTHER`."""
    data = nofollow.read_small(f"{git}/packed-refs", _LONGEST_PACKED)
    if data is None and os.path.lexists(f"{git}/packed-refs"):
        return UNREAD
    found = git_hiding.packed(data or b"")
    try:
        with nofollow.opened(f"{git}/{git_hiding.REPLACE}") as directory:
            reading = nofollow.open_directory(".", directory)
        try:
            names = sorted(os.listdir(reading))
            for name in names[:_MOST_REFS]:
                found[name] = (nofollow.read_small(name, _REF, reading) or b"?").decode("ascii", "replace").strip()
        finally:
            os.close(reading)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        names = []
    except OSError as problem:
        descriptors.refuse_shortage(problem)
        return UNREAD
    more = (f"and {len(names) - _MOST_REFS} more",) if len(names) > _MOST_REFS else ()
    return (*git_hiding.bounded(f"{name} by {other}" for name, other in sorted(found.items())), *more)
