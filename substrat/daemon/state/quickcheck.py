"""Looks for damage in the structure of a database; as a program it prints each text that it has found, and a NUL.

It imports nothing of ours, because it also runs by itself, beside a daemon that works with the database.
"""

from __future__ import annotations

import os
import re
import select
import sqlite3
import sys
import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROW_DAMAGE = re.compile(r"[\w-]+ value in |CHECK constraint failed")
"""A value that is wrong is no damage of the structure; `quarantine` finds it."""


def damage(db: sqlite3.Connection, without: str | None = None) -> Iterator[str]:
    """Yield what is damaged in the structure of a database (sqlite.org/pragma.html#pragma_quick_check).

    Args:
        db: the database.
        without: a table that isn't looked at, nor what only a look at the whole file shows; None: all is looked at.
    """
    looks = ["PRAGMA quick_check(100)"]
    if without is not None:
        tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> ?"
        looks = [f"PRAGMA quick_check({_quoted(name)})" for (name,) in db.execute(tables, (without,)).fetchall()]
    for look in looks:
        yield from (text for (text,) in db.execute(look) if text != "ok" and not _ROW_DAMAGE.match(text))


def _quoted(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"


def _end_with(parent: int) -> None:
    with suppress(ProcessLookupError):
        end = os.pidfd_open(parent)
        if os.getppid() == parent:
            select.select([end], [], [])
    os._exit(1)


def main(path: str, parent: int) -> None:
    """Look at a whole database, in whose files another process may be writing, for as long as the parent lives."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    os.nice(10)
    with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True)) as db:
        for text in damage(db):
            sys.stdout.write(f"{text}\0")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
