"""The SQLite file that the state is in: opened, checked, migrated, written in transactions; what is in it is `store`'s.

Everything runs on the daemon's own thread: a commit takes some 15 µs here against 300 µs through a thread, and a change
without an await in the middle needs no lock. The journal is WAL with `synchronous=NORMAL`: a commit survives every death
of the daemon; a power failure can take the last commits back (sqlite.org/pragma.html#pragma_synchronous).
"""

from __future__ import annotations

import os
import re
import shlex
import sqlite3
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import quote

from substrat.daemon.schema import MIGRATIONS, SCHEMA_VERSION
from substrat.errors import StateUnusable, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

_QUICKLY_CHECKED = 256 * 1024 * 1024
"""Bytes; looking at as many takes some 0.2 s."""
_WAL_HEADER = 32
_WAL_MAGIC = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
_DAMAGE_CODES = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_ROW_DAMAGE = re.compile(r"[\w-]+ value in |CHECK constraint failed")


class StateDamaged(StateUnusable):
    """The database isn't one, or its structure is broken; `--set-aside-damaged-state` begins a new one."""


class Database:
    """The database of one state directory.

    Args:
        path: the file; made when it isn't there.

    Raises:
        StateUnusable: the file is no database of ours, is damaged, or was written by a newer version.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._in_transaction = False
        try:
            _refuse_newer(path)
            _refuse_a_strange_log(path)
            suspicious = _needs_check(path)
            # SQLite gives the mode of this file to those it makes beside it.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._db = sqlite3.connect(path, isolation_level=None)
        except (sqlite3.Error, OSError) as problem:
            raise unusable(path, problem) from None
        try:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            if suspicious:
                self._check()
            self._migrate()
        except sqlite3.Error as problem:
            self._db.close()
            raise unusable(path, problem) from None
        except StateUnusable:
            self._db.close()
            raise

    def close(self) -> None:
        """Close the database; the last writer folds the write-ahead log in."""
        self._db.close()

    def _check(self) -> None:
        """Look for damage in the file's structure; rows with values nobody knows are `quarantine`'s business."""
        found = [row[0] for row in self._db.execute("PRAGMA quick_check(100)")]
        damage = [text for text in found if text != "ok" and not _ROW_DAMAGE.match(text)]
        if damage:
            raise damaged_state(self._path, damage[0].replace("\n", " "))

    def _migrate(self) -> None:
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        for number, script in enumerate(MIGRATIONS[version:], version + 1):
            self._db.executescript(f"BEGIN IMMEDIATE;{script}PRAGMA user_version={number};COMMIT;")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all that is done inside, or none of it. Inside another transaction it is part of that one.

        Raises:
            StorageFailed: it couldn't be written; nothing has changed.
        """
        if self._in_transaction:
            yield
            return
        self._in_transaction = True
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except sqlite3.Error as problem:
            damaged = _code(problem) in _DAMAGE_CODES - {sqlite3.SQLITE_ERROR}
            hint = "it is damaged: start substratd again, which says what to do" if damaged else "is the disk full?"
            raise StorageFailed(f"the state in {self._path} can't be written: {problem}; {hint}") from problem
        finally:
            self._in_transaction = False
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    @property
    def connection(self) -> sqlite3.Connection:
        """The database itself, for `quarantine`, which has to read what can't be read."""
        return self._db


def unusable(path: str, problem: Exception) -> StateUnusable:
    """Return the failure that an error of SQLite's, or of a row that makes no sense, is."""
    if isinstance(problem, IsADirectoryError) or os.path.isdir(path) or _code(problem) in _DAMAGE_CODES:
        return damaged_state(path, str(problem))
    return StateUnusable(f"the state in {path} can't be used ({problem}); restore it or move it away")


def _code(problem: Exception) -> int | None:
    """Return SQLite's primary error code, if it is an error of SQLite's own."""
    code = getattr(problem, "sqlite_errorcode", None)
    return code & 0xFF if code is not None else None


def damaged_state(path: str, what: str) -> StateDamaged:
    """Return the failure that a damaged database is, with the command that begins anew."""
    state = shlex.quote(os.path.dirname(path))
    return StateDamaged(
        f"the state in {path} is damaged ({what}); restore it, or begin anew with "
        f"`substratd --set-aside-damaged-state --state-dir {state}`, which keeps it in {state}/damaged"
    )


def _needs_check(path: str) -> bool:
    """Say whether a database's structure is looked at: a big one costs seconds, so only after a daemon that died."""
    try:
        return os.path.getsize(path) <= _QUICKLY_CHECKED or os.path.exists(path + "-wal")
    except FileNotFoundError:
        return False


def _refuse_a_strange_log(path: str) -> None:
    """Notice a log that SQLite would take for an empty one, and with it the commits in it, without a word.

    Zeros are what a power failure can leave, which may take the last commits back anyway.
    """
    try:
        with open(path + "-wal", "rb") as file:
            head = file.read(_WAL_HEADER)
    except FileNotFoundError:
        return
    if any(head) and (len(head) < _WAL_HEADER or not head.startswith(_WAL_MAGIC)):
        raise damaged_state(path, "the log beside it, substrat.db-wal, isn't one")


def _refuse_newer(path: str) -> None:
    """Look at the schema's version without writing a byte, because a newer one must stay as it is.

    SQLite makes files beside a database even for reading, unless it is told that nobody writes to it; that is only true
    where no log is waiting to be read, and what it makes beside a log is removed again.
    """
    if not os.path.exists(path):
        return
    beside = [path + suffix for suffix in ("-wal", "-shm")]
    before = [os.path.exists(name) for name in beside]
    how = "mode=ro" if before[0] else "mode=ro&immutable=1"
    db = sqlite3.connect(f"file:{quote(path)}?{how}", uri=True)
    try:
        version = db.execute("PRAGMA user_version").fetchone()[0]
    finally:
        db.close()
        for name, was_there in zip(beside, before, strict=True):
            if not was_there:
                with suppress(FileNotFoundError):
                    os.unlink(name)
    if version > SCHEMA_VERSION:
        raise StateUnusable(
            f"the state in {path} was written by a newer Substrat (schema {version}, this one knows "
            f"{SCHEMA_VERSION}); use that version, nothing was changed"
        )
