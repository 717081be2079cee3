"""A database of this version with nothing in it, for tests whose subject isn't how one is made: that takes ten times as
long as to open it, because each migration of the past is run.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from typing import TYPE_CHECKING

from substrat.daemon.state.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from _typeshed import StrPath


@functools.cache
def empty_database() -> bytes:
    """Such a database, as a file's bytes."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "substrat.db")
        Store(path).close()
        with open(path, "rb") as file:
            return file.read()


def lay_down(path: StrPath) -> None:
    """Write such a database to a path unless a file is there."""
    with (
        contextlib.suppress(FileExistsError),
        open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file,
    ):
        file.write(empty_database())


def lay_down_state(directory: Path) -> None:
    """Make a state directory with such a database in it, unless the directory exists."""
    if not directory.exists():
        directory.mkdir(mode=0o700)
        lay_down(directory / "substrat.db")
