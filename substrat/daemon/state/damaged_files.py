"""Moves files that the daemon can't use into `<state>/damaged`, so that everything else goes on.

Nothing is repaired and nothing deleted: a person, or a restored backup, may still make sense of them.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from substrat.daemon.state.layout import Layout


def set_aside(path: str, layout: Layout, now: float) -> str | None:
    """Move a file or directory into `<state>/damaged`.

    Args:
        path: the file or directory.
        layout: the daemon's directories.
        now: seconds since the epoch.

    Returns:
        Where it is now, or None when it can't be moved.
    """
    return move_aside(path, target_of(path, layout, now), layout)


def target_of(path: str, layout: Layout, now: float) -> str:
    """Return a name in `<state>/damaged` that nothing has yet; arguments as for `set_aside`."""
    name = os.path.relpath(path, layout.state).replace(os.sep, "-")
    return os.path.join(layout.damaged, f"{_stamp(now)}-{name}-{secrets.token_hex(4)}")


def move_aside(path: str, target: str, layout: Layout) -> str | None:
    """Move a file or directory to a name from `target_of`; return the name, or None when it can't be moved."""
    try:
        os.makedirs(layout.damaged, mode=0o700, exist_ok=True)
        os.rename(path, target)
    except OSError:
        return None
    return target


def set_aside_database(path: str, layout: Layout, now: float) -> str:
    """Move a database and the files that SQLite has made beside it into a directory in `<state>/damaged`.

    Returns:
        The directory.

    Raises:
        OSError: they can't be moved.
    """
    directory = os.path.join(layout.damaged, f"{_stamp(now)}-{secrets.token_hex(2)}")
    os.makedirs(directory, mode=0o700)
    # The logs first: a log without its database is only left over, a database without its log has lost commits.
    for name in (path + "-shm", path + "-wal", path):
        with suppress(FileNotFoundError):
            os.rename(name, os.path.join(directory, os.path.basename(name)))
    return directory


def _stamp(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
