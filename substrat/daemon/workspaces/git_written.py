"""Looks at the files that git on the host writes when a branch moves: git writes through links there, and waits at a FIFO.

For example an agent in place could make `.git/logs/HEAD` a link to a file in the person's home, and the next landing would
append to that file.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from substrat.daemon.kernel import descriptors, nofollow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_OF_WORKTREE = ("index", "HEAD", "ORIG_HEAD", "logs/HEAD")
"""In a worktree's own git directory (gitrepository-layout(5))."""
_PACKED = "packed-refs"
"""In the git directory that all worktrees share, as the files of branches are."""
_HEAD_BYTES = 512
"""git gives a branch no longer name than 255 bytes a part, and hardly anybody two such parts."""
_LONGEST_PART = 255
"""Bytes of a file's name (limits.h, NAME_MAX): git can have no branch with a longer part."""


def odd(own: str, common: str, branch: str) -> list[str]:
    """Return the paths that git writes or reads when it moves a branch, and where neither nothing nor a plain file is.

    Args:
        own: the physical path of the worktree's git directory.
        common: the one that all worktrees share.
        branch: the branch, such as `main` or `feature/login`.

    Raises:
        OSError: one of the two isn't there, or has become a link.
    """
    found: dict[str, None] = {}
    for directory, names in ((own, _OF_WORKTREE), (common, (_PACKED, *_refs(branch)))):
        with nofollow.opened(directory) as opened:
            locks = (f"{name}.lock" for name in names)
            found |= {f"{directory}/{part}": None for part in _odd_in(opened, (*names, *locks))}
    return list(found)


def odd_here(directory: int) -> list[str]:
    """Return the same for the branch that is checked out in a git directory, from there on, without locks."""
    said = os.fsdecode(nofollow.read_small("HEAD", _HEAD_BYTES, directory) or b"").rstrip("\n")
    branch = said.removeprefix("ref: refs/heads/")
    is_branch = branch != said and all(map(_is_name, branch.split("/")))
    refs = _refs(branch) if is_branch else ("refs/heads", "logs/refs/heads")
    return sorted(set(_odd_in(directory, (*_OF_WORKTREE, _PACKED, *refs))))


def _refs(branch: str) -> tuple[str, str]:
    return f"refs/heads/{branch}", f"logs/refs/heads/{branch}"


def _is_name(part: str) -> bool:
    """Say whether a part of a branch's name can be a file's: an agent may have written the branch's name."""
    return part not in {"", ".", ".."} and "\0" not in part and len(os.fsencode(part)) <= _LONGEST_PART


class _Tree(dict[str, "_Tree"]):
    """Names in a directory, each with those below it; a directory is opened once for all."""


def _odd_in(directory: int, names: Iterable[str]) -> Iterator[str]:
    """Give each part of some paths at which something else is than a directory, or at the end a file of one name."""
    top = _Tree()
    for name in names:
        below = top
        for part in name.split("/"):
            below = below.setdefault(part, _Tree())
    yield from _odd_below(directory, "", top)


def _odd_below(directory: int, place: str, names: _Tree) -> Iterator[str]:
    for name, below in names.items():
        try:
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if not stat.S_ISDIR(found.st_mode):
                if below or not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                    yield place + name
            elif below:
                with nofollow.opened(name, directory) as inner:
                    yield from _odd_below(inner, f"{place}{name}/", below)
        except FileNotFoundError:
            continue
        except OSError as problem:  # nobody may look into it
            descriptors.refuse_shortage(problem)
            yield place + name
