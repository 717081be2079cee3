"""Opens, checks and migrates the SQLite file of the state, and writes to it in transactions; `store` has the queries.

Everything runs on the daemon's own thread: a commit takes some 15 µs here against 300 µs through a thread, and a change
without an await in the middle needs no lock. The journal is WAL with `synchronous=NORMAL`: a commit survives every death
of the daemon; a power failure can take the last commits back (sqlite.org/pragma.html#pragma_synchronous).
"""

from __future__ import annotations

import errno
import os
import shlex
import sqlite3
import stat
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from substrat.daemon.state import backup, quickcheck
from substrat.daemon.state import reserve as reserves
from substrat.daemon.state.columns import MAX_NUMBER
from substrat.daemon.state.layout import copy_of
from substrat.daemon.state.reserve import Reserve
from substrat.daemon.state.rows import TABLES
from substrat.daemon.state.schema import FIRST_COMMITS, MIGRATIONS, SCHEMA_VERSION
from substrat.errors import StateUnusable, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from substrat.daemon.state.tables import Table

R = TypeVar("R")

_QUICKLY_CHECKED = 256 * 1024 * 1024
"""Bytes; looking at as many takes some 0.2 s."""
_DAMAGE_CODES = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_SOUND, _UNCHECKED, _DAMAGED = 0, 1, 2
"""The `application_id` of a database: it is sound as far as is known, a check is due, or one has found damage."""
_APPLICATION_ID = slice(68, 72)
"""The bytes of the file that hold it (sqlite.org/fileformat.html)."""


class StateDamaged(StateUnusable):
    """The database isn't one, or its structure is broken; `--set-aside-damaged-state` goes back to its copy."""


class Database:
    """The database of one state directory.

    Args:
        path: the file; made when it isn't there.
        reserve: how many bytes on disk are kept for urgent transactions.
        without_index: keep the index of SQLite's log in memory, so that opening needs no room on a full disk; no
            other process can read the database then (sqlite.org/wal.html, "Use of WAL Without Shared-Memory").
        may_be_new: whether a file with nothing in it is a new one, and no damaged one.
        puts_off: whether the check of a big one's events is left to `soundness.check`.

    Raises:
        StateUnusable: the file is no database of ours, is damaged, or was written by a newer version.
    """

    def __init__(
        self,
        path: str,
        reserve: int = 0,
        *,
        without_index: bool = False,
        may_be_new: bool = True,
        puts_off: bool = False,
    ) -> None:
        self.path = path
        self._in_transaction = False
        self.reserve: Reserve | None = None
        """Room for urgent transactions on a full disk; None: none is kept."""
        self.is_unchecked = False
        """Whether the check of the events was put off."""
        try:
            if not without_index:
                _refuse_newer(path)
            unchecked = bytes_to_check(path)
            if reserve:
                reserves.take_over(path)
            # SQLite gives the mode of this file to those it makes beside it.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._db = sqlite3.connect(path, isolation_level=None)
        except (sqlite3.Error, OSError) as problem:
            raise unusable(path, problem) from None
        try:
            if without_index:
                self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
                _refuse_version(path, self._db.execute("PRAGMA user_version").fetchone()[0])
            # Bytes that aren't UTF-8 become lone surrogates, which `rows` finds; otherwise whole queries would fail.
            self._db.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            if unchecked:
                self._check(puts_off=puts_off and unchecked > _QUICKLY_CHECKED)
            self._migrate(may_be_new=may_be_new)
            self._check_numbers()
            if reserve:
                self.reserve = Reserve(path, reserve, has_index=not without_index)
        except (sqlite3.Error, OSError) as problem:
            self._db.close()
            raise unusable(path, problem) from None
        except StateUnusable:
            self._db.close()
            raise

    def close(self) -> None:
        """Close the database; the last writer folds the write-ahead log in."""
        self._db.close()
        if self.reserve is not None:
            self.reserve.close()

    def _check(self, *, puts_off: bool) -> None:
        """Look for damage in the file's structure; `quarantine` looks for unknown values in rows.

        No check is put off after one that has found damage, nor before a migration, which rewrites events.
        """
        ids = (self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
        state, version = ids
        puts_off = puts_off and state != _DAMAGED and version == SCHEMA_VERSION
        if (damage := next(quickcheck.damage(self._db, "events" if puts_off else None), None)) is not None:
            raise damaged_state(self.path, damage.replace("\n", " "))
        self.is_unchecked = puts_off
        self._note(_UNCHECKED if puts_off else _SOUND)

    def note_checked(self, *, is_damaged: bool) -> None:
        """Note the outcome of the check that was put off."""
        self.is_unchecked = False
        self._note(_DAMAGED if is_damaged else _SOUND)

    def _note(self, state: int) -> None:
        """Note a state in the file; where there is no room for that, the next start checks again."""
        with suppress(sqlite3.Error):
            if self._db.execute("PRAGMA application_id").fetchone()[0] != state:
                self._db.execute(f"PRAGMA application_id={state}")

    def _check_numbers(self) -> None:
        """Refuse a database in which no number follows the last one given to a row (sqlite.org/autoinc.html)."""
        impossible = "SELECT name FROM sqlite_sequence WHERE typeof(seq) <> 'integer' OR seq NOT BETWEEN 0 AND ?"
        if (found := self._db.execute(impossible, (MAX_NUMBER,)).fetchone()) is not None:
            raise damaged_state(self.path, f"the number that was last given in the table {found[0]} is none")

    def _migrate(self, *, may_be_new: bool) -> None:
        """Bring the schema up to this version, all of it or nothing, and check that it has the columns of `rows`."""
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if not version and not may_be_new:
            raise damaged_state(self.path, "nothing is in it, and there are files of agents")
        missing = self._missing_columns()
        if version == SCHEMA_VERSION and not missing:
            return
        self._db.execute("BEGIN IMMEDIATE")
        try:
            if version and {("agents", "attempts"), ("agents", "retry_at")} <= missing:
                self._run(FIRST_COMMITS)
            for script in MIGRATIONS[version:]:
                self._run(script)
            if missing := self._missing_columns():
                table, column = min(missing)
                raise damaged_state(self.path, f"schema {version} has no column {table}.{column}; nothing was changed")
            self._db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
            self._db.execute("COMMIT")
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def _run(self, script: str) -> None:
        """Run a script inside the transaction; `executescript` would commit that first."""
        statement = ""
        for part in script.strip().removesuffix(";").split(";"):
            statement += f"{part};"
            if sqlite3.complete_statement(statement):
                self._db.execute(statement)
                statement = ""

    def _missing_columns(self) -> set[tuple[str, str]]:
        """Return the tables and columns that `rows` describes and the file doesn't have."""
        there = self._db.execute(
            "SELECT tables.name, columns.name FROM sqlite_schema AS tables, pragma_table_info(tables.name) AS columns "
            "WHERE tables.type = 'table'"
        )
        return {(table.name, column) for table in TABLES for column in table.names} - set(there)

    @contextmanager
    def transaction(self, *, urgent: bool = False) -> Iterator[None]:
        """Commit all that is done inside, or none of it. Inside another transaction it is part of that one.

        Args:
            urgent: whether it may use the reserve, and so succeeds on a full disk.

        Raises:
            StorageFailed: it couldn't be written; nothing has changed.
        """
        if self._in_transaction:
            yield
            return
        if not urgent and self.reserve is not None and not self.reserve.keep():
            raise StorageFailed(
                f"the state in {self.path} can't be written: the disk is full but for the reserve that stops turns; "
                "make room"
            )
        self._in_transaction = True
        try:
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")
        except sqlite3.Error as problem:
            damaged = _code(problem) in _DAMAGE_CODES - {sqlite3.SQLITE_ERROR}
            hint = "it is damaged: start substratd again, which says what to do" if damaged else "is the disk full?"
            raise StorageFailed(f"the state in {self.path} can't be written: {problem}; {hint}") from problem
        finally:
            self._in_transaction = False
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def _value(self, query: str, *values: object) -> Any | None:
        """Return the first value of a query's first row; None: there is no row."""
        row = self._db.execute(query, values).fetchone()
        return row[0] if row is not None else None

    def _all(self, table: Table[R], which: str, *values: object) -> list[R]:
        """Load those rows of a table that a clause such as `WHERE id = ?` selects."""
        return table.read_all(self._db.execute(f"{table.select} {which}", values).fetchall())

    @property
    def size(self) -> int:
        """The bytes of the file and of SQLite's log beside it."""
        size = 0
        for name in (self.path, f"{self.path}-wal"):
            with suppress(FileNotFoundError):
                size += os.path.getsize(name)
        return size

    @property
    def connection(self) -> sqlite3.Connection:
        """The database itself, for `quarantine`, which must read damaged rows."""
        return self._db


def unusable(path: str, problem: Exception) -> StateUnusable:
    """Return the failure that an error of SQLite's, or of a row that makes no sense, is."""
    if isinstance(problem, IsADirectoryError) or os.path.isdir(path) or _code(problem) in _DAMAGE_CODES:
        return damaged_state(path, str(problem))
    if _code(problem) == sqlite3.SQLITE_FULL or getattr(problem, "errno", None) in {errno.ENOSPC, errno.EDQUOT}:
        return StateUnusable(
            f"the state in {path} can't be opened because the disk is full: make room, nothing was changed"
        )
    return StateUnusable(f"the state in {path} can't be used ({problem}); restore it or move it away")


def _code(problem: Exception) -> int | None:
    """Return SQLite's primary error code, if it is an error of SQLite's own."""
    code = getattr(problem, "sqlite_errorcode", None)
    return code & 0xFF if code is not None else None


def damaged_state(path: str, what: str) -> StateDamaged:
    """Return the failure that a damaged database is, with the command that goes back to its copy or begins anew."""
    state, copied = shlex.quote(os.path.dirname(path)), backup.time_of(path)
    goal = f"go back to the copy of {copied}, {copy_of(path)}," if copied is not None else "begin anew"
    return StateDamaged(
        f"the state in {path} is damaged ({what}); restore it, or {goal} with "
        f"`substratd --set-aside-damaged-state --state-dir {state}`, which keeps it in {state}/damaged"
    )


def bytes_to_check(path: str) -> int:
    """Return how much opening a database reads to check it; a big one costs seconds, so most starts read nothing.

    The file of SQLite's log, which a daemon that stops takes away, tells that the last one died. A check that is due, or
    has found damage, is noted in the database itself.
    """
    real = os.path.realpath(path)
    try:
        found = os.stat(real)
        if not stat.S_ISREG(found.st_mode):  # a FIFO would hold the daemon up
            return 0
        with open(real, "rb") as file:
            state = file.read(_APPLICATION_ID.stop)[_APPLICATION_ID]
    except OSError:  # what it means is said when it is opened
        return 0
    return found.st_size if found.st_size <= _QUICKLY_CHECKED or any(state) or os.path.exists(real + "-wal") else 0


def _refuse_newer(path: str) -> None:
    """Look at the schema's version without writing a byte, because a newer one must stay as it is.

    SQLite makes files beside a database even for reading, unless it is told that no process writes to it; that is only
    true where no log is waiting to be read, and files that it makes beside a log are removed again.
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
    _refuse_version(path, version)


def _refuse_version(path: str, version: int) -> None:
    if version > SCHEMA_VERSION:
        raise StateUnusable(
            f"the state in {path} was written by a newer Substrat (schema {version}, this one knows "
            f"{SCHEMA_VERSION}); use that version, nothing was changed"
        )
