"""Reads the user's chats in `~/.cursor/chats` while cursor-agent may be writing them; it never writes to them.

A chat may have been written by a hostile agent: no link is followed, and no query runs for long.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from substrat.core import chatstore
from substrat.core.chatstore import ChatDamaged, Description, Message
from substrat.core.cursor import chats_folder, is_session_id

if TYPE_CHECKING:
    from collections.abc import Iterator

_QUERY_SECONDS = 2.0
_MAX_MESSAGES = 20_000
_MAX_BLOB = 16 * 1024 * 1024


class Chat(NamedTuple):
    """One chat on disk.

    Args:
        session: its UUID.
        title: what cursor-agent calls it.
        model: the model last used.
        created_at: seconds since the epoch, None when unknown.
        updated_at: when its store last changed.
        size: its bytes on disk.
        damage: what is wrong with it, None when nothing is.
    """

    session: str
    title: str
    model: str | None
    created_at: float | None
    updated_at: float
    size: int
    damage: str | None


def folder(home: str, workspace: str) -> str:
    """Return where a workspace's chats are."""
    return os.path.join(home, ".cursor", "chats", chats_folder(workspace))


def list_chats(home: str, workspace: str) -> list[Chat]:
    """List a workspace's chats, the newest first; a damaged one is listed with what is wrong.

    Args:
        home: the user's home directory.
        workspace: the workspace's physical path.
    """
    where = folder(home, workspace)
    try:
        names = os.listdir(where)
    except FileNotFoundError:
        return []
    found = [_chat(os.path.join(where, name), name) for name in names if is_session_id(name)]
    return sorted((chat for chat in found if chat is not None), key=lambda chat: -chat.updated_at)


def read_chat(home: str, workspace: str, session: str) -> tuple[Description, list[Message]]:
    """Read a chat's messages.

    Raises:
        FileNotFoundError: there is no such chat.
        ChatDamaged: it can't be read.
    """
    path = os.path.join(folder(home, workspace), session, "store.db")
    if not is_session_id(session) or not _is_plain(path):
        raise FileNotFoundError(path)
    with _opened(path) as db:
        described = _describe(db)
        if described.root is None:
            return described, []
        ids = chatstore.message_ids(_blob(db, described.root))[:_MAX_MESSAGES]
        messages = [chatstore.read_message(_blob(db, blob_id)) for blob_id in ids]
    return described, [message for message in messages if message is not None and message.role != "system"]


def _chat(directory: str, session: str) -> Chat | None:
    path = os.path.join(directory, "store.db")
    if not _is_plain(path):
        return None
    files = [path, f"{path}-wal"]
    stats = [os.lstat(file) for file in files if os.path.lexists(file)]
    updated, size = max(found.st_mtime for found in stats), sum(found.st_size for found in stats)
    try:
        with _opened(path) as db:
            described = _describe(db)
    except ChatDamaged as problem:
        return Chat(session, "", None, None, updated, size, str(problem))
    created = described.created_ms / 1000 if described.created_ms is not None else None
    return Chat(session, described.title, described.model, created, updated, size, None)


def _is_plain(path: str) -> bool:
    """Say whether a chat's directory and store are what they seem, not links."""
    try:
        return stat.S_ISDIR(os.lstat(os.path.dirname(path)).st_mode) and stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


@contextmanager
def _opened(path: str) -> Iterator[sqlite3.Connection]:
    """Open a store for reading, as one that may be written meanwhile and that nobody vouches for."""
    directory = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        db = sqlite3.connect(f"file:/proc/self/fd/{directory}/{os.path.basename(path)}?mode=ro", uri=True, timeout=1.0)
        try:
            deadline = time.monotonic() + _QUERY_SECONDS
            # A view in the place of a table could run for ever.
            db.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
            db.execute("PRAGMA trusted_schema=OFF")
            yield db
        finally:
            db.close()
    except sqlite3.Error as problem:
        raise ChatDamaged(f"its store can't be read: {problem}") from None
    finally:
        os.close(directory)


def _describe(db: sqlite3.Connection) -> Description:
    row = db.execute("SELECT value FROM meta WHERE key = '0' AND length(value) < ?", (_MAX_BLOB,)).fetchone()
    if row is None or not isinstance(row[0], str):
        raise ChatDamaged("it has no description")
    return chatstore.describe(row[0])


def _blob(db: sqlite3.Connection, blob_id: str) -> bytes:
    row = db.execute("SELECT data FROM blobs WHERE id = ? AND length(data) < ?", (blob_id, _MAX_BLOB)).fetchone()
    if row is None or not isinstance(row[0], bytes):
        raise ChatDamaged(f"a part of it is missing: {blob_id[:16]}")
    return row[0]
