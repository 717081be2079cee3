"""`substratctl` with a real daemon; `tests/cli` has the verbs and `tests/protocol` the methods."""

import json
import re
import uuid

import pytest

AGENT = [
    "id", "name", "state", "session_id", "workspace", "program", "model", "network", "parent", "created_at", "unread",
    "turn", "attention", "reason", "family", "priority", "status", "activity", "clone", "check", "budget", "waits",
    "last", "tokens",
]  # fmt: skip
TURN = ["id", "number", "outcome", "started_at", "ended_at", "exit_code", "result", "usage", "error"]
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


@pytest.fixture
def running(shared):
    """One for all of these tests, started anew after those that stop it."""
    return shared


def test_an_agent_without_a_prompt_is_idle_and_has_no_turn(running):
    work = running.workspace()
    agent = running.spawn("anna", work)
    assert list(agent) == AGENT
    assert agent == {
        "id": str(uuid.UUID(agent["id"])), "name": "anna", "state": "idle", "session_id": None, "workspace": str(work),
        "program": "cursor", "model": agent["model"], "network": "filtered", "parent": None,
        "created_at": agent["created_at"], "unread": 0,
        "turn": None, "attention": agent["attention"], "reason": None, "family": agent["id"],
        "priority": "normal", "status": None, "activity": None, "clone": None, "check": None, "budget": None, "waits": 0,
        "last": None,
        "tokens": {"input": 0, "output": 0},
    }  # fmt: skip
    assert agent["attention"] == {
        "kind": "idle", "level": "info", "text": "has nothing to do", "since": agent["created_at"],
    }  # fmt: skip
    assert TIME.fullmatch(agent["created_at"])
    assert running.show("anna") == {**agent, "time_limit": 0, "silence_limit": 900}
    assert running.show(agent["id"]) == running.show("anna")
    assert running.ok("ls") == [agent]


def test_wait_passes_the_verdict_on(running):
    work = running.workspace()
    done = running.ctl("spawn", "good", "-w", work, "--wait", "fine")
    assert (done.code, done.out.strip(), done.err) == (0, "fine", "")
    done = running.ctl("spawn", "bad", "-w", work, "--wait", "/exit 3")
    assert done.code == 5
    assert "bad" in done.error
    agent = running.show("bad")
    assert (agent["state"], agent["turn"]["outcome"], agent["turn"]["exit_code"]) == ("failed", "error", 3)
    assert agent["turn"]["error"]
    done = running.ctl("spawn", "zero", "-w", work, "--wait", "/exit 0")
    assert done.code == 5, "no result is a failure whatever the exit code"
    assert running.ctl("send", "good", "--wait", "/exit 1").code == 5
    # A failed agent takes another prompt, and is well again.
    assert running.ctl("send", "bad", "--wait", "again").code == 0
    assert running.show("bad")["state"] == "idle"
    done = running.ctl("send", "good", "--wait", "--json", "/exit 7")
    assert (done.code, list(done.json), list(done.json["turn"])) == (5, AGENT, TURN)
    assert done.json["turn"]["exit_code"] == 7


def test_following_shows_events_as_they_happen(running, until):
    work = running.workspace()
    agent = running.held("anna", work)
    follower = running.follow("logs", "anna", "-f", "--json", "--since", "0")
    kinds = []
    while "tool-call-started" not in kinds:
        kinds.append(json.loads(follower.stdout.readline())["kind"])
    assert agent["turn"]["outcome"] is None
    (work / "go").touch()
    while "turn:ended" not in kinds:
        kinds.append(json.loads(follower.stdout.readline())["kind"])
    running.ok("end", "anna")
    assert follower.wait(20) == 0, "-f goes on until the agent is ended"
    follower.stdout.close()
    follower.stderr.close()


def test_rm_forgets_the_agent_and_its_files(running):
    work = running.workspace()
    agent = running.spawn("anna", work, "hello")
    chat = running.chat(agent)
    assert running.agents_directory(agent).is_dir()
    assert (running.runtime / "agents" / agent["id"]).exists()
    done = running.ctl("rm", "anna", "--json")
    assert done.code == 0
    assert running.ok("ls") == []
    assert not running.agents_directory(agent).exists()
    assert not (running.runtime / "agents" / agent["id"]).exists()
    assert chat.is_dir(), "the chat is the user's"
    assert work.is_dir()
    left = [event for event in running.ctl("events", "--json", "--since", "0").lines if event["turn"] or event["raw"]]
    assert left == [], "nothing of what it did"
    assert running.ctl("logs", "anna").code == 4
    again = running.spawn("anna", work)
    assert again["id"] != agent["id"]
    assert again["session_id"] is None
