"""Where chats are among the user's."""

import os
from pathlib import Path

import pytest

from sandbox.spec import Network
from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.records import Agent, AgentSettings, Session
from substrat.core.agents.rights import Policy
from substrat.core.programs.cursor.command_line import chats_folder
from substrat.daemon.sandboxes import chat_places
from substrat.daemon.state.layout import AgentDir
from substrat.errors import WorkspaceUnusable

SESSION = "0b5d7e5c-8d2f-4d6a-9a3e-5a1f0c9b7e21"


def test_a_session_is_stored_when_its_database_is_there(user):
    folder = Path(user.home, ".cursor", "chats", chats_folder("/w"))
    assert not chat_places.session_is_stored(user, "/w", SESSION)
    (folder / SESSION).mkdir(parents=True)
    assert not chat_places.session_is_stored(user, "/w", SESSION)
    (folder / SESSION / "store.db").touch()
    assert chat_places.session_is_stored(user, "/w", SESSION)
    assert not chat_places.session_is_stored(user, "/v", SESSION)


@pytest.mark.parametrize("what", ["chat", "store", "directory"])
def test_a_session_made_of_links_is_none(user, tmp_path, what):
    folder = Path(user.home, ".cursor", "chats", chats_folder("/w"))
    folder.mkdir(parents=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "store.db").touch()
    if what == "chat":
        (folder / SESSION).symlink_to(elsewhere)
    else:
        (folder / SESSION).mkdir()
        if what == "store":
            (folder / SESSION / "store.db").symlink_to(elsewhere / "store.db")
        else:
            (folder / SESSION / "store.db").mkdir()
    assert not chat_places.session_is_stored(user, "/w", SESSION)


def test_the_chats_folder_is_made_once(user):
    path = chat_places.make_chats_folder(user, "/w")
    assert path == os.path.join(user.home, ".cursor", "chats", chats_folder("/w"))
    assert os.path.isdir(path)
    assert chat_places.make_chats_folder(user, "/w") == path


@pytest.mark.parametrize("what", ["file", "dangling"])
def test_a_chats_folder_that_cannot_be_made(user, tmp_path, what):
    if what == "file":
        Path(user.home, ".cursor").touch()
    else:
        Path(user.home, ".cursor").symlink_to(tmp_path / "gone")
    with pytest.raises(WorkspaceUnusable, match=r"\.cursor"):
        chat_places.make_chats_folder(user, "/w")


def test_a_session_is_a_file_of_the_agents_own_behind_no_link(tmp_path):
    home, pattern = tmp_path / "home", "projects/*/abc.jsonl"
    assert not chat_places.has_session_file(str(home), pattern)
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "abc.jsonl").touch()
    (home / "projects" / "a").mkdir(parents=True)
    (home / "projects" / "b").symlink_to(tmp_path / "else")
    (home / "projects" / "a" / "abc.jsonl").symlink_to(tmp_path / "else" / "abc.jsonl")
    assert not chat_places.has_session_file(str(home), pattern)
    (home / "projects" / "c").mkdir()
    (home / "projects" / "c" / "abc.jsonl").touch()
    assert chat_places.has_session_file(str(home), pattern)


def test_an_agent_makes_the_search_for_its_session_no_longer_by_many_directories(tmp_path, monkeypatch):
    monkeypatch.setattr(chat_places, "_MOST_ENTRIES", 3)
    home = tmp_path / "home"
    for name in "abcdef":
        (home / "projects" / name).mkdir(parents=True)
        for number in range(2):
            (home / "projects" / name / f"{number}.jsonl").touch()
    listed, scandir = [], os.scandir

    def note(path):
        listed.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", note)
    assert not chat_places.has_session_file(str(home), "projects/*/abc.jsonl")
    assert len(listed) == 4  # two of the six directories with files


def test_no_chat_of_the_users_is_the_session_of_an_agent_whose_program_keeps_its_own(user, tmp_path):
    shared = Path(user.home, ".cursor", "chats", chats_folder("/w"), SESSION)
    shared.mkdir(parents=True)
    place = AgentDir(str(tmp_path / "a-1"), str(tmp_path / "run"))
    for program, found in (("cursor", str(shared)), ("claude", None), ("codex", None)):
        settings, session = AgentSettings(program=program), Session(SESSION, stored=True)
        agent = Agent("a-1", "bob", Phase.IDLE, "/w", "auto", Policy(Network.NONE), 0.0, session=session, settings=settings)
        assert chat_places.shared_chat(user, place, agent) == found
