"""Damaged files and records are told and set aside; one agent's damage stops neither the daemon nor the others."""

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


def held_and_killed(house, before=""):
    """Two agents with running turns, and a daemon that was killed meanwhile; returns the workspace and anna's turn."""
    house.start()
    work = house.workspace()
    house.held("anna", work, before=before)
    house.held("bert", work)
    directory = house.agents_directory(house.show("anna")) / "turns" / "1"
    house.kill()
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
def test_a_turns_damage_is_its_own(house, until, ended):
    """Each of several turns is damaged in another way; all of them end, and another agent's as if nothing were."""
    house.start(config="[turns]\nmax_running = 20\n")
    work = house.workspace()
    names = {f"agent-{number}": kind for number, kind in enumerate(DAMAGE)}
    for name in (*names, "bert"):
        house.held(name, work, before="/say before\n")
    directories = {name: house.agents_directory(house.show(name)) / "turns" / "1" for name in names}
    house.kill()
    if ended:
        house.kill_sandboxed()
    for name, kind in names.items():
        DAMAGE[kind](directories[name])
    house.start()
    (work / "go").touch()
    others = house.wait("bert")
    assert others["turn"]["outcome"] in ({"lost", "error", "success"} if ended else {"success"})
    for name, kind in names.items():
        agent = house.wait(name)
        assert agent["turn"]["outcome"] in {"lost", "error", "success"}, kind
        assert agent["turn"]["error"] or agent["turn"]["outcome"] == "success", kind
        if not (kind == "status is garbage" and not ended):  # its running sandbox writes more to it
            place = directories[name].parent.parent
            assert any(str(place) in event["text"] for event in house.events(name, "state:damaged")), kind
            kept = {entry.name for entry in (house.state / "damaged").iterdir()}
            assert "gone" in kind or any(agent["id"] in entry for entry in kept), (kind, kept)
    until(lambda: not house.sandboxed(), "the end of all sandboxes")
    # They go on with a new turn, and a further daemon has nothing to say.
    for name, kind in names.items():
        house.ok("resume", name, "/say again", "--wait")
        assert house.show(name)["turn"]["outcome"] == "success", kind
    house.stop()
    house.start()
    assert {agent["name"]: agent["state"] for agent in house.ok("ls")} == {
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
def test_a_damaged_note_for_the_next_daemon_stops_nobody(house):
    """Each of several running turns has another of its notes damaged; the daemon starts, and all of them end well.

    `tests/daemon/turns/test_damage.py` tries every damage with every note.
    """
    damages = dict(zip(NOTES, itertools.cycle(NOTE_DAMAGE), strict=False))
    house.start()
    work = house.workspace(git=True)
    house.spawn("bert", house.workspace("other"), "/say hello")
    turns = {
        name: house.agents_directory(house.held(name, work, "--network", "filtered")) / "turns" / "1" for name in NOTES
    }
    house.kill()
    for name, directory in turns.items():
        (directory / name).unlink(missing_ok=True)
        NOTE_DAMAGE[damages[name]](directory / name)
    house.start()
    done = house.ctl("send", "bert", "/say fine", "--wait", "--timeout", "30")
    assert done.out.strip() == "fine", (done, house.log)
    (work / "go").touch()
    for name, directory in turns.items():
        assert house.wait(name)["turn"]["result"] == "freed", name
        (event,) = house.events(name, "state:damaged")
        assert f"{directory / name} " in event["text"]
        assert f"{house.state}/damaged" in event["text"]
    assert "Traceback" not in house.log
    for name in NOTES:
        house.ok("send", name, "/say again")
    for name in NOTES:
        assert house.wait(name)["turn"]["result"] == "again", name


def test_output_that_was_cut_is_told(house, until):
    work, directory = held_and_killed(house, before="/say before\n")
    other = house.agents_directory(house.start().held("carl", work, before="/say before\n")) / "turns" / "1"
    house.kill()
    os.truncate(directory / "stdout", 0)
    os.truncate(other / "stdout", 10)
    house.start()
    (work / "go").touch()
    assert house.wait("bert")["turn"]["result"] == "freed"
    for name, size in (("anna", 0), ("carl", 10)):
        house.wait(name)
        (event,) = house.events(name, "turn:output-truncated")
        assert f"to {size} bytes" in event["text"]


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
def test_an_agent_whose_records_are_damaged_is_set_aside(house, until):
    house.start(config="[turns]\nmax_running = 20\n")
    work = house.workspace()
    names = [f"agent-{number}" for number in range(len(ROWS))]
    for name in (*names, "bert"):
        house.held(name, work)
    directories = [house.agents_directory(house.show(name)) for name in names]
    house.kill()
    db = sqlite3.connect(house.state / "substrat.db")
    for name, command in zip(names, ROWS, strict=True):
        assert db.execute(command.format(name)).rowcount == 1, command
    db.commit()
    db.close()
    house.start()
    (work / "go").touch()
    assert house.wait("bert")["turn"]["result"] == "freed"
    assert [agent["name"] for agent in house.ok("ls")] == ["bert"]
    told = [line for line in house.log.splitlines() if "agent set aside" in line]
    for name, command in zip(names, ROWS, strict=True):
        assert any(name in line for line in told), command
    until(lambda: not house.sandboxed(), "the end of their sandboxes, which no daemon looks after")
    with house.wire() as wire:
        assert wire.call("daemon.status")["damaged"] == len(ROWS)
    assert f"{len(ROWS)} more were set aside" in house.ctl("doctor").out
    assert all((directory / "turns" / "1").exists() for directory in directories)
    house.spawn(names[0], work, "another of that name")
    house.stop()
    house.start()
    assert "agent set aside" not in house.log
    with house.wire() as wire:
        assert wire.call("daemon.status")["damaged"] == len(ROWS)


SINGLE = """
INSERT INTO mount_points VALUES ('here');
INSERT INTO removed_agents VALUES ('../..');
INSERT INTO reminders (agent, due, text) VALUES ('x', -1, CAST(x'ff' AS TEXT));
INSERT INTO items (agent, kind, sender, sender_name, text, time) VALUES (NULL, 'letter', 'x', 'x', 'x', 1.0);
UPDATE events SET kind = CAST(x'ff41' AS TEXT), time = 1e300 WHERE cursor = (SELECT min(cursor) FROM events);
"""


def test_damaged_rows_of_no_agent_are_set_aside_alone(house):
    house.start()
    work = house.workspace()
    house.spawn("anna", work, "/say hello")
    house.stop()
    db = sqlite3.connect(house.state / "substrat.db")
    db.executescript(SINGLE)
    db.close()
    house.start()
    assert house.ok("inbox") == []
    first, *rest = house.ctl("events", "--json").lines
    assert first["text"] == "[this event's record is damaged]"
    assert rest
    house.ok("send", "anna", "/say again", "--wait")
    assert [agent["name"] for agent in house.ok("ls")] == ["anna"]
    assert house.state.exists()
    assert house.log.count("agent set aside") + house.log.count("row set aside") == 4
    assert "Traceback" not in house.log


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


def test_a_damaged_database_is_refused_until_a_person_says_so(house):
    house.start()
    work = house.workspace()
    session = house.spawn("anna", work, "/say remember me")["session_id"]
    house.stop()
    path, sound = house.state / "substrat.db", house.directory / "sound"
    house.start(arguments=["--set-aside-damaged-state"])
    assert [agent["name"] for agent in house.ok("ls")] == ["anna"], "it does nothing to a sound database"
    assert not (house.state / "damaged").exists()
    house.stop()
    shutil.copyfile(path, sound)
    for kind, damage in DATABASES.items():
        shutil.copyfile(sound, path)
        damage(path)
        before = path.read_bytes() if path.is_file() else None
        code, said = house.refused()
        assert (code, len(said.splitlines())) == (1, 1), (kind, said)
        assert f"`substratd --set-aside-damaged-state --state-dir {house.state}`" in said, kind
        assert (path.read_bytes() if path.is_file() else None) == before, kind
        assert not (house.state / "damaged").exists(), kind
        house.start(arguments=["--set-aside-damaged-state"])
        assert house.ok("ls") == [], kind
        (kept,) = (house.state / "damaged").iterdir()
        assert "substrat.db" in {entry.name for entry in kept.iterdir()}, kind
        if before is not None:
            assert (kept / "substrat.db").read_bytes() == before, kind
        for word in ("anna", session, str(work)):
            assert word in house.log, kind
        house.stop()
        shutil.rmtree(house.state / "damaged")
    # Its files tell enough to go on with the chat.
    house.start()
    house.ok("spawn", "anna", "-w", work, "--adopt", session)
    done = house.ctl("send", "anna", "/recall", "--wait", "--json")
    assert "remember me" in done.out


def test_a_damaged_database_is_gone_back_from_to_its_copy(house):
    house.start()
    work = house.workspace()
    for name in ("anna", "removed"):
        house.spawn(name, work, "/say remember me")
    house.held("busy", work)
    backup.make(str(house.state / "substrat.db"))
    (work / "go").touch()
    house.wait("busy")
    house.ok("end", "removed")
    house.ok("rm", "removed")
    session = house.spawn("bert", work, "/say I am newer")["session_id"]
    house.ok("send", "anna", "/say a second turn", "--wait")
    cursor = house.ctl("events", "--json").lines[-1]["cursor"]
    house.stop()
    scribble(house.state / "substrat.db")
    _, said = house.refused()
    assert f"go back to the copy of {time.strftime('%Y-%m-%d', time.gmtime())}" in said
    assert f", {house.state}/backup/substrat.db, with `substratd --set-aside-damaged-state" in said
    house.start(arguments=["--set-aside-damaged-state"])
    assert sorted(agent["name"] for agent in house.ok("ls")) == ["anna", "busy", "removed"]
    assert house.wait("busy")["turn"]["result"] == "freed"
    # An agent and a turn that came after the copy are told.
    assert f"substratctl spawn bert -w {work} --adopt {session}" in house.log
    (event,) = house.events("anna", "state:damaged")
    assert "a turn 2 that isn't in the records" in event["text"]
    assert event["cursor"] > cursor
    house.stop()
    house.start()
    house.ok("send", "anna", "/recall", "--wait")
    assert "remember me" in house.show("anna")["turn"]["result"]
    assert house.ctl("send", "removed", "/say still works", "--wait").out == "still works\n"


def test_the_option_does_nothing_to_a_newer_database(house):
    house.start()
    house.stop()
    path = house.state / "substrat.db"
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    db.close()
    before = path.read_bytes()
    code, said = house.refused(arguments=["--set-aside-damaged-state"])
    assert (code, "newer" in said) == (1, True)
    assert path.read_bytes() == before
    assert not [entry.name for entry in house.state.iterdir() if entry.name.startswith("substrat.db-")]
