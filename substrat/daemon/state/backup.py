"""Keeps a copy of the database, made once a day, to go back to when the database is damaged.

`VACUUM INTO` reads every page, so a damaged database never takes a copy's place. `substratd --set-aside-damaged-state` goes
back to it.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog
import trio

from substrat.daemon.state.layout import copy_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from substrat.daemon.state.store import Store

log = structlog.get_logger("substrat.backup")

_PERIOD = 24 * 3600.0
"""Seconds between two copies."""
_LOOK = 600.0
"""Seconds between looks at the copy's age: a clock that goes by the copy's file is right after a restart and a sleep."""
_SKIPPED_NUMBERS = 1_000_000
"""Numbers left out when a person goes back: clients hold cursors of events that are newer than the copy, and an agent makes
fewer events in a day."""
_STEPS = 10_000
"""Of SQLite's virtual machine, which takes about a millisecond for them."""
_PRIMARY = 0xFF
"""The bits of an extended result code that say its kind (sqlite3.h)."""


def time_of(path: str) -> str | None:
    """Return when a database's copy was made, such as `2026-01-05 09:00 UTC`; None: there is no copy."""
    try:
        made = os.path.getmtime(copy_of(path))
    except OSError:
        return None
    return datetime.fromtimestamp(made, UTC).strftime("%Y-%m-%d %H:%M UTC")


async def keep(store: Store, now: Callable[[], float], room: Callable[[], int]) -> None:
    """Copy the database whenever the copy is a day old, until cancelled.

    Args:
        store: the state.
        now: the clock, in seconds since the epoch.
        room: gives how many bytes may be written to the disk.
    """
    copy = copy_of(store.path)
    _remove_begun(copy)
    while True:
        await trio.sleep(_LOOK)
        age = _PERIOD
        with suppress(OSError):
            age = now() - os.path.getmtime(copy)
        if 0 <= age < _PERIOD:
            continue
        try:
            if room() < store.size:
                log.warning("state not copied", reason="the copy would leave less room than disk.free on the disk")
                continue
            # A stop ends the copy, and waits for it: SQLite's log goes with the last connection.
            await trio.to_thread.run_sync(make, store.path, trio.from_thread.check_cancelled)
        except (sqlite3.Error, OSError) as problem:
            log.warning("state not copied", reason=str(problem))


def make(path: str, check: Callable[[], None] = lambda: None) -> None:
    """Copy a database in whose files others may be writing; the copy before stays until this one is whole.

    Args:
        path: its path.
        check: is called about every millisecond; where it raises, each time then, the copy is given up with that.

    Raises:
        sqlite3.Error: it is damaged, or another process has it for itself.
        OSError: the copy can't be written.
    """
    copy = copy_of(path)
    begun = f"{copy}.part"
    os.makedirs(os.path.dirname(copy), mode=0o700, exist_ok=True)
    # SQLite takes an empty file as it is, with its mode.
    try:
        with open(begun, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            with closing(sqlite3.connect(path)) as db:
                db.set_progress_handler(check, _STEPS)
                db.execute("VACUUM INTO ?", (begun,))
            os.fsync(file.fileno())
        os.replace(begun, copy)
    except sqlite3.OperationalError as problem:
        if problem.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            check()  # SQLite says nothing of what it has raised
        raise
    finally:
        _remove_begun(copy)


def _remove_begun(copy: str) -> None:
    """Remove what is left of a copy that failed, or whose daemon was killed."""
    for name in (f"{copy}.part", f"{copy}.part-journal"):
        with suppress(FileNotFoundError):
            os.unlink(name)


def prepare(path: str) -> bool:
    """Let a database's copy give greater numbers than the database did; False: there is no copy, or it is none.

    Raises:
        sqlite3.Error: it can't be opened or written now.
    """
    copy = copy_of(path)
    if not os.path.isfile(copy):
        return False
    try:
        with closing(sqlite3.connect(copy)) as db, db:
            db.execute(
                "INSERT INTO sqlite_sequence SELECT name, 0 FROM sqlite_schema WHERE type = 'table' "
                "AND sql LIKE '%AUTOINCREMENT%' AND name NOT IN (SELECT name FROM sqlite_sequence)"
            )
            db.execute("UPDATE sqlite_sequence SET seq = seq + ?", (_SKIPPED_NUMBERS,))
    except sqlite3.DatabaseError as problem:
        if problem.sqlite_errorcode & _PRIMARY not in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
            raise
        os.rename(copy, f"{copy}.damaged")
        log.error("the copy can't be read", path=f"{copy}.damaged", reason=str(problem))  # noqa: TRY400 - it says all
        return False
    return True


def go_back(path: str) -> None:
    """Put a database's copy, if there is one, into its place; raises OSError."""
    with suppress(FileNotFoundError):
        os.rename(copy_of(path), path)
