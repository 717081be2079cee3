"""Opens what a sandbox shows of places an agent could have changed, so that what was checked is what is mounted."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from substrat.daemon import nofollow
from substrat.errors import WorkspaceUnusable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sandbox.spec import Bind


def open_all(mounts: Iterable[Bind]) -> tuple[int, ...]:
    """Open each mount's source, following no link; the caller closes the descriptors.

    Args:
        mounts: what is bound by descriptor.

    Raises:
        WorkspaceUnusable: one has become a link or is gone.
    """
    opened: list[int] = []
    try:
        opened.extend(nofollow.open_path(mount.source) for mount in mounts)
    except OSError as problem:
        close_all(opened)
        what, remedy = os.fspath(problem.filename or "a part of the workspace"), "put back what was there"
        if problem.errno == errno.ELOOP:
            raise WorkspaceUnusable(f"{what} has become a link, or lies behind one: {remedy}") from None
        raise WorkspaceUnusable(f"{what} can't be opened any more ({problem.strerror}): {remedy}") from None
    return tuple(opened)


def close_all(descriptors: Iterable[int]) -> None:
    """Close descriptors."""
    for descriptor in descriptors:
        os.close(descriptor)
