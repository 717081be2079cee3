"""Checks at start-up that the daemon's own files and directories are of the right kind."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from substrat.errors import StateUnusable

if TYPE_CHECKING:
    from collections.abc import Callable

    from substrat.daemon.state.layout import Layout

_DIRECTORIES = ("agents", "trash", "damaged", "visits")
_FILES = ("lock", "substrat.db-wal", "substrat.db-shm", "substrat.db-journal")
_KINDS = (
    (stat.S_ISDIR, "a directory"), (stat.S_ISREG, "a file"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a block device"), (stat.S_ISCHR, "a character device"),
)  # fmt: skip


def check(layout: Layout) -> None:
    """Refuse to start where one of the daemon's own names is something else, such as a FIFO in the place of the lock.

    Opening or listing it later would wait for ever, or fail halfway. A link to the right kind of thing is good, except
    where the daemon deletes the contents: `trash` and `visits`. The database itself has a remedy of its own.

    Raises:
        StateUnusable: one is of the wrong kind or can't be used.
    """
    for name in _DIRECTORIES:
        path = os.path.join(layout.state, name)
        _check_kind(
            path, stat.S_ISDIR, "a directory", os.R_OK | os.W_OK | os.X_OK, may_be_link=name in {"agents", "damaged"}
        )
    for name in _FILES:
        path = os.path.join(layout.state, name)
        _check_kind(path, stat.S_ISREG, "a file", os.R_OK | os.W_OK)
    _check_kind(os.path.join(layout.runtime, "lock"), stat.S_ISREG, "a file", os.R_OK | os.W_OK)
    _check_kind(os.path.join(layout.runtime, "agents"), stat.S_ISDIR, "a directory", os.R_OK | os.W_OK | os.X_OK)
    sock = os.path.join(layout.runtime, "daemon.sock")
    if is_kind(sock, stat.S_ISDIR):
        raise StateUnusable(f"{sock} is a directory, where the operator's socket belongs: move it away")


def _check_kind(path: str, kind: Callable[[int], bool], wanted: str, access: int, *, may_be_link: bool = True) -> None:
    if not os.path.lexists(path):
        return
    if os.path.islink(path) and not may_be_link:
        raise StateUnusable(f"{path} is a link, where Substrat deletes things in {wanted} of its own: move it away")
    try:
        found = os.stat(path).st_mode
    except OSError as problem:
        reason = "is a link to nothing" if os.path.islink(path) else f"can't be looked at ({problem.strerror})"
        raise StateUnusable(f"{path} {reason}, where Substrat needs {wanted}: move it away") from None
    if not kind(found):
        name = next((name for is_kind, name in _KINDS if is_kind(found)), "something else")
        raise StateUnusable(f"{path} is {name}, where Substrat needs {wanted}: move it away")
    if not os.access(path, access):
        raise StateUnusable(f"{path} can't be read and written by this user: change its owner or its mode")


def is_kind(path: str, kind: Callable[[int], bool]) -> bool:
    """Say whether a path is of a kind by `stat.S_ISREG` and the like, following no link; False if nothing is there."""
    try:
        return kind(os.lstat(path).st_mode)
    except OSError:
        return False
