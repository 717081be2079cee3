"""Looks at the files that git on the host writes when a branch moves: git writes through links there, and waits at a FIFO.

For example an agent in place could make `.git/logs/HEAD` a link to a file in the person's home, and the next landing would
append to that file.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from typing import TYPE_CHECKING

from substrat.daemon.kernel import descriptors, nofollow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_OF_WORKTREE = ("index", "HEAD", "ORIG_HEAD", "logs/HEAD")
"""In a worktree's own git directory (gitrepository-layout(5))."""
_COPIES = ("index.substrat", "index.substrat-look")
"""Beside `index`, while `inside/branch` moves a branch."""
_PACKED = "packed-refs"
"""In the git directory that all worktrees share, as the files of branches are."""
_HEAD_BYTES = 512
"""git gives a branch no longer name than 255 bytes a part, and hardly anybody two such parts."""
_LONGEST_PART = 255
"""Bytes of a file's name (limits.h, NAME_MAX): git can have no branch with a longer part."""
_CONFIG_BYTES = 1 << 20
_REFTABLE = re.compile(rb"^\s*refstorage\s*=\s*reftable\s*$", re.IGNORECASE | re.MULTILINE)


def keeps_refs_in_tables(common: str) -> bool:
    """Say whether a repository keeps its refs in the form `reftable`, by its configuration."""
    return _REFTABLE.search(nofollow.read_small(f"{common}/config", _CONFIG_BYTES) or b"") is not None


def obstacle(own: str, common: str, branch: str) -> str | None:
    """Say why git on the host must not move a branch where it is checked out now; None: it may.

    Raises:
        OSError: one of the two isn't there, or has become a link.
    """
    for directory, names, more in ((own, _OF_WORKTREE, _COPIES), (common, (_PACKED, *_refs(branch)), ())):
        with nofollow.opened(directory) as opened:
            if odd := next(_odd_in(opened, (*names, *more)), None):
                return (
                    f"git would write through {directory}/{odd}, which is no plain file: put one in its place, or remove it"
                )
            locks = [f"{name}.lock" for name in (*names, *more)]
            if lock := next((lock for lock in locks if _is_there(opened, lock)), None):
                return f"{directory}/{lock} is there: a git works there, or one that was killed left it; then remove it"
    return _chained(own, common, branch)


def _chained(own: str, common: str, branch: str) -> str | None:
    """Say which ref leads to another one: git writes the logs of all on the way."""
    if keeps_refs_in_tables(common):
        return None  # it has neither refs nor logs in files of their own
    head = nofollow.read_small(f"{own}/HEAD", _HEAD_BYTES) or b""
    if os.fsdecode(head).rstrip("\n") != f"ref: refs/heads/{branch}":
        return f"{own}/HEAD names another branch than {branch}"
    if (nofollow.read_small(f"{common}/refs/heads/{branch}", _HEAD_BYTES) or b"").startswith(b"ref:"):
        return f"{common}/refs/heads/{branch} leads to another branch: `git symbolic-ref` shows which"
    return None


def odd_here(directory: int) -> list[str]:
    """Return what git would write through where the branch moves that is checked out in a git directory, from there on."""
    said = os.fsdecode(nofollow.read_small("HEAD", _HEAD_BYTES, directory) or b"").rstrip("\n")
    branch = said.removeprefix("ref: refs/heads/")
    is_branch = branch != said and all(map(_is_name, branch.split("/")))
    # Of another branch, such as one of a damaged HEAD, only the directories are looked at.
    found = set(_odd_in(directory, (*_OF_WORKTREE, *_COPIES, _PACKED, *_refs(branch if is_branch else "HEAD"))))
    if is_branch and (nofollow.read_small(_refs(branch)[0], _HEAD_BYTES, directory) or b"").startswith(b"ref:"):
        found.add(_refs(branch)[0])
    return sorted(found)


def _refs(branch: str) -> tuple[str, str]:
    return f"refs/heads/{branch}", f"logs/refs/heads/{branch}"


def _is_there(directory: int, name: str) -> bool:
    try:
        os.close(nofollow.open_path(name, directory))
    except OSError as problem:
        descriptors.refuse_shortage(problem)
        return problem.errno not in {errno.ENOENT, errno.ENOTDIR}
    return True


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
            is_plain = stat.S_ISREG(found.st_mode) and found.st_nlink == 1
            if not (stat.S_ISDIR(found.st_mode) if below else is_plain):
                yield place + name
            elif below:
                with nofollow.opened(name, directory) as inner:
                    yield from _odd_below(inner, f"{place}{name}/", below)
        except FileNotFoundError:
            continue
        except OSError as problem:  # nobody may look into it
            descriptors.refuse_shortage(problem)
            yield place + name
