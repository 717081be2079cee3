"""Reading the user's chats: in a sandbox, while they are written, damaged or hostile, and without a trace."""

import json
import os
import sqlite3
import subprocess
import sys
import uuid
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from sandbox import host
from substrat.core.programs.cursor.command_line import chats_folder
from substrat.daemon.chats.reader import Chats
from substrat.errors import SandboxFailed, SessionDamaged, SessionMissing
from tests.support.files_here import FilesHere

WORKSPACE = "/work space/ü"


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / ".cursor" / "chats" / chats_folder(WORKSPACE)
    path.mkdir(parents=True)
    return path


@pytest.fixture
def chats(tmp_path, bubblewrap):
    async def find():
        return bubblewrap

    async def system_mounts():
        return host.system_mounts()

    unreadable = SimpleNamespace(system_mounts=system_mounts)
    preparer = SimpleNamespace(machine=SimpleNamespace(find_bubblewrap=find), unreadable=unreadable)
    user = SimpleNamespace(home=str(tmp_path), place=lambda path: str(tmp_path / path))
    sandboxes: Any = SimpleNamespace(user=user, preparer=preparer)
    sessions: Any = SimpleNamespace(own_chats=lambda _workspace: {})
    return Chats(FilesHere(), sandboxes, sessions)


def listed(chats):
    return trio.run(chats.list_all, WORKSPACE)


def read(chats, session, after=0):
    return trio.run(chats.read, WORKSPACE, session, after)


def make_chat(folder, *messages, session=None, title="A chat"):
    """Write a chat as cursor-agent does; returns its directory and the open database."""
    directory = folder / (session or str(uuid.uuid4()))
    directory.mkdir()
    db = sqlite3.connect(directory / "store.db", isolation_level=None)
    db.executescript(
        "PRAGMA journal_mode=WAL; CREATE TABLE blobs (id TEXT PRIMARY KEY, data BLOB);"
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT);"
    )
    root = b""
    for role, text in messages:
        data = json.dumps({"role": role, "content": [{"type": "text", "text": text}]}).encode()
        digest = sha256(data).digest()
        db.execute("INSERT OR IGNORE INTO blobs VALUES (?, ?)", (digest.hex(), data))
        root += b"\x0a\x20" + digest
    db.execute("INSERT INTO blobs VALUES (?, ?)", (sha256(root).hexdigest(), root))
    meta = {"latestRootBlobId": sha256(root).hexdigest(), "name": title, "lastUsedModel": "gpt", "createdAt": 1000}
    db.execute("INSERT INTO meta VALUES ('0', ?)", (json.dumps(meta).encode().hex(),))
    return directory, db


def snapshot(folder):
    """Every file with its bytes and its time."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_chats_are_listed_newest_first(chats, folder):
    assert listed(chats) == []
    for number, title in enumerate(("old", "new")):
        directory, db = make_chat(folder, ("user", "hi"), title=title)
        db.close()
        os.utime(directory / "store.db", (number, number))
    (folder / "no-uuid").mkdir()
    (folder / "file").write_text("x")
    found = listed(chats)
    assert [(chat.title, chat.model, chat.created_ms, chat.damage) for chat in found] == [
        ("new", "gpt", 1000, None),
        ("old", "gpt", 1000, None),
    ]
    assert all(chat.size == os.path.getsize(folder / chat.session / "store.db") for chat in found)


def test_a_workspace_without_chats_has_none(chats):
    assert listed(chats) == []


def test_messages_come_in_pages(chats, folder):
    many = [("user", f"message {number} " + "x" * 300_000) for number in range(20)]
    directory, db = make_chat(folder, ("system", "secret"), *many)
    db.close()
    after, texts = 0, []
    while page := read(chats, directory.name, after)[1]:
        texts += [message.text.split(" x")[0] for message in page]
        after = page[-1].number
    assert texts == [f"message {number}" for number in range(20)]


def test_reading_leaves_no_trace(chats, folder):
    directory, db = make_chat(folder, ("user", "hi"))
    db.close()
    before = snapshot(folder)
    assert len(before) == 1
    listed(chats)
    read(chats, directory.name)
    assert snapshot(folder) == before


def test_a_chat_is_read_while_it_is_written(chats, folder):
    """What stands only in the write-ahead log is read too."""
    directory, db = make_chat(folder, ("user", "hi"))
    try:
        assert (directory / "store.db-wal").stat().st_size > 0
        (chat,) = listed(chats)
        assert (chat.title, chat.damage) == ("A chat", None)
        assert [message.text for message in read(chats, directory.name)[1]] == ["hi"]
        before = snapshot(folder)
        listed(chats)
        assert snapshot(folder) == before
    finally:
        db.close()


def test_a_chat_whose_writer_was_killed_is_read(chats, folder):
    source = (
        "import json, os, sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "meta = json.loads(bytes.fromhex(db.execute('SELECT value FROM meta').fetchone()[0]))\n"
        "meta['name'] = 'changed'\n"
        "db.execute('UPDATE meta SET value = ?', (json.dumps(meta).encode().hex(),))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    directory, db = make_chat(folder, ("user", "hi"))
    db.close()
    subprocess.run([sys.executable, "-c", source, directory / "store.db"], check=False)
    before = snapshot(folder)
    assert (chat := listed(chats)[0]).title == "changed", chat
    assert snapshot(folder) == before


def spoil_header(path):
    path.write_bytes(b"not a database" * 100)


def spoil_middle(path):
    data = bytearray(path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    path.write_bytes(data)


def cut(path):
    path.write_bytes(path.read_bytes()[:5000])


def empty(path):
    path.write_bytes(b"")


def endless_view(path):
    path.unlink()
    db = sqlite3.connect(path)
    db.executescript(
        "CREATE VIEW meta AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
        "SELECT '1' AS key, i AS value FROM n; CREATE TABLE blobs (id TEXT, data BLOB);"
    )
    db.close()


@pytest.mark.parametrize("spoil", [spoil_header, spoil_middle, cut, empty])
def test_a_damaged_store_is_reported_and_never_touched(chats, folder, spoil):
    directory, db = make_chat(folder, ("user", "hi"))
    db.close()
    _, other = make_chat(folder, ("user", "hi"), title="whole")
    other.close()
    spoil(directory / "store.db")
    before = snapshot(folder)
    found = {chat.session: chat for chat in listed(chats)}
    assert len(found) == 2
    assert found.pop(directory.name).damage
    (whole,) = found.values()
    assert (whole.title, whole.damage) == ("whole", None)
    with pytest.raises(SessionDamaged, match="nothing was changed"):
        read(chats, directory.name)
    assert snapshot(folder) == before


def test_a_part_that_is_missing_ends_the_messages(chats, folder):
    directory, db = make_chat(folder, ("user", "one"), ("assistant", "two"))
    data = json.dumps({"role": "assistant", "content": [{"type": "text", "text": "two"}]}).encode()
    db.execute("DELETE FROM blobs WHERE id = ?", (sha256(data).hexdigest(),))
    db.close()
    head, messages = read(chats, directory.name)
    assert [message.text for message in messages] == ["one"]
    assert "missing" in head.damage


def test_a_hostile_store_costs_its_reader_and_nobody_else(chats, folder):
    directory, db = make_chat(folder, ("user", "hi"))
    db.close()
    endless_view(directory / "store.db")
    with pytest.raises((SandboxFailed, SessionDamaged)):
        read(chats, directory.name)


def test_links_are_not_followed(chats, folder, tmp_path):
    elsewhere, db = make_chat(tmp_path, ("user", "secret"))
    db.close()
    (folder / str(uuid.uuid4())).symlink_to(elsewhere)
    linked = folder / str(uuid.uuid4())
    linked.mkdir()
    (linked / "store.db").symlink_to(elsewhere / "store.db")
    assert listed(chats) == []
    with pytest.raises((SessionMissing, SessionDamaged)):
        read(chats, linked.name)


@pytest.mark.parametrize("session", ["../../../etc", "x", str(uuid.UUID(int=5))])
def test_a_chat_that_is_not_there(chats, folder, session):
    assert folder.is_dir()
    with pytest.raises(SessionMissing, match="substratctl sessions"):
        read(chats, session)
