"""Whether the branch that a clone's work is to land in is still there: a person may rename or delete it.

It is read from files, because lists of agents ask for it. For example after `git branch -m main trunk` there is neither
`refs/heads/main` nor a line of `packed-refs` with it.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from substrat.daemon.kernel import nofollow

if TYPE_CHECKING:
    from substrat.core.workspaces.clones import Clone

_PACKED_BYTES = 1 << 20
"""Bytes of `packed-refs`, some 15,000 refs, which are read in a millisecond; of larger ones it isn't known."""


def is_gone(clone: Clone) -> bool:
    """Say whether the branch surely isn't there; a repository that hadn't a commit may not have it yet."""
    if clone.target is None or clone.base is None:
        return False
    heads, name = f"{clone.git_dir}/refs/heads", os.fsencode(clone.target)
    loose = f"{heads}/{clone.target}"
    # Where refs are in tables (git 2.45, `reftable`), `refs/heads` is a file. Other branches may lie below this one's name.
    if not _is_directory(heads) or (os.path.lexists(loose) and not _is_directory(loose)):
        return False
    packed = nofollow.read_small(f"{clone.git_dir}/packed-refs", _PACKED_BYTES)
    if packed is None:
        return not os.path.lexists(f"{clone.git_dir}/packed-refs")
    return b" refs/heads/" + name + b"\n" not in packed


def _is_directory(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False
