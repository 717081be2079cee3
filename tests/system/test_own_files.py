"""The daemon's own files of a wrong kind, gone, or cut: refused or told with a sentence, never with a traceback."""

import contextlib
import os
import shutil
import socket
import sqlite3

import pytest


def directory(path):
    (path / "inside").mkdir(parents=True)


def link_to_directory(path):
    os.symlink(os.path.dirname(os.path.dirname(path)), path)


def bound_socket(path):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))


KINDS = {
    "directory": directory,
    "file": lambda path: path.write_bytes(b"x"),
    "fifo": os.mkfifo,
    "link to a directory": link_to_directory,
    "link to nothing": lambda path: os.symlink("/nonexistent/nothing", path),
    "socket": bound_socket,
    "device": lambda path: os.symlink("/dev/zero", path),
    "forbidden": lambda path: (path.mkdir(), path.chmod(0)),
}
NAMES = [
    *(f"state/{name}" for name in ("agents", "trash", "damaged", "visits", "lock")),
    *(f"state/substrat.db{suffix}" for suffix in ("", "-wal", "-shm", "-journal")),
    *(f"run/{name}" for name in ("lock", "agents", "daemon.sock")),
]


def some_kinds(number):
    """The kinds of which `make test` tries two for each name, by turns."""
    return [kind for place, kind in enumerate(KINDS) if (place - number) % 4 == 0]


def other_kinds(number):
    return KINDS.keys() - some_kinds(number)


@pytest.mark.timeout(240)  # a daemon for each kind, one after the other
@pytest.mark.parametrize("kinds", [some_kinds, pytest.param(other_kinds, marks=pytest.mark.slow)])
def test_a_wrong_kind_of_file_is_refused_with_a_sentence_or_replaced(house, until, kinds):
    """Whatever is there: the daemon starts and works, or says in one line which file is in its way."""
    house.start()
    house.spawn("anna", house.workspace(), "/say hello")
    house.stop()
    refused = {name for number, name in enumerate(NAMES) if refusals(house, until, name, kinds(number))}
    assert refused >= {name for name in NAMES if name.startswith("state/substrat.db") or name.endswith("agents")}
    house.start()
    assert house.show("anna")["turn"]["outcome"] == "success"


def refusals(house, until, name, kinds):
    """Put each kind into the place of a file; returns how many daemons refused to start."""
    parent = {"state": house.state, "run": house.runtime}[name.split("/")[0]]
    path = parent / name.split("/")[1]
    aside = parent / "kept-by-the-test"
    was_there = os.path.lexists(path)
    if was_there:
        os.rename(path, aside)
    refused = 0
    for kind in kinds:
        KINDS[kind](path)
        process = house.process = house.launch()
        until(lambda process=process: process.poll() is not None or answers(house), f"an answer or the end: {kind}, {name}")
        if process.poll() is None:
            assert [agent["name"] for agent in house.ok("ls")] == ["anna"], (name, kind)
            house.stop()
        else:
            refused += 1
            said = process.log.read_text()
            assert process.returncode == 1, (name, kind, said)
            assert len(said.splitlines()) == 1, (name, kind, said)
            assert path.name in said, (name, kind, said)
        remove(path)
    if was_there:
        os.rename(aside, path)
    return refused


def pipe_for_the_socket(door):
    door.mkdir()
    os.mkfifo(door / "agent.sock")


DOORS = {
    "file": lambda door: door.write_text("x"),
    "link": lambda door: door.symlink_to("/etc"),
    "directory for the socket": lambda door: (door / "agent.sock" / "x").mkdir(parents=True),
    "pipe for the socket": pipe_for_the_socket,
}


def test_what_is_in_the_place_of_an_agents_socket_is_named_or_replaced(house):
    house.start()
    door = house.runtime / "agents" / house.spawn("anna", house.workspace(), "/say hi")["id"]
    for kind, make in DOORS.items():
        shutil.rmtree(door, ignore_errors=True)
        make(door)
        done = house.ctl("send", "anna", "/say again", "--wait")
        assert not os.path.lexists("/etc/agent.sock")
        assert "exception" not in house.log, kind
        assert (done.code == 0) == (kind == "pipe for the socket"), kind
        if done.code:
            assert str(door) in done.err, kind
            assert "move" in done.err, kind
            remove(door)
    assert house.ctl("send", "anna", "/say again", "--wait").out == "again\n"


def answers(house):
    with contextlib.suppress(OSError), house.wire() as wire:
        return wire.call("daemon.status")
    return None


def remove(path):
    if os.path.islink(path) or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        path.chmod(0o700)
        shutil.rmtree(path)


def killed(house):
    """A daemon that was killed with one agent in the database and three in the log only; returns those three's names."""
    house.start()
    work = house.workspace()
    house.spawn("early", work, "/say I am early")
    house.stop()
    house.start()
    for name in ("anna", "bert", "carl"):
        house.spawn(name, work, f"/say I am {name}")
    house.kill()
    return ["anna", "bert", "carl"]


def flip(path, where):
    with open(path, "r+b") as file:
        file.seek(where)
        byte = file.read(1)
        file.seek(where)
        file.write(bytes([byte[0] ^ 0xFF]))


def frames(path):
    return (path.stat().st_size - 32) // (4096 + 24)


def missing(path):
    path.unlink()


def damaged_at_the_beginning(path):
    flip(path, 32 + 24 + 100)


def damaged_in_the_middle(path):
    flip(path, 32 + (frames(path) // 2) * (4096 + 24) + 24 + 100)


def cut_in_half(path):
    os.truncate(path, path.stat().st_size // 2)


def emptied(path):
    os.truncate(path, 0)


@contextlib.contextmanager
def once_more(house, copy):
    """Put the state back as it was copied; the daemon that is started meanwhile is killed."""
    shutil.rmtree(house.state)
    shutil.copytree(copy, house.state, symlinks=True)
    yield
    house.kill()


def test_agents_that_a_damaged_log_takes_back_are_told(house):
    names = killed(house)
    copy = shutil.copytree(house.state, house.directory / "copy", symlinks=True)
    for harm in (missing, cut_in_half, damaged_in_the_middle):
        with once_more(house, copy):
            harm(house.state / "substrat.db-wal")
            house.start()
            left = {agent["name"] for agent in house.ok("ls")}
            assert "early" in left
            for name in (lost := set(names) - left):
                assert f"substratctl spawn {name} " in house.log, harm
            with house.wire() as wire:
                assert wire.call("daemon.status")["damaged"] == len(lost) > 0


def test_a_log_that_held_everything_is_refused_as_a_database_that_is_gone(house):
    house.start(executed=True)  # a database that was there before would not be in the log
    house.spawn("anna", house.workspace(), "/say hello")
    house.kill()
    whole = house.state.rename(house.directory / "whole")
    for harm in (missing, emptied, damaged_at_the_beginning):
        shutil.rmtree(house.state, ignore_errors=True)
        shutil.copytree(whole, house.state)
        harm(house.state / "substrat.db-wal")
        code, said = house.refused()
        assert code == 1, harm
        assert "--set-aside-damaged-state" in said.splitlines()[-1], harm
        assert "Traceback" not in said, harm


def test_a_killed_daemons_log_is_no_damage(house):
    killed(house)
    house.start()
    assert len(house.ok("ls")) == 4
    assert "without records" not in house.log


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_database_that_is_gone_is_refused_until_a_person_says_so(house):
    killed(house)
    copy = shutil.copytree(house.state, house.directory / "copy", symlinks=True)
    for how in ("missing", "empty", "without a table"):
        for beside in ("agents", "log", "both"):
            if (how, beside) != ("without a table", "log"):  # a log of another database is none of this one's
                with once_more(house, copy):
                    check_that_a_database_that_is_gone_is_refused(house, how, beside)


def check_that_a_database_that_is_gone_is_refused(house, how, beside):
    path = house.state / "substrat.db"
    path.unlink()
    if how == "empty":
        path.touch()
    elif how == "without a table":
        sqlite3.connect(path).execute("PRAGMA journal_mode=WAL").connection.close()
    if beside == "log":
        shutil.rmtree(house.state / "agents")
    if beside == "agents":
        for suffix in ("-wal", "-shm"):
            (house.state / f"substrat.db{suffix}").unlink(missing_ok=True)
    before = sorted(entry.name for entry in house.state.iterdir())
    code, said = house.refused()
    assert code == 1
    assert "Traceback" not in said
    assert "--set-aside-damaged-state" in said
    if how != "without a table":
        assert sorted(entry.name for entry in house.state.iterdir()) == before
    house.start(arguments=["--set-aside-damaged-state"])
    assert house.ok("ls") == []
    if beside != "log":
        for name in ("anna", "bert", "carl"):
            assert name in house.log
    house.kill()
    house.start()
    assert house.ok("ls") == []


def test_each_agent_without_records_is_told_with_the_command_that_adopts_its_chat(house):
    house.start()
    work = house.workspace()
    session = house.spawn("anna", work, "/say remember me")["session_id"]
    for name in ("bert", "gone"):
        house.spawn(name, work, "/say hello")
    house.ok("end", "gone")
    house.ok("rm", "gone")
    house.stop()
    db = sqlite3.connect(house.state / "substrat.db")
    db.execute("DELETE FROM agents WHERE name = 'anna'")
    db.commit()
    db.close()
    house.start()
    assert [agent["name"] for agent in house.ok("ls")] == ["bert"]
    assert house.log.count("agent without records") == 1
    assert f"substratctl spawn anna -w {work} --adopt {session}" in house.log
    house.ok("spawn", "anna", "-w", work, "--adopt", session)
    assert "remember me" in house.ctl("send", "anna", "/recall", "--wait", "--json").out
