"""Damaged files and records are told and set aside; one agent's damage stops neither the daemon nor the others."""

import contextlib
import itertools
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from substrat.daemon.state import backup
from substrat.daemon.state.schema import SCHEMA_VERSION
from tests.support.waiting import PATIENCE


def held_and_killed(daemon, before=""):
    """Two agents with running turns, and a daemon that was killed meanwhile; returns the workspace and anna's turn."""
    daemon.start()
    work = daemon.workspace()
    daemon.held("anna", work, before=before)
    daemon.held("bert", work)
    directory = daemon.agents_directory(daemon.show("anna")) / "turns" / "1"
    daemon.kill()
    return work, directory


def replaced_by_a_directory(path):
    path.unlink()
    (path / "inside").mkdir(parents=True)


def damage_status(directory):
    (directory / "status").write_bytes(b"\0\xff" * 500)


def replaced_by_a_file(directory):
    shutil.rmtree(directory)
    directory.write_text("x")


def replaced_by_a_pipe(path):
    path.unlink()
    os.mkfifo(path)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "status is garbage": damage_status,
    "status is a directory": lambda turn: replaced_by_a_directory(turn / "status"),
    "status is gone": lambda turn: (turn / "status").unlink(),
    "the directory is gone": shutil.rmtree,
    "the directory is a file": replaced_by_a_file,
    "the turns are gone": lambda turn: shutil.rmtree(turn.parent),
    "the agent's directory is a file": lambda turn: replaced_by_a_file(turn.parent.parent),
    "stdout is gone": lambda turn: (turn / "stdout").unlink(),
    "stdout is a directory": lambda turn: replaced_by_a_directory(turn / "stdout"),
    "stderr is a pipe": lambda turn: replaced_by_a_pipe(turn / "stderr"),
    "the prompt is a directory": lambda turn: replaced_by_a_directory(turn / "prompt"),
    "everything is a directory": lambda turn: [
        replaced_by_a_directory(turn / name) for name in ("prompt", "stdout", "stderr", "status")
    ],
}


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("ended", [False, True], ids=["running", "ended"])
def test_a_turns_damage_is_its_own(daemon, until, ended):
    """Each of several turns is damaged in another way; all of them end, and another agent's as if nothing were."""
    daemon.start(config="[turns]\nmax_running = 20\n")
    work = daemon.workspace()
    names = {f"agent-{number}": kind for number, kind in enumerate(DAMAGE)}
    for name in (*names, "bert"):
        daemon.held(name, work, before="/say before\n")
    directories = {name: daemon.agents_directory(daemon.show(name)) / "turns" / "1" for name in names}
    daemon.kill()
    if ended:
        daemon.kill_sandboxed()
    for name, kind in names.items():
        DAMAGE[kind](directories[name])
    daemon.start()
    (work / "go").touch()
    others = daemon.wait("bert")
    assert others["turn"]["outcome"] in ({"lost", "error", "success"} if ended else {"success"})
    for name, kind in names.items():
        agent = daemon.wait(name)
        assert agent["turn"]["outcome"] in {"lost", "error", "success"}, kind
        assert agent["turn"]["error"] or agent["turn"]["outcome"] == "success", kind
        if not (kind == "status is garbage" and not ended):  # its running sandbox writes more to it
            place = directories[name].parent.parent
            assert any(str(place) in event["text"] for event in daemon.events(name, "state:damaged")), kind
            kept = {entry.name for entry in (daemon.state / "damaged").iterdir()}
            assert "gone" in kind or any(agent["id"] in entry for entry in kept), (kind, kept)
    until(lambda: not daemon.sandboxed(), "the end of all sandboxes")
    # They go on with a new turn, and a further daemon has nothing to say.
    for name, kind in names.items():
        daemon.ok("resume", name, "/say again", "--wait")
        assert daemon.show(name)["turn"]["outcome"] == "success", kind
    daemon.stop()
    daemon.start()
    assert {agent["name"]: agent["state"] for agent in daemon.ok("ls")} == {
        **dict.fromkeys(names, "idle"), "bert": others["state"]
    }  # fmt: skip


def huge(path):
    path.write_bytes(b"[" * 1000)
    os.truncate(path, 40 << 30)


NOTES = ("guard", "names", "form", "id")
"""Notes of a daemon in a turn's directory for the next daemon."""
NOTE_DAMAGE: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "huge": huge,
    "garbage": lambda path: path.write_bytes(b"\0\xff[{" * 100),
    "a directory": lambda path: (path / "inside").mkdir(parents=True),
    "a device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_damaged_note_for_the_next_daemon_stops_nobody(daemon):
    """Each of several running turns has another of its notes damaged; the daemon starts, and all of them end well.

    `tests/daemon/turns/test_damage.py` tries every damage with every note.
    """
    damages = dict(zip(NOTES, itertools.cycle(NOTE_DAMAGE), strict=False))
    daemon.start()
    work = daemon.workspace(git=True)
    daemon.spawn("bert", daemon.workspace("other"), "/say hello")
    turns = {
        name: daemon.agents_directory(daemon.held(name, work, "--network", "filtered")) / "turns" / "1" for name in NOTES
    }
    daemon.kill()
    for name, directory in turns.items():
        (directory / name).unlink(missing_ok=True)
        NOTE_DAMAGE[damages[name]](directory / name)
    daemon.start()
    done = daemon.ctl("send", "bert", "/say fine", "--wait", "--timeout", "30")
    assert done.out.strip() == "fine", (done, daemon.log)
    (work / "go").touch()
    for name, directory in turns.items():
        assert daemon.wait(name)["turn"]["result"] == "freed", name
        (event,) = daemon.events(name, "state:damaged")
        assert f"{directory / name} " in event["text"]
        assert f"{daemon.state}/damaged" in event["text"]
    assert "Traceback" not in daemon.log
    for name in NOTES:
        daemon.ok("send", name, "/say again")
    for name in NOTES:
        assert daemon.wait(name)["turn"]["result"] == "again", name


def test_output_that_was_cut_is_told(daemon, until):
    work, directory = held_and_killed(daemon, before="/say before\n")
    other = daemon.agents_directory(daemon.start().held("carl", work, before="/say before\n")) / "turns" / "1"
    daemon.kill()
    os.truncate(directory / "stdout", 0)
    os.truncate(other / "stdout", 10)
    daemon.start()
    for name, size in (("anna", 0), ("carl", 10)):
        until(lambda name=name: daemon.events(name, "turn:output-truncated"), "the cut")
        (event,) = daemon.events(name, "turn:output-truncated")
        assert f"to {size} bytes" in event["text"]
    (work / "go").touch()
    assert daemon.wait("bert")["turn"]["result"] == "freed"


ROWS = [
    "UPDATE agents SET phase = 'asleep' WHERE name = '{0}'",
    "UPDATE turns SET usage = '{{oops' WHERE agent = (SELECT id FROM agents WHERE name = '{0}')",
    "UPDATE turns SET number = -7 WHERE agent = (SELECT id FROM agents WHERE name = '{0}')",
    "UPDATE items SET kind = 'letter' WHERE agent = (SELECT id FROM agents WHERE name = '{0}')",
    "UPDATE agents SET allow = '[1]' WHERE name = '{0}'",
    "UPDATE agents SET binds = '[[]]' WHERE name = '{0}'",
    "UPDATE items SET id = 9223372036854775807 WHERE agent = (SELECT id FROM agents WHERE name = '{0}')",
]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_an_agent_whose_records_are_damaged_is_set_aside(daemon, until):
    daemon.start(config="[turns]\nmax_running = 20\n")
    work = daemon.workspace()
    names = [f"agent-{number}" for number in range(len(ROWS))]
    for name in (*names, "bert"):
        daemon.held(name, work)
    directories = [daemon.agents_directory(daemon.show(name)) for name in names]
    daemon.kill()
    db = sqlite3.connect(daemon.state / "substrat.db")
    for name, command in zip(names, ROWS, strict=True):
        assert db.execute(command.format(name)).rowcount == 1, command
    db.commit()
    db.close()
    daemon.start()
    (work / "go").touch()
    assert daemon.wait("bert")["turn"]["result"] == "freed"
    assert [agent["name"] for agent in daemon.ok("ls")] == ["bert"]
    told = [line for line in daemon.log.splitlines() if "agent set aside" in line]
    for name, command in zip(names, ROWS, strict=True):
        assert any(name in line for line in told), command
    until(lambda: not daemon.sandboxed(), "the end of their sandboxes, which no daemon looks after")
    with daemon.wire() as wire:
        assert wire.call("daemon.status")["damaged"] == len(ROWS)
    assert f"{len(ROWS)} more were set aside" in daemon.ctl("doctor").out
    assert all((directory / "turns" / "1").exists() for directory in directories)
    daemon.spawn(names[0], work, "another of that name")
    daemon.stop()
    daemon.start()
    assert "agent set aside" not in daemon.log
    with daemon.wire() as wire:
        assert wire.call("daemon.status")["damaged"] == len(ROWS)


SINGLE = """
INSERT INTO mount_points VALUES ('here');
INSERT INTO removed_agents (id) VALUES ('../..');
INSERT INTO reminders (agent, due, text) VALUES ('x', -1, CAST(x'ff' AS TEXT));
INSERT INTO items (agent, kind, sender, sender_name, text, time) VALUES (NULL, 'letter', 'x', 'x', 'x', 1.0);
UPDATE events SET kind = CAST(x'ff41' AS TEXT), time = 1e300 WHERE cursor = (SELECT min(cursor) FROM events);
"""


def test_damaged_rows_of_no_agent_are_set_aside_alone(daemon):
    daemon.start()
    work = daemon.workspace()
    daemon.spawn("anna", work, "/say hello")
    daemon.stop()
    db = sqlite3.connect(daemon.state / "substrat.db")
    db.executescript(SINGLE)
    db.close()
    daemon.start()
    assert daemon.ok("inbox") == []
    first, *rest = daemon.ctl("events", "--json").lines
    assert first["text"] == "[this event's record is damaged]"
    assert rest
    daemon.ok("send", "anna", "/say again", "--wait")
    assert [agent["name"] for agent in daemon.ok("ls")] == ["anna"]
    assert daemon.state.exists()
    assert daemon.log.count("agent set aside") + daemon.log.count("row set aside") == 4
    assert "Traceback" not in daemon.log


def cut(path):
    os.truncate(path, path.stat().st_size // 2)


def scribble(path):
    data = bytearray(path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    path.write_bytes(data)


DATABASES = {
    "garbage": lambda path: path.write_bytes(b"this is no database" * 100),
    "garbage header": lambda path: path.write_bytes(b"\xff" * 100 + path.read_bytes()[100:]),
    "cut": cut,
    "empty": lambda path: os.truncate(path, 0),
    "scribbled over": scribble,
    "a directory": replaced_by_a_directory,
}


def test_a_damaged_database_is_refused_until_a_person_says_so(daemon):
    daemon.start()
    work = daemon.workspace()
    session = daemon.spawn("anna", work, "/say remember me")["session_id"]
    daemon.stop()
    path, sound = daemon.state / "substrat.db", daemon.directory / "sound"
    daemon.start(arguments=["--set-aside-damaged-state"])
    assert [agent["name"] for agent in daemon.ok("ls")] == ["anna"], "it does nothing to a sound database"
    assert not (daemon.state / "damaged").exists()
    daemon.stop()
    shutil.copyfile(path, sound)
    for kind, damage in DATABASES.items():
        shutil.copyfile(sound, path)
        damage(path)
        before = path.read_bytes() if path.is_file() else None
        code, said = daemon.refused()
        assert (code, len(said.splitlines())) == (1, 1), (kind, said)
        assert f"`substratd --set-aside-damaged-state --state-dir {daemon.state}`" in said, kind
        assert (path.read_bytes() if path.is_file() else None) == before, kind
        assert not (daemon.state / "damaged").exists(), kind
        daemon.start(arguments=["--set-aside-damaged-state"])
        assert daemon.ok("ls") == [], kind
        (kept,) = (daemon.state / "damaged").iterdir()
        assert "substrat.db" in {entry.name for entry in kept.iterdir()}, kind
        if before is not None:
            assert (kept / "substrat.db").read_bytes() == before, kind
        for word in ("anna", session, str(work)):
            assert word in daemon.log, kind
        daemon.stop()
        shutil.rmtree(daemon.state / "damaged")
    # Its files tell enough to go on with the chat.
    daemon.start()
    daemon.ok("spawn", "anna", "-w", work, "--adopt", session)
    done = daemon.ctl("send", "anna", "/recall", "--wait", "--json")
    assert "remember me" in done.out


def test_damaged_events_of_a_big_database_stop_the_daemon_that_has_begun_and_refuse_the_next(daemon):
    """The daemon before was killed; the check of so many events is made once the new one is ready."""
    daemon.start()
    work = daemon.workspace()
    daemon.spawn("anna", work, "/say hi")
    daemon.stop()
    path = daemon.state / "substrat.db"
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        add = "INSERT INTO events (agent, time, kind, text) VALUES ('a', 0, 'assistant', ?)"
        db.executemany(add, [("x" * (1 << 20),)] * 270)
        (page,) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'events_of_agent'").fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096 + 8)
        file.write(b"\xff" * 8)
    Path(f"{path}-wal").touch()
    process = daemon.launch()
    assert process.wait(PATIENCE) == 1
    said = process.log.read_text()
    assert said.index("ready") < said.index("database checked") < said.index("`substratd --set-aside-damaged-state")
    code, said = daemon.refused()
    assert (code, len(said.splitlines())) == (1, 1), said
    daemon.start(arguments=["--set-aside-damaged-state"])
    assert daemon.ok("ls") == []


def test_a_damaged_database_is_gone_back_from_to_its_copy(daemon):
    daemon.start()
    work = daemon.workspace()
    for name in ("anna", "removed"):
        daemon.spawn(name, work, "/say remember me")
    daemon.held("busy", work)
    backup.make(str(daemon.state / "substrat.db"))
    (work / "go").touch()
    daemon.wait("busy")
    daemon.ok("end", "removed")
    daemon.ok("rm", "removed")
    session = daemon.spawn("bert", work, "/say I am newer")["session_id"]
    daemon.ok("send", "anna", "/say a second turn", "--wait")
    cursor = daemon.ctl("events", "--json").lines[-1]["cursor"]
    daemon.stop()
    scribble(daemon.state / "substrat.db")
    _, said = daemon.refused()
    assert f"go back to the copy of {time.strftime('%Y-%m-%d', time.gmtime())}" in said
    assert f", {daemon.state}/backup/substrat.db, with `substratd --set-aside-damaged-state" in said
    daemon.start(arguments=["--set-aside-damaged-state"])
    assert sorted(agent["name"] for agent in daemon.ok("ls")) == ["anna", "busy", "removed"]
    assert daemon.wait("busy")["turn"]["result"] == "freed"
    # An agent and a turn that came after the copy are told.
    assert f"substratctl spawn bert -w {work} --adopt {session}" in daemon.log
    (event,) = daemon.events("anna", "state:damaged")
    assert "a turn 2 that isn't in the records" in event["text"]
    assert event["cursor"] > cursor
    daemon.stop()
    daemon.start()
    daemon.ok("send", "anna", "/recall", "--wait")
    assert "remember me" in daemon.show("anna")["turn"]["result"]
    assert daemon.ctl("send", "removed", "/say still works", "--wait").out == "still works\n"


def test_the_option_does_nothing_to_a_newer_database(daemon):
    daemon.start()
    daemon.stop()
    path = daemon.state / "substrat.db"
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    db.close()
    before = path.read_bytes()
    code, said = daemon.refused(arguments=["--set-aside-damaged-state"])
    assert (code, "newer" in said) == (1, True), said
    assert path.read_bytes() == before
    assert not [entry.name for entry in daemon.state.iterdir() if entry.name.startswith("substrat.db-")]
