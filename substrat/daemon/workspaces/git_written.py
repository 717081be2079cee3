"""Looks at the files that git on the host writes when a branch moves: git writes through links there, and waits at a FIFO.

For example an agent in place could make `.git/logs/HEAD` a link to a file in the person's home, and the next landing would
append to that file.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from substrat.daemon.kernel import nofollow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_OF_WORKTREE = ("index", "HEAD", "ORIG_HEAD", "logs/HEAD")
_PACKED = "packed-refs"
"""All of these are paths from the git directory (gitrepository-layout(5))."""
_HEAD_BYTES = 512


def written(directory: int) -> tuple[str, ...]:
    """Return the paths in a git directory that git writes when the branch moves that is checked out there."""
    said = os.fsdecode(nofollow.read_small("HEAD", _HEAD_BYTES, directory) or b"").rstrip("\n")
    branch = said.removeprefix("ref: refs/heads/")
    refs = _refs(branch) if branch != said and ".." not in branch else ("refs/heads", "logs/refs/heads")
    return (*_OF_WORKTREE, _PACKED, *refs)


def _refs(branch: str) -> tuple[str, str]:
    return f"refs/heads/{branch}", f"logs/refs/heads/{branch}"


def odd(own: str, common: str, branch: str) -> list[str]:
    """Return the paths that git writes or reads when it moves a branch, and where neither nothing nor a plain file is.

    Args:
        own: the physical path of the worktree's git directory.
        common: the one that all worktrees share.
        branch: the branch, such as `main` or `feature/login`.
    """
    return list(dict.fromkeys((*_odd_in(own, _OF_WORKTREE), *_odd_in(common, (_PACKED, *_refs(branch))))))


def _odd_in(directory: str, names: Sequence[str]) -> Iterator[str]:
    with nofollow.opened(directory) as opened:
        for name in (*names, *(f"{name}.lock" for name in names)):
            if (found := odd_part(opened, name)) is not None:
                yield f"{directory}/{found}"


def odd_part(directory: int, name: str) -> str | None:
    """Return the part of a path at which something else is than a directory, or a plain file of one name at its end.

    Args:
        directory: a descriptor of the directory that it starts in.
        name: the path, such as `logs/HEAD`.
    """
    parts, at = name.split("/"), os.dup(directory)
    try:
        for number, part in enumerate(parts, 1):
            try:
                found = os.stat(part, dir_fd=at, follow_symlinks=False)
            except FileNotFoundError:
                return None
            except PermissionError:
                return "/".join(parts[: number - 1])
            if not stat.S_ISDIR(found.st_mode):
                is_plain = number == len(parts) and stat.S_ISREG(found.st_mode) and found.st_nlink == 1
                return None if is_plain else "/".join(parts[:number])
            inner = nofollow.open_path(part, at)
            os.close(at)
            at = inner
        return None
    finally:
        os.close(at)
