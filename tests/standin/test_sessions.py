"""Chats: resuming, remembering, ownership and what is on disk."""

import hashlib
import json
import os
import signal
import sqlite3
import uuid

import pytest

from substrat.standin.errors import StopHandler, StopSignal
from substrat.standin.store import OpenChat


def test_recall_counts_the_earlier_turns(standin):
    first = standin.run("/recall\n/say one")
    session = first.result["session_id"]
    assert first.text == "I remember 0 earlier turns.\none"
    second = standin.run("/recall", "--resume", session)
    assert second.text == "I remember 1 earlier turn:\n1. /recall ⏎ /say one"
    third = standin.run("/recall", f"--resume={session}")
    assert third.text == "I remember 2 earlier turns:\n1. /recall ⏎ /say one\n2. /recall"
    assert third.result["usage"]["cacheReadTokens"] > 0


def test_an_unknown_uuid_begins_an_empty_chat_under_it(standin):
    session = str(uuid.uuid4())
    outcome = standin.run("/recall", "--resume", session)
    assert outcome.result["session_id"] == session
    assert outcome.text == "I remember 0 earlier turns."


def test_another_workspace_has_no_such_chat(standin, tmp_path):
    session = standin.run("hello").result["session_id"]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    outcome = standin.run("/recall", "--resume", session, "--workspace", f"{elsewhere}/")
    assert outcome.text == "I remember 0 earlier turns."
    assert outcome.lines[0]["cwd"] == str(elsewhere)


def test_the_workspace_is_physical(standin, tmp_path):
    (tmp_path / "link").symlink_to(standin.workspace)
    outcome = standin.run("x", "--workspace", str(tmp_path / "link"), cwd="/")
    assert outcome.lines[0]["cwd"] == str(standin.workspace)
    assert standin.chats[0].parent.name == hashlib.md5(str(standin.workspace).encode()).hexdigest()


def test_a_second_process_on_a_chat_fails(standin):
    running = standin.start("/sleep 1000")
    session = running.read_until("system")["session_id"]
    second = standin.run("x", "--resume", session)
    assert (second.code, second.stdout) == (1, b"")
    assert f"Chat {session} may still be running" in second.stderr
    assert standin.run("x").code == 0, "another chat is free"
    running.signal(signal.SIGKILL)
    assert standin.run("x", "--resume", session).code == 0, "the claim died with its process"


def test_the_database_is_cursors(standin):
    outcome = standin.run("/say answer", "--name", "my chat")
    (chat,) = standin.chats
    assert sorted(os.listdir(chat)) == ["meta.json", "store.db"]
    database = sqlite3.connect(f"file:{chat}/store.db?mode=ro", uri=True)
    try:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert database.execute("PRAGMA user_version").fetchone() == (1,)
        ((key, value),) = database.execute("SELECT key, value FROM meta").fetchall()
        blobs = dict(database.execute("SELECT id, data FROM blobs"))
    finally:
        database.close()
    meta = json.loads(bytes.fromhex(value))
    assert key == "0"
    assert meta["agentId"] == chat.name == outcome.result["session_id"]
    assert (meta["name"], meta["mode"], meta["lastUsedModel"]) == ("my chat", "default", "auto")
    assert all(hashlib.sha256(data).hexdigest() == blob_id for blob_id, data in blobs.items())
    root = blobs[meta["latestRootBlobId"]]
    messages = [json.loads(blobs[root[at + 2 : at + 34].hex()]) for at in (0, 34)]
    assert root[:2] == root[34:36] == b"\x0a\x20"
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert "<user_query>\n/say answer\n</user_query>" in messages[0]["content"][0]["text"]
    assert json.loads((chat / "meta.json").read_text())["hasConversation"] is True


def test_the_turn_is_stored_before_its_result_is_out(standin):
    running = standin.start("hello\n/hang")
    session = running.read_until("result")["session_id"]
    running.signal(signal.SIGKILL)
    assert standin.run("/recall", "--resume", session).text == "I remember 1 earlier turn:\n1. hello ⏎ /hang"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_turn_is_not_kept(standin, number):
    session = standin.run("kept").result["session_id"]
    running = standin.start("lost\n/sleep 1000", "--resume", session)
    running.read_until("user")
    running.signal(number)
    assert standin.run("/recall", "--resume", session).text == "I remember 1 earlier turn:\n1. kept"


def test_a_stop_while_the_database_is_made_leaves_no_half_made_chat(tmp_path):
    chat = OpenChat(str(tmp_path / "chat"), "/workspace")
    (tmp_path / "chat" / "store.db").write_bytes(b"")
    chat.close()
    assert list(tmp_path.iterdir()) == []


def test_a_stop_before_the_database_is_read_keeps_what_was_there(tmp_path):
    (tmp_path / "chat").mkdir()
    (tmp_path / "chat" / "store.db").write_bytes(b"somebody's")
    OpenChat(str(tmp_path / "chat"), "/workspace").close()
    assert (tmp_path / "chat" / "store.db").read_bytes() == b"somebody's"


def test_a_stop_that_a_callback_swallowed_ends_the_next_wait(monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    stop = StopHandler()
    stop.check()
    with pytest.raises(StopSignal):
        stop(signal.SIGTERM, None)
    with pytest.raises(StopSignal):
        stop.check()


def test_an_empty_chat_is_deleted_on_an_orderly_exit_only(standin, until):
    for number in (signal.SIGINT, signal.SIGTERM):
        running = standin.start("/sleep 1000")
        running.read_until("user")
        running.signal(number)
        assert standin.chats == []
    running = standin.start("/shell touch here\n/sleep 1000")
    running.read_until("tool_call", "completed")
    running.signal(signal.SIGKILL)
    (chat,) = standin.chats
    assert (chat / "store.db").exists()
    assert standin.run("/recall", "--resume", chat.name).text == "I remember 0 earlier turns."


def test_a_damaged_database_is_refused_and_left_alone(standin):
    session = standin.run("hello").result["session_id"]
    (chat,) = standin.chats
    (chat / "store.db").write_bytes(b"this is no database" * 100)
    outcome = standin.run("x", "--resume", session)
    assert outcome.code == 1
    assert str(chat) in outcome.stderr
    assert outcome.of("result") == []
    assert (chat / "store.db").read_bytes().startswith(b"this is no database")


def test_a_lost_record_is_an_error(standin):
    session = standin.run("hello").result["session_id"]
    (chat,) = standin.chats
    database = sqlite3.connect(chat / "store.db")
    database.execute("DELETE FROM blobs")
    database.commit()
    database.close()
    outcome = standin.run("/recall", "--resume", session)
    assert outcome.code == 1
    assert "cannot read the chat" in outcome.stderr


def test_the_model_is_remembered(standin):
    standin.run("x", "--model", "opus-4.8")
    config = json.loads((standin.home / ".cursor" / "cli-config.json").read_text())
    assert config["model"]["modelId"] == "opus-4.8"
    assert config["permissions"] == {"allow": ["Shell(ls)"], "deny": []}
    assert standin.run("x").lines[0]["model"] == "Opus 4.8"
    assert [path.name for path in (standin.home / ".cursor").iterdir() if "tmp" in path.name] == []


def test_config_and_data_directories_follow_the_environment(standin, tmp_path):
    standin.environ["CURSOR_DATA_DIR"] = str(tmp_path / "data")
    standin.environ["XDG_CONFIG_HOME"] = str(tmp_path / "xdg")
    standin.run("x", "--model", "auto")
    assert (tmp_path / "xdg" / "cursor" / "cli-config.json").exists()
    assert (tmp_path / "data" / "projects").exists()
    standin.environ["CURSOR_CONFIG_DIR"] = str(tmp_path / "config")
    standin.run("x", "--data-dir", str(tmp_path / "other"))
    assert list((tmp_path / "config" / "chats").glob("*/*/store.db"))
    assert (tmp_path / "other" / "projects").exists()
    assert not (standin.home / ".cursor").exists()


def test_the_project_folder(standin):
    standin.run("hello")
    project = standin.project
    assert project.name == "".join(c if c.isalnum() else "-" for c in str(standin.workspace)).strip("-")
    trust = json.loads((project / ".workspace-trusted").read_text())
    assert sorted(trust) == ["trustMethod", "trustedAt", "workspacePath"]


def test_a_data_directory_that_cannot_be_written_is_an_error(standin):
    (standin.home / ".cursor").write_text("a file where a directory has to be")
    outcome = standin.run("x")
    assert (outcome.code, outcome.stdout) == (1, b"")
    assert "cannot write" in outcome.stderr


def test_many_at_once_share_a_home(standin):
    runs = [standin.start(f"/say {number}", "--model", "auto") for number in range(20)]
    assert [run.finish().text for run in runs] == [str(number) for number in range(20)]
    assert len(standin.chats) == 20
