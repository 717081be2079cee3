"""Turns survive the daemon, and the next daemon accounts for everything that happened."""

import base64
import contextlib
import json
import os
import signal
import socket
import sqlite3
import time
from datetime import datetime

# Writes numbered lines until it is told to stop, and a last one.
COUNTER = """
begin()
number = 0
while not os.path.exists("go"):
    say(f"line {number}")
    number += 1
    mark("count", str(number))
    time.sleep(0.002)
finish(f"{number} lines")
sys.exit(int(prompt or 0))
"""


def counting(daemon, until, prompt="0"):
    daemon.start(agent=daemon.program(COUNTER))
    work = daemon.workspace()
    daemon.ok("spawn", "anna", "-w", work, prompt)
    until(lambda: count(work) > 20, "the first lines")
    return work


def count(work):
    try:
        return int((work / "count").read_text())
    except FileNotFoundError:
        return 0


def seconds(text):
    return datetime.fromisoformat(text).timestamp()


def check_every_line_once(daemon, name="anna"):
    """The journal holds exactly the lines that the agent wrote, in order, with rising cursors."""
    agent = daemon.show(name)
    turns = sorted((daemon.agents_directory(agent) / "turns").iterdir(), key=lambda path: int(path.name))
    written = b"".join((turn / "stdout").read_bytes() for turn in turns)
    assert daemon.ctl("logs", name, "--raw").raw == written
    with daemon.wire() as wire:
        page = wire.call("events.read", agent=name, since=0, lines=True, limit=100_000)["events"]
        while more := wire.call("events.read", agent=name, since=page[-1]["cursor"], lines=True)["events"]:
            page += more
    lines = [base64.b64decode(event["line"]).removesuffix(b"\n") for event in page if event.get("line") is not None]
    assert lines == written.removesuffix(b"\n").split(b"\n")
    cursors = [event["cursor"] for event in page]
    assert cursors == sorted(set(cursors))
    assert [event["kind"] for event in page].count("turn:ended") == len(turns)
    return agent


def test_a_turn_goes_on_when_the_daemon_is_killed_and_is_adopted(daemon, until):
    work = counting(daemon, until, prompt="0")
    before = daemon.show("anna")
    cursor = daemon.ctl("logs", "anna", "--json").lines[-1]["cursor"]
    daemon.kill()
    reached = count(work)
    until(lambda: count(work) > reached + 20, "lines without a daemon")
    daemon.start()
    agent = daemon.show("anna")
    assert (agent["state"], agent["turn"]) == ("running", before["turn"])
    until(lambda: daemon.ctl("logs", "anna", "--json", "--since", str(cursor)).lines, "the lines of that time")
    (work / "go").touch()
    agent = daemon.wait("anna")
    assert (agent["turn"]["outcome"], agent["turn"]["exit_code"]) == ("success", 0)
    check_every_line_once(daemon)
    assert not daemon.sandboxed()


def test_an_adopted_turn_can_be_suspended(daemon, until):
    work = counting(daemon, until)
    daemon.kill()
    daemon.start()
    agent = daemon.ok("suspend", "anna")
    assert (agent["state"], agent["turn"]["outcome"]) == ("suspended", "interrupted")
    assert not daemon.sandboxed()
    reached = count(work)
    (work / "go").touch()
    agent = daemon.ok("resume", "anna", "0", "--wait", "--timeout", "20")
    assert agent["turn"]["number"] == 2
    assert reached
    check_every_line_once(daemon)


def test_a_turn_that_ended_while_no_daemon_ran(daemon, until):
    work, other = counting(daemon, until), daemon.workspace("other")
    daemon.ok("spawn", "bert", "-w", other, "3")
    until(lambda: count(other) > 20, "the first lines")
    daemon.kill()
    for place in (work, other):
        (place / "go").touch()
    until(lambda: not daemon.sandboxed(), "the end of the turns")
    gone = time.time()
    daemon.start()
    for name, place, code in (("anna", work, 0), ("bert", other, 3)):
        turn = daemon.wait(name)["turn"]
        assert turn["exit_code"] == code
        assert turn["result"] == f"{count(place)} lines"
        assert turn["outcome"] in ({"success"} if code == 0 else {"success", "error"})
        assert seconds(turn["started_at"]) < seconds(turn["ended_at"]) <= gone
        check_every_line_once(daemon, name)


def test_a_turn_that_was_killed_while_no_daemon_ran(daemon, until):
    counting(daemon, until)
    daemon.kill()
    daemon.kill_sandboxed()
    gone = time.time()
    daemon.start()
    agent = daemon.wait("anna")
    assert seconds(agent["turn"]["started_at"]) < seconds(agent["turn"]["ended_at"]) <= gone
    assert agent["state"] in {"failed", "idle", "suspended"}
    assert agent["turn"]["outcome"] in {"error", "lost"}
    assert agent["turn"]["error"]
    check_every_line_once(daemon)
    assert daemon.ctl("send", "anna", "again").code == 0


def test_the_daemon_killed_again_and_again(daemon, until):
    work = counting(daemon, until)
    for _ in range(3):
        daemon.kill()
        reached = count(work)
        until(lambda: count(work) > reached + 5, "more lines")  # noqa: B023
        daemon.start()
    (work / "go").touch()
    assert daemon.wait("anna")["turn"]["outcome"] == "success"
    check_every_line_once(daemon)


def test_sigterm_and_sigint_are_the_end_of_the_daemon_not_of_its_turns(daemon, until):
    work = counting(daemon, until)
    for number in (signal.SIGTERM, signal.SIGINT):
        daemon.process.send_signal(number)
        assert daemon.process.wait(20) in {0, 130}, number
        assert "Traceback" not in daemon.log
        assert not daemon.socket.exists() or daemon.ctl("ls").code == 3
        reached = count(work)
        until(lambda reached=reached: count(work) > reached, "the turn to go on")
        daemon.start()
        assert daemon.show("anna")["state"] == "running", number
    (work / "go").touch()
    assert daemon.wait("anna")["turn"]["outcome"] == "success"
    check_every_line_once(daemon)


def test_what_was_accepted_is_not_lost(running, until):
    """Prompts that were queued when the daemon died run, in order and once."""
    work = running.workspace()
    running.held("anna", work)
    for number in range(3):
        running.ok("send", "anna", f"prompt {number}")
    running.kill()
    running.start()
    assert running.show("anna")["unread"] == 3
    (work / "go").touch()
    until(lambda: running.wait("anna")["turn"]["number"] == 4, "the last prompt's turn")
    results = [event["raw"]["result"] for event in running.events("anna", "result:success")]
    assert results[1:] == ["prompt 0", "prompt 1", "prompt 2"]


def test_a_client_that_waits_learns_that_the_daemon_died(running):
    running.held("anna", running.workspace())
    waiting = running.follow("wait", "anna")
    with running.wire() as wire:
        wire.ask("agent.wait", agents=["anna"])
        running.kill()
        assert wire.receive() is None
    # It waits 30 s for another daemon (`substrat.cli.outage`).
    assert waiting.wait(60) == 3


def test_agents_of_every_state_are_as_they_were(running):
    work = running.workspace()
    running.spawn("idle", work, "x")
    running.ctl("spawn", "failed", "-w", work, "--wait", "/exit 1")
    running.spawn("ended", work)
    running.ok("end", "ended")
    running.spawn("suspended", work, "x")
    running.ok("suspend", "suspended")
    running.held("running", work)
    before = running.ok("ls")
    for stop in (running.kill, running.stop):
        stop()
        running.start()
        assert running.ok("ls") == before


def test_a_tool_call_without_a_daemon_is_answered_by_the_next_or_fails_clearly(running, until):
    work = running.workspace()
    script = (
        "/tool whoami {}\n/shell touch ready; while [ ! -e go ]; do sleep 0.02; done\n/tool whoami {}\n/shell touch called"
    )
    running.ok("spawn", "anna", "-w", work, "--prompt-file", "-", stdin=script.encode())
    until((work / "ready").exists, "the first half")
    running.kill()
    (work / "go").touch()
    running.start()
    assert running.wait("anna")["turn"]["outcome"] == "success"
    assert "anna" in running.tool("anna")[1]


def test_a_daemon_that_died_right_after_spawn_starts_the_turn_once(daemon, until):
    """Killing the daemon between its steps loses nothing it has answered for."""
    daemon.start(agent=daemon.program("begin()\nfd = os.open('runs', os.O_WRONLY | os.O_APPEND | os.O_CREAT)\n"
                                    "os.write(fd, b'x')\nfinish(prompt)\n"))  # fmt: skip
    work = daemon.workspace()
    for number in range(3):
        with daemon.wire() as wire:
            wire.call("agent.spawn", workspace=str(work), name=f"a{number}", prompt="x")
            daemon.kill()
        daemon.start()
        agent = daemon.wait(f"a{number}")
        assert agent["turn"]["outcome"] in {"success", "lost", "error"}
    runs = (work / "runs").read_text()
    outcomes = [agent["turn"]["outcome"] for agent in daemon.ok("ls")]
    assert len(runs) >= outcomes.count("success")
    assert len(runs) <= 3


def test_a_follower_gets_every_event_once_and_in_order_across_kills(running, until):
    work = running.workspace()
    script = "\n".join(f"/emit 200 20\n/shell while [ ! -e go-{number} ]; do sleep 0.01; done" for number in range(4))
    running.ok("spawn", "anna", "-w", work, "--prompt-file", "-", stdin=f"{script}\n/say end".encode())
    follower = running.follow("logs", "anna", "-f", "--json")
    first = os.read(follower.stdout.fileno(), 1)  # it is there
    for number in range(4):
        (work / f"go-{number}").touch()
        running.kill()
        running.start()
    assert running.wait("anna", "idle")["turn"]["outcome"] == "success"
    running.ok("end", "anna")
    out, _ = follower.communicate(timeout=30)
    followed = [json.loads(line) for line in (first + out).splitlines()]
    assert followed == running.events("anna")
    assert sum(event["kind"] == "assistant:delta" for event in followed) >= 800


def test_two_resumes_at_once_start_one_turn(running, until):
    work = running.workspace()
    running.held("anna", work)
    running.ok("suspend", "anna")
    (work / "go").touch()
    resumes = [running.follow("resume", "anna") for _ in range(6)]
    assert [process.wait(20) for process in resumes] == [0] * 6
    assert running.wait("anna", "idle")["turn"]["number"] == 2
    assert len(running.events("anna", "turn:started")) == 2


def test_a_start_asks_systemd_for_the_time_that_a_check_of_the_database_takes(daemon):
    daemon.start()
    daemon.kill()
    database = daemon.state / "substrat.db"
    with contextlib.closing(sqlite3.connect(database)) as db, db:
        db.execute("CREATE TABLE large (bytes BLOB) STRICT")
        db.execute("INSERT INTO large VALUES (zeroblob(?))", (40 << 20,))
    (daemon.state / "substrat.db-wal").touch()  # as after a death
    address = str(daemon.home / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(20)
        daemon.start(environment={"NOTIFY_SOCKET": address})
        name, _, wanted = manager.recv(4096).decode().partition("=")
        assert (name, int(wanted) >= 40_000_000) == ("EXTEND_TIMEOUT_USEC", True)
        assert manager.recv(4096).startswith(b"READY=1")
