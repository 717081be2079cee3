"""Reads cursor-agent's chats and prints them as JSON lines; run by the daemon in a sandbox that sees nothing else.

A chat may be written by cursor-agent meanwhile, and may have been made by an agent that means harm. It runs with any
Python the system has, so it imports next to nothing, and it never writes:
`substrat.core.programs.cursor.chat_store` decodes the rows, `substrat.daemon.chats.reader` runs this program.

Usage: `list FOLDER…` prints a line for each chat, `read FOLDER SESSION AFTER` a head and then the messages after a number.
"""

from __future__ import annotations

import json
import os
import resource
import sqlite3
import stat
import sys
from contextlib import contextmanager
from urllib.parse import quote

from substrat.core.programs.cursor import chat_store
from substrat.core.programs.cursor.chat_store import ChatDamaged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MAX_PREAMBLE = 10
"""Messages among which the first prompt is looked for: cursor-agent's own messages stand before it."""
_MAX_CHATS = 2000
_MAX_BLOB = 16 * 1024 * 1024
_MAX_TEXT = 256 * 1024
_PAGE_BYTES = 2 * 1024 * 1024
_CPU_SECONDS = 8
_MEMORY = 1 << 30


def main(line: Sequence[str]) -> int:
    """Perform the command line; returns the exit status."""
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    found = _chats(line[1:]) if line[0] == "list" else _messages(os.path.join(line[1], line[2]), int(line[3]))
    for item in found:
        sys.stdout.write(json.dumps(item) + "\n")
    return 0


def _chats(folders: Sequence[str]) -> Iterator[dict[str, object]]:
    """Describe every chat of some folders, the first folder's first, the newest first."""
    for folder in folders:
        yield from _chats_of(folder)


def _chats_of(folder: str) -> Iterator[dict[str, object]]:
    found = []
    for name in os.listdir(folder):
        path = os.path.join(folder, name, "store.db")
        if _is_plain(path):
            found.append((max(os.lstat(file).st_mtime for file in _files(path)), name, path))
    for updated, name, path in sorted(found, reverse=True)[:_MAX_CHATS]:
        chat: dict[str, object] = {"session": name, "updated_at": updated}
        chat["size"] = sum(os.lstat(file).st_size for file in _files(path))
        try:
            chat.update(_description(path))
        except ChatDamaged as problem:
            chat["damage"] = str(problem)
        yield chat


def _messages(directory: str, after: int) -> Iterator[dict[str, object]]:
    """Read a chat's head and a page of its messages."""
    path = os.path.join(directory, "store.db")
    try:
        with _opened(path) as db:
            described = _describe(db)
            yield {"title": _title(db, described), "model": described.model, "created_ms": described.created_ms}
            if described.root is None:
                return
            size = 0
            ids = chat_store.message_ids(_blob(db, described.root))
            for number, blob_id in enumerate(ids[after:], after + 1):
                message = chat_store.read_message(_blob(db, blob_id))
                if message is None or message.role == "system":
                    continue
                text, calls = _shortened(message.text), [_shortened(call) for call in message.calls]
                yield {"number": number, "role": message.role, "text": text, "calls": calls}
                size += len(text) + sum(map(len, calls))
                if size > _PAGE_BYTES:
                    return
    except ChatDamaged as problem:
        yield {"damage": str(problem)}


def _description(path: str) -> dict[str, object]:
    with _opened(path) as db:
        described = _describe(db)
        title = _title(db, described)
    return {"title": title, "model": described.model, "created_ms": described.created_ms}


def _title(db: sqlite3.Connection, described: chat_store.Description) -> str:
    """Return a chat's title; its first prompt where cursor-agent has given it none, as in all that it ran unattended."""
    if described.title not in chat_store.NO_TITLES or described.root is None:
        return described.title
    try:
        for blob_id in chat_store.message_ids(_blob(db, described.root))[:_MAX_PREAMBLE]:
            message = chat_store.read_message(_blob(db, blob_id))
            if message is not None and message.role == "user" and message.text.strip():
                return chat_store.title_of(message.text)
    except ChatDamaged:
        return described.title  # damage further in is told when the chat is read
    return described.title


def _files(path: str) -> list[str]:
    return [file for file in (path, path + "-wal") if os.path.lexists(file)]


def _is_plain(path: str) -> bool:
    """Say whether a chat's directory and store are a directory and a file, not links."""
    try:
        return stat.S_ISDIR(os.lstat(os.path.dirname(path)).st_mode) and stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


@contextmanager
def _opened(path: str) -> Iterator[sqlite3.Connection]:
    """Open a store for reading, as one that may be written meanwhile and may be hostile.

    Without a write-ahead log no process has it open, and SQLite would have to make one to read it: then it's read as a file
    that doesn't change (sqlite.org/wal.html, "Read-Only Databases").
    """
    try:
        is_live = os.lstat(path + "-wal").st_size > 0 or os.path.lexists(path + "-shm")
    except OSError:
        is_live = False
    how = "mode=ro" if is_live else "mode=ro&immutable=1"
    try:
        db = sqlite3.connect(f"file:{quote(path)}?{how}", uri=True, timeout=1.0)
        try:
            db.execute("PRAGMA trusted_schema=OFF")
            yield db
        finally:
            db.close()
    except sqlite3.Error as problem:
        raise ChatDamaged(f"its store can't be read: {problem}") from None
    except MemoryError:
        raise ChatDamaged("reading it takes too much memory") from None


def _describe(db: sqlite3.Connection) -> chat_store.Description:
    row = db.execute("SELECT value FROM meta WHERE key = '0' AND length(value) < ?", (_MAX_BLOB,)).fetchone()
    if row is None or not isinstance(row[0], str):
        raise ChatDamaged("it has no description")
    return chat_store.describe(row[0])


def _blob(db: sqlite3.Connection, blob_id: str) -> bytes:
    row = db.execute("SELECT data FROM blobs WHERE id = ? AND length(data) < ?", (blob_id, _MAX_BLOB)).fetchone()
    if row is None or not isinstance(row[0], bytes):
        raise ChatDamaged(f"a part of it is missing: {blob_id[:16]}")
    return row[0]


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}… [cut: {len(text)} characters]"
