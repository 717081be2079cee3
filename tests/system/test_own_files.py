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


@pytest.mark.parametrize("shift", [0, *(pytest.param(shift, marks=pytest.mark.slow) for shift in (1, 2, 3))])
def test_a_wrong_kind_of_file_is_refused_with_a_sentence_or_replaced(daemon, until, shift):
    """Whatever is there: the daemon starts and works, or says in one line which file is in its way; two kinds a name."""
    daemon.start()
    daemon.spawn("anna", daemon.workspace(), "/say hello")
    daemon.stop()
    refused = set()
    for number, name in enumerate(NAMES):
        kinds = [kind for place, kind in enumerate(KINDS) if (place - number) % 4 == shift]
        refused |= {name} if refusals(daemon, until, name, kinds) else set()
    assert refused >= {
        name for name in NAMES if name.startswith("state/substrat.db") or (name.endswith("agents") and not shift)
    }
    daemon.start()
    assert daemon.show("anna")["turn"]["outcome"] == "success"


def refusals(daemon, until, name, kinds):
    """Put each kind into the place of a file; returns how many daemons refused to start."""
    parent = {"state": daemon.state, "run": daemon.runtime}[name.split("/")[0]]
    path = parent / name.split("/")[1]
    aside = parent / "kept-by-the-test"
    was_there = os.path.lexists(path)
    if was_there:
        os.rename(path, aside)
    refused = 0
    for kind in kinds:
        KINDS[kind](path)
        process = daemon.process = daemon.launch()
        until(
            lambda process=process: process.poll() is not None or answers(daemon), f"an answer or the end: {kind}, {name}"
        )
        if process.poll() is None:
            assert [agent["name"] for agent in daemon.ok("ls")] == ["anna"], (name, kind)
            daemon.stop()
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


def test_what_is_in_the_place_of_an_agents_socket_is_named_or_replaced(daemon):
    daemon.start()
    door = daemon.runtime / "agents" / daemon.spawn("anna", daemon.workspace(), "/say hi")["id"]
    for kind, make in DOORS.items():
        shutil.rmtree(door, ignore_errors=True)
        make(door)
        done = daemon.ctl("send", "anna", "/say again", "--wait")
        assert not os.path.lexists("/etc/agent.sock")
        assert "exception" not in daemon.log, kind
        assert (done.code == 0) == (kind == "pipe for the socket"), kind
        if done.code:
            assert str(door) in done.err, kind
            assert "move" in done.err, kind
            remove(door)
    assert daemon.ctl("send", "anna", "/say again", "--wait").out == "again\n"


def answers(daemon):
    with contextlib.suppress(OSError), daemon.wire() as wire:
        return wire.call("daemon.status")
    return None


def remove(path):
    if os.path.islink(path) or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        path.chmod(0o700)
        shutil.rmtree(path)


def killed(daemon):
    """A daemon that was killed with one agent in the database and three in the log only; returns those three's names."""
    daemon.start()
    work = daemon.workspace()
    daemon.spawn("early", work, "/say I am early")
    daemon.stop()
    daemon.start()
    for name in ("anna", "bert", "carl"):
        daemon.spawn(name, work, f"/say I am {name}")
    daemon.kill()
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
def once_more(daemon, copy):
    """Put the state back as it was copied; the daemon that is started meanwhile is killed."""
    shutil.rmtree(daemon.state)
    shutil.copytree(copy, daemon.state, symlinks=True)
    yield
    daemon.kill()


def test_agents_that_a_damaged_log_takes_back_are_told(daemon):
    names = killed(daemon)
    copy = shutil.copytree(daemon.state, daemon.directory / "copy", symlinks=True)
    for harm in (missing, cut_in_half, damaged_in_the_middle):
        with once_more(daemon, copy):
            harm(daemon.state / "substrat.db-wal")
            daemon.start()
            left = {agent["name"] for agent in daemon.ok("ls")}
            assert "early" in left
            for name in (lost := set(names) - left):
                assert f"substratctl spawn {name} " in daemon.log, harm
            with daemon.wire() as wire:
                assert wire.call("daemon.status")["damaged"] == len(lost) > 0


def test_a_log_that_held_everything_is_refused_as_a_database_that_is_gone(daemon):
    daemon.start(executed=True)  # a database that was there before would not be in the log
    daemon.spawn("anna", daemon.workspace(), "/say hello")
    daemon.kill()
    whole = daemon.state.rename(daemon.directory / "whole")
    for harm in (missing, emptied, damaged_at_the_beginning):
        shutil.rmtree(daemon.state, ignore_errors=True)
        shutil.copytree(whole, daemon.state)
        harm(daemon.state / "substrat.db-wal")
        code, said = daemon.refused()
        assert code == 1, harm
        assert "--set-aside-damaged-state" in said.splitlines()[-1], harm
        assert "Traceback" not in said, harm


def test_a_killed_daemons_log_is_no_damage(daemon):
    killed(daemon)
    daemon.start()
    assert len(daemon.ok("ls")) == 4
    assert "without records" not in daemon.log


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_database_that_is_gone_is_refused_until_a_person_says_so(daemon):
    killed(daemon)
    copy = shutil.copytree(daemon.state, daemon.directory / "copy", symlinks=True)
    for how in ("missing", "empty", "without a table"):
        for beside in ("agents", "log", "both"):
            if (how, beside) != ("without a table", "log"):  # a log of another database is none of this one's
                with once_more(daemon, copy):
                    check_that_a_database_that_is_gone_is_refused(daemon, how, beside)


def check_that_a_database_that_is_gone_is_refused(daemon, how, beside):
    path = daemon.state / "substrat.db"
    path.unlink()
    if how == "empty":
        path.touch()
    elif how == "without a table":
        sqlite3.connect(path).execute("PRAGMA journal_mode=WAL").connection.close()
    if beside == "log":
        shutil.rmtree(daemon.state / "agents")
    if beside == "agents":
        for suffix in ("-wal", "-shm"):
            (daemon.state / f"substrat.db{suffix}").unlink(missing_ok=True)
    before = sorted(entry.name for entry in daemon.state.iterdir())
    code, said = daemon.refused()
    assert code == 1
    assert "Traceback" not in said
    assert "--set-aside-damaged-state" in said
    if how != "without a table":
        assert sorted(entry.name for entry in daemon.state.iterdir()) == before
    daemon.start(arguments=["--set-aside-damaged-state"])
    assert daemon.ok("ls") == []
    if beside != "log":
        for name in ("anna", "bert", "carl"):
            assert name in daemon.log
    daemon.kill()
    daemon.start()
    assert daemon.ok("ls") == []


def test_each_agent_without_records_is_told_with_the_command_that_adopts_its_chat(daemon):
    daemon.start()
    work = daemon.workspace()
    session = daemon.spawn("anna", work, "/say remember me")["session_id"]
    for name in ("bert", "gone"):
        daemon.spawn(name, work, "/say hello")
    daemon.ok("end", "gone")
    daemon.ok("rm", "gone")
    daemon.stop()
    db = sqlite3.connect(daemon.state / "substrat.db")
    db.execute("DELETE FROM agents WHERE name = 'anna'")
    db.commit()
    db.close()
    daemon.start()
    assert [agent["name"] for agent in daemon.ok("ls")] == ["bert"]
    assert daemon.log.count("agent without records") == 1
    assert f"substratctl spawn anna -w {work} --adopt {session}" in daemon.log
    daemon.ok("spawn", "anna", "-w", work, "--adopt", session)
    assert "remember me" in daemon.ctl("send", "anna", "/recall", "--wait", "--json").out
