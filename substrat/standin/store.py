"""A chat on disk: its ownership, its content, and adding a finished turn.

`chats/<md5 of the workspace>/<id>/store.db` has a `meta` row with the hex of a JSON object and content-addressed
`blobs`. A turn is one transaction, so an interrupted turn is not kept.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time

from substrat.standin import digests, ids, places, recorded, root, stream
from substrat.standin.errors import RefusalError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from typing import Final

    from substrat.standin.stream import Json

_SCHEMA = """
PRAGMA journal_mode=WAL;
PRAGMA synchronous=NORMAL;
PRAGMA user_version=1;
CREATE TABLE IF NOT EXISTS blobs (id TEXT PRIMARY KEY, data BLOB);
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT);
"""
_OWN_FILES = ("store.db", "store.db-wal", "store.db-shm", "meta.json")
_QUERY_OPEN, _QUERY_CLOSE = "<user_query>\n", "\n</user_query>"
_TOKEN_LIMIT = 200_000


class OpenChat:
    """One chat, held by this process until `close`.

    The claim is a lock on the chat's directory itself: it ends with the process however that dies, and no file has to
    be left for it. An unknown id is a new and empty chat.

    Args:
        directory: `chats/<md5>/<id>`; created if it does not exist.
        workspace: The physical workspace, for the records.

    Raises:
        RefusalError: Another process holds the chat, or the directory can't be made.
    """

    def __init__(self, directory: str, workspace: str) -> None:
        self.id: Final = os.path.basename(directory)
        self._directory: Final = directory
        self._workspace: Final = workspace
        self._database: sqlite3.Connection | None = None
        self._meta: Json = {}
        try:
            self._lock = self._claim()
            self._was_empty: Final = not os.listdir(directory)
        except OSError as error:
            raise RefusalError(f"Error: cannot write {directory}: {error.strerror}") from error

    def open(self, name: str, model: str) -> None:
        """Open or create the database.

        Raises:
            RefusalError: It can't be opened or is no chat's database.
        """
        import sqlite3

        try:
            self._database = sqlite3.connect(os.path.join(self._directory, "store.db"), isolation_level=None)
            self._database.executescript(_SCHEMA)
            row = self._database.execute("SELECT value FROM meta WHERE key = '0'").fetchone()
            meta: Json = json.loads(bytes.fromhex(row[0])) if row else self._first_meta(name)
            self._meta = meta | {"lastUsedModel": model}
            _save_meta(self._database, self._meta)
        except (sqlite3.Error, ValueError) as error:
            raise RefusalError(f"Error: cannot open the chat in {self._directory}: {error}") from error
        self._write_meta_file()

    def prompts(self) -> list[str]:
        """The prompts of the turns that were kept, oldest first.

        Raises:
            RefusalError: A record is damaged or lost.
        """
        import sqlite3

        try:
            messages = [json.loads(self._blob(blob_id.hex())) for blob_id in self._message_ids()]
        except (sqlite3.Error, ValueError) as error:
            raise RefusalError(f"Error: cannot read the chat in {self._directory}: {error}") from error
        users = [message for message in messages if isinstance(message, dict) and message.get("role") == "user"]
        return [_unwrap(message.get("content")) for message in users]

    def keep(self, prompt: str, parts: Sequence[Json], tokens: int) -> None:
        """Add a turn, all of it or nothing.

        Args:
            prompt: The turn's prompt.
            parts: The assistant's content.
            tokens: How many tokens the conversation takes, for the record.

        Raises:
            RefusalError: It could not be written.
        """
        import sqlite3

        database = self._connection()
        messages: list[Json] = [
            {"role": "user", "content": [{"type": "text", "text": _wrap(prompt)}]},
            {"role": "assistant", "content": list(parts), "id": ids.new_uuid()},
        ]
        try:
            database.execute("BEGIN IMMEDIATE")
            message_ids = [*self._message_ids(), *(self._add_blob(stream.encode(message)) for message in messages)]
            state = root.encode(message_ids, tokens, _TOKEN_LIMIT, "file://" + self._workspace)
            meta = self._meta | {"latestRootBlobId": self._add_blob(state).hex()}
            _save_meta(database, meta)
            database.execute("COMMIT")
        except (sqlite3.Error, ValueError) as error:
            raise RefusalError(f"Error: cannot write the chat in {self._directory}: {error}") from error
        self._meta = meta
        self._write_meta_file()

    def close(self) -> None:
        """Let go of the chat; one that holds no turn leaves nothing behind."""
        if self._database is not None:
            self._database.close()
            self._database = None
        # Without the meta row the database was not read. A database from before that can't be read is not ours to delete;
        # one that an early stop left half-made is.
        is_empty = "latestRootBlobId" not in self._meta if self._meta else self._was_empty
        if is_empty:
            self._delete()
        os.close(self._lock)

    def _claim(self) -> int:
        while True:
            os.makedirs(self._directory, exist_ok=True)
            try:
                lock = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # deleted by its last owner between the two calls
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                raise recorded.refusal("busy", chat=self.id) from None
            if _is_same(lock, self._directory):
                return lock
            os.close(lock)  # its last owner deleted it before letting go

    def _first_meta(self, name: str) -> Json:
        return {"agentId": self.id, "name": name or "New Agent", "mode": "default", "createdAt": stream.now_ms()}

    def _write_meta_file(self) -> None:
        fields = {
            "schemaVersion": 1,
            "createdAtMs": self._meta.get("createdAt"),
            "updatedAtMs": stream.now_ms(),
            "hasConversation": "latestRootBlobId" in self._meta,
            "cwd": self._workspace,
        }
        places.write_file(os.path.join(self._directory, "meta.json"), stream.encode(fields))

    def _message_ids(self) -> list[bytes]:
        latest = self._meta.get("latestRootBlobId")
        return root.message_ids(self._blob(latest)) if isinstance(latest, str) else []

    def _blob(self, blob_id: str) -> bytes:
        row = self._connection().execute("SELECT data FROM blobs WHERE id = ?", (blob_id,)).fetchone()
        if row is None:
            raise ValueError(f"the chat {self.id} has lost its blob {blob_id}")
        return bytes(row[0])

    def _add_blob(self, data: bytes) -> bytes:
        digest = digests.sha256(data)
        self._connection().execute("INSERT OR IGNORE INTO blobs (id, data) VALUES (?, ?)", (digest.hex(), data))
        return digest

    def _connection(self) -> sqlite3.Connection:
        if self._database is None:
            raise ValueError(f"the chat {self.id} is not open")
        return self._database

    def _delete(self) -> None:
        for name in _OWN_FILES:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self._directory, name))
        with contextlib.suppress(OSError):  # somebody else's file is in it: it stays
            os.rmdir(self._directory)


def _save_meta(database: sqlite3.Connection, meta: Json) -> None:
    value = stream.encode(meta).hex()
    database.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('0', ?)", (value,))


def _is_same(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _wrap(prompt: str) -> str:
    at = time.strftime("%A, %b %d, %Y, %H:%M (UTC)", time.gmtime())
    return f"<timestamp>{at}</timestamp>\n{_QUERY_OPEN}{prompt}{_QUERY_CLOSE}"


def _unwrap(content: object) -> str:
    """The prompt in a user message, which is a string or a list of text parts."""
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    text = str(content)
    _, opened, query = text.partition(_QUERY_OPEN)
    return query.removesuffix(_QUERY_CLOSE) if opened else text
