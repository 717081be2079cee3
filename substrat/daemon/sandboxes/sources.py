"""Opens bind mounts' sources by descriptor, so that the directory that was checked is the one that is mounted."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from substrat.daemon.kernel import nofollow
from substrat.daemon.kernel.files import close_all
from substrat.errors import DescriptorsUsedUp, WorkspaceUnusable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandbox.spec import Bind


class SourceGone(WorkspaceUnusable):
    """A mount's source was there when the sandbox was prepared, and isn't any more; prepared anew it is made without."""


def open_all(mounts: Iterable[Bind]) -> tuple[int, ...]:
    """Open each mount's source, following no link; the caller closes the descriptors.

    A source inside one that was opened before is opened from there, so all of a workspace is of one directory, also when
    another one takes its name meanwhile.

    Args:
        mounts: the mounts that are bound by descriptor.

    Raises:
        WorkspaceUnusable: one has become a link.
        SourceGone: one is gone.
        DescriptorsUsedUp: there are no descriptors left.
    """
    opened: list[int] = []
    known: dict[str, int] = {}
    try:
        for mount in mounts:
            outer = max((path for path in known if mount.source.startswith(path + "/")), key=len, default=None)
            if outer is None:
                opened.append(nofollow.open_path(mount.source))
            else:
                opened.append(_open_beneath(mount.source, outer, known[outer]))
            known[mount.source] = opened[-1]
    except DescriptorsUsedUp:
        close_all(opened)
        raise
    except OSError as problem:
        close_all(opened)
        path, remedy = os.fspath(problem.filename or "a part of the workspace"), "put back what was there"
        if problem.errno == errno.ENOENT:
            raise SourceGone(f"{path} was removed while the sandbox was being made: try again") from None
        if problem.errno == errno.ELOOP:
            raise WorkspaceUnusable(f"{path} has become a link, or lies behind one: {remedy}") from None
        raise WorkspaceUnusable(f"{path} can't be opened any more ({problem.strerror}): {remedy}") from None
    return tuple(opened)


def _open_beneath(path: str, outer: str, descriptor: int) -> int:
    try:
        return nofollow.open_path(path[len(outer) + 1 :], descriptor)
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, path) from None
