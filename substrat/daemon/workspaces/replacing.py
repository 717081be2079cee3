"""Replaces protected files by new ones, or by those of before, and loses nothing that a person writes at that moment."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from substrat.daemon.kernel import nofollow, renaming
from substrat.daemon.workspaces import copies

if TYPE_CHECKING:
    from substrat.core.workspaces.protection import Copy

_CANNOT = frozenset({errno.EINVAL, errno.ENOSYS})


def replace(path: str, judged: Copy, copy: Copy) -> bool:
    """Put a copy in the place of a file or directory as it was judged, as new files: no open descriptor reaches them.

    Args:
        path: an absolute path; no link on the way is followed.
        judged: the copy of the file or directory as it was judged, perhaps an absent one.
        copy: a file or a directory.

    Returns:
        Whether it was still as it was judged. If it wasn't, what is there now stays.

    Raises:
        OSError: it can't be written.
    """
    head, _, name = path.rpartition("/")
    with nofollow.opened(head) as directory:
        fresh = copies.make(name, copy, directory)
        try:
            return _rename(f"{head}/{fresh}", name, judged, directory)
        except (FileExistsError, FileNotFoundError):
            return False
        except OSError as problem:
            if problem.errno not in _CANNOT:
                raise
        finally:
            copies.remove(fresh, directory)
    copies.put(path, copy)  # the file system has no such renames
    return True


def set_aside(path: str, before: Copy, target: str) -> None:
    """Move a file or directory out of the workspace, and put the copy of before in its place in the same step.

    git that writes a person's setting just then finds one of the two, and none of the daemon's renames comes after its own.

    Args:
        path: an absolute path; no link on the way is followed.
        before: the copy; an absent one leaves nothing there.
        target: a name in a directory of the daemon's that is there; nothing has it.

    Raises:
        OSError: it can't be moved, or the copy can't be written.
    """
    if before.kind == "absent":
        copies.move_aside(path, target)
        return
    head, _, name = path.rpartition("/")
    with nofollow.opened(head) as directory:
        fresh = copies.make(name, before, directory)
        try:
            renaming.exchange(fresh, name, directory)
        except FileNotFoundError:  # nothing is there to be moved
            renaming.to_new(fresh, name, directory)
            return
        except OSError as problem:
            copies.remove(fresh, directory)
            if problem.errno not in _CANNOT:
                raise
            copies.move_aside(path, target)
            copies.put(path, before)
            return
        try:
            copies.move_aside(f"{head}/{fresh}", target)
        except OSError:
            renaming.exchange(fresh, name, directory)  # it stays rather than being lost
            copies.remove(fresh, directory)
            raise


def _rename(fresh: str, name: str, judged: Copy, directory: int) -> bool:
    ours = os.path.basename(fresh)
    if judged.kind == "absent":
        renaming.to_new(ours, name, directory)
        return True
    inode = os.stat(ours, dir_fd=directory).st_ino
    if copies.take(f"{os.path.dirname(fresh)}/{name}") != judged:
        return False  # most often it shows here, before the person's next git has read the older file
    renaming.exchange(ours, name, directory)
    if copies.take(fresh) == judged:
        return True
    renaming.exchange(ours, name, directory)
    if os.stat(ours, dir_fd=directory, follow_symlinks=False).st_ino != inode:
        renaming.exchange(ours, name, directory)  # a person has put another one there in between, and the newest stays
    return False
