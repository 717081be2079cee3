"""Reads the programs that `git rebase --continue` would run in a workspace, by the table of `core`'s `git_sequencer`.

An agent may go on with such a rebase itself, so the files stay writable; a turn's end compares them with its start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.core.workspaces import git_sequencer
from substrat.daemon.kernel import nofollow

if TYPE_CHECKING:
    from collections.abc import Iterable

_LONGEST = 256 * 1024
"""Bytes of one file: some thousand commits."""
_ALL = 1024 * 1024
"""Bytes of all such files in a workspace: the lines are written down for a daemon that takes the turn over."""
_UNREAD = ("something that can't be looked at: a link, or too much",)


def read(git_directories: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the lines by which git would run a program, by the path of the file they are in.

    Args:
        git_directories: those of a workspace; others are looked at as well without harm.
    """
    found: dict[str, tuple[str, ...]] = {}
    left = _ALL
    for git in dict.fromkeys(git_directories):
        for directory, names in git_sequencer.DIRECTORIES.items():
            if not _is_there(f"{git}/{directory}"):
                continue
            for path, name in ((f"{git}/{directory}/{name}", name) for name in names):
                data = nofollow.read_small(path, min(_LONGEST, left)) if left > 0 else None
                left -= len(data or b"")
                lines = git_sequencer.runs(name, data) if data is not None else _UNREAD if _is_there(path) else ()
                if lines:
                    found[path] = lines
    return found


def _is_there(path: str) -> bool:
    """Say whether there is anything at a path, or may be behind a link."""
    try:
        with nofollow.opened(path):
            return True
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # git can't read it either
        return False
    except OSError:
        return True
