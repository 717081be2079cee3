"""Turns whose records a lost log takes back, of agents that stay: told, ended and set aside; the next one is a new one."""

import os
import sqlite3
import uuid
from pathlib import Path

from substrat.daemon import failpoints

PAGE = 4096 + 24


def log_gone(state):
    (state / "substrat.db-wal").unlink()


def log_and_index_gone(state):
    log_gone(state)
    (state / "substrat.db-shm").unlink()


def log_cut_at_a_commit(state):
    (state / "substrat.db-shm").unlink()
    os.truncate(state / "substrat.db-wal", 32 + PAGE)


def lose(daemon, until, prompt, *options):
    """Let an agent have a turn that is recorded and one whose records are lost; returns its workspace."""
    daemon.start()
    work = daemon.workspace()
    daemon.spawn("anna", work, "/say first")
    daemon.stop()
    daemon.start()
    daemon.ok("send", "anna", prompt, *options)
    if not options:
        until((work / "ready").exists, "the turn")
    daemon.kill()
    log_and_index_gone(daemon.state)
    return work


def kept(daemon):
    return [path for path in (daemon.state / "damaged").iterdir() if "turns" in path.name]


def test_a_turn_that_was_taken_back_is_told_and_its_result_is_nobodys(daemon):
    work, number = daemon.workspace(), 1
    daemon.start().spawn("anna", work, "/say first")
    for lost in (log_gone, log_and_index_gone, log_cut_at_a_commit):
        daemon.stop()
        daemon.start()
        daemon.ok("send", "anna", "/say an old answer", "--wait")
        daemon.kill()
        lost(daemon.state)
        daemon.start()
        assert daemon.show("anna")["turn"]["number"] == number, lost
        event = daemon.events("anna", "state:damaged")[-1]
        assert f"turn {number + 1}" in event["text"]
        assert "send its prompt again" in event["text"]
        (directory,) = [path for path in kept(daemon) if str(path) in event["text"]]
        assert (directory / "prompt").read_text() == "/say an old answer"
        done = daemon.ctl("send", "anna", "/shell echo new >> effect\n/say new", "--wait")
        assert (done.code, done.out.strip()) == (0, "new"), lost
        assert (work / "effect").read_text() == "new\n" * number
        assert "an old answer" not in daemon.ctl("logs", "anna").out, lost
        assert len(daemon.events("anna", "state:damaged")) == len(kept(daemon)) == number, "each is told once"
        number += 1


def test_a_turn_that_was_taken_back_and_still_runs_is_killed(daemon, until):
    work = lose(daemon, until, "/shell touch ready; while [ ! -e go ]; do sleep 0.05; done; echo old >> effect")
    assert daemon.sandboxed()
    daemon.start()
    assert not daemon.sandboxed()
    (event,) = daemon.events("anna", "state:damaged")
    assert "was still running and was killed" in event["text"]
    (work / "go").touch()
    done = daemon.ctl("send", "anna", "/say new", "--wait")
    assert (done.code, done.out.strip()) == (0, "new")
    assert not (work / "effect").exists()


def test_a_daemon_that_is_killed_while_it_tells_of_a_lost_turn_tells_it_later(daemon, until):
    lose(daemon, until, "/say an old answer", "--wait")
    for when in ("before", "after"):
        killed = daemon.launch(environment={failpoints.KILL_AT: f"{when} commit: {failpoints.LOST}"})
        until(lambda killed=killed: killed.poll() is not None, f"the kill {when} it is told")
    daemon.start()
    assert daemon.events("anna", "state:damaged")
    assert len(kept(daemon)) == 1
    assert daemon.ctl("send", "anna", "/say new", "--wait").out.strip() == "new"


def test_a_sandbox_of_an_agent_without_records_is_killed(daemon, until):
    daemon.start()
    daemon.spawn("bert", daemon.workspace("other"), "/say hello")
    daemon.held("anna", daemon.workspace())
    daemon.kill()
    db = sqlite3.connect(daemon.state / "substrat.db")
    db.execute("DELETE FROM agents WHERE name = 'anna'")
    db.commit()
    db.close()
    assert daemon.sandboxed()
    daemon.start()
    assert [agent["name"] for agent in daemon.ok("ls")] == ["bert"]
    assert "agent without records" in daemon.log
    until(lambda: not daemon.sandboxed(), "the end of its sandbox")


def test_a_running_turn_whose_directory_was_made_by_a_version_without_ids_is_taken_over(daemon, until):
    daemon.start()
    work = daemon.workspace()
    daemon.held("anna", work)
    daemon.kill()
    directory = next((daemon.state / "agents").glob("*/turns/1"))
    assert uuid.UUID((directory / "id").read_text())
    (directory / "id").unlink()
    daemon.start()
    (work / "go").touch()
    assert daemon.wait("anna")["turn"]["result"] == "freed"
    assert not daemon.events("anna", "state:damaged")


def test_a_running_turns_directory_that_another_turn_has_is_set_aside(daemon, until):
    """As after a backup of another history is put back: neither history's turn is taken for the other's."""
    daemon.start()
    work = daemon.workspace()
    daemon.held("anna", work)
    daemon.kill()
    directory = next((daemon.state / "agents").glob("*/turns/1"))
    (directory / "id").write_text(str(uuid.uuid4()))
    daemon.start()
    until(lambda: not daemon.sandboxed(), "the end of the sandbox")
    (work / "go").touch()
    agent = daemon.wait("anna")
    assert agent["turn"]["outcome"] in {"error", "lost"}
    assert any("turn 1 that isn't in the records" in event["text"] for event in daemon.events("anna", "state:damaged"))
    assert len(kept(daemon)) == 1
    assert Path(kept(daemon)[0], "prompt").exists()
    assert daemon.ctl("send", "anna", "/say new", "--wait").out.strip() == "new"
