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


def counting(house, until, prompt="0"):
    house.start(agent=house.program(COUNTER))
    work = house.workspace()
    house.ok("spawn", "anna", "-w", work, prompt)
    until(lambda: count(work) > 20, "the first lines")
    return work


def count(work):
    try:
        return int((work / "count").read_text())
    except FileNotFoundError:
        return 0


def seconds(text):
    return datetime.fromisoformat(text).timestamp()


def check_every_line_once(house, name="anna"):
    """The journal holds exactly the lines that the agent wrote, in order, with rising cursors."""
    agent = house.show(name)
    turns = sorted((house.agents_directory(agent) / "turns").iterdir(), key=lambda path: int(path.name))
    written = b"".join((turn / "stdout").read_bytes() for turn in turns)
    assert house.ctl("logs", name, "--raw").raw == written
    with house.wire() as wire:
        page = wire.call("events.read", agent=name, since=0, lines=True, limit=100_000)["events"]
        while more := wire.call("events.read", agent=name, since=page[-1]["cursor"], lines=True)["events"]:
            page += more
    lines = [base64.b64decode(event["line"]).removesuffix(b"\n") for event in page if event.get("line") is not None]
    assert lines == written.removesuffix(b"\n").split(b"\n")
    cursors = [event["cursor"] for event in page]
    assert cursors == sorted(set(cursors))
    assert [event["kind"] for event in page].count("turn:ended") == len(turns)
    return agent


def test_a_turn_goes_on_when_the_daemon_is_killed_and_is_adopted(house, until):
    work = counting(house, until, prompt="0")
    before = house.show("anna")
    cursor = house.ctl("logs", "anna", "--json").lines[-1]["cursor"]
    house.kill()
    reached = count(work)
    until(lambda: count(work) > reached + 20, "lines without a daemon")
    house.start()
    agent = house.show("anna")
    assert (agent["state"], agent["turn"]) == ("running", before["turn"])
    until(lambda: house.ctl("logs", "anna", "--json", "--since", str(cursor)).lines, "the lines of that time")
    (work / "go").touch()
    agent = house.wait("anna")
    assert (agent["turn"]["outcome"], agent["turn"]["exit_code"]) == ("success", 0)
    check_every_line_once(house)
    assert not house.sandboxed()


def test_an_adopted_turn_can_be_suspended(house, until):
    work = counting(house, until)
    house.kill()
    house.start()
    agent = house.ok("suspend", "anna")
    assert (agent["state"], agent["turn"]["outcome"]) == ("suspended", "interrupted")
    assert not house.sandboxed()
    reached = count(work)
    (work / "go").touch()
    agent = house.ok("resume", "anna", "0", "--wait", "--timeout", "20")
    assert agent["turn"]["number"] == 2
    assert reached
    check_every_line_once(house)


def test_a_turn_that_ended_while_no_daemon_ran(house, until):
    work, other = counting(house, until), house.workspace("other")
    house.ok("spawn", "bert", "-w", other, "3")
    until(lambda: count(other) > 20, "the first lines")
    house.kill()
    for place in (work, other):
        (place / "go").touch()
    until(lambda: not house.sandboxed(), "the end of the turns")
    gone = time.time()
    house.start()
    for name, place, code in (("anna", work, 0), ("bert", other, 3)):
        turn = house.wait(name)["turn"]
        assert turn["exit_code"] == code
        assert turn["result"] == f"{count(place)} lines"
        assert turn["outcome"] in ({"success"} if code == 0 else {"success", "error"})
        assert seconds(turn["started_at"]) < seconds(turn["ended_at"]) <= gone
        check_every_line_once(house, name)


def test_a_turn_that_was_killed_while_no_daemon_ran(house, until):
    counting(house, until)
    house.kill()
    house.kill_sandboxed()
    gone = time.time()
    house.start()
    agent = house.wait("anna")
    assert seconds(agent["turn"]["started_at"]) < seconds(agent["turn"]["ended_at"]) <= gone
    assert agent["state"] in {"failed", "idle", "suspended"}
    assert agent["turn"]["outcome"] in {"error", "lost"}
    assert agent["turn"]["error"]
    check_every_line_once(house)
    assert house.ctl("send", "anna", "again").code == 0


def test_the_daemon_killed_again_and_again(house, until):
    work = counting(house, until)
    for _ in range(3):
        house.kill()
        reached = count(work)
        until(lambda: count(work) > reached + 5, "more lines")  # noqa: B023
        house.start()
    (work / "go").touch()
    assert house.wait("anna")["turn"]["outcome"] == "success"
    check_every_line_once(house)


def test_sigterm_and_sigint_are_the_end_of_the_daemon_not_of_its_turns(house, until):
    work = counting(house, until)
    for number in (signal.SIGTERM, signal.SIGINT):
        house.process.send_signal(number)
        assert house.process.wait(20) in {0, 130}, number
        assert "Traceback" not in house.log
        assert not house.socket.exists() or house.ctl("ls").code == 3
        reached = count(work)
        until(lambda reached=reached: count(work) > reached, "the turn to go on")
        house.start()
        assert house.show("anna")["state"] == "running", number
    (work / "go").touch()
    assert house.wait("anna")["turn"]["outcome"] == "success"
    check_every_line_once(house)


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


def test_a_daemon_that_died_right_after_spawn_starts_the_turn_once(house, until):
    """Killing the daemon between its steps loses nothing it has answered for."""
    house.start(agent=house.program("begin()\nfd = os.open('runs', os.O_WRONLY | os.O_APPEND | os.O_CREAT)\n"
                                    "os.write(fd, b'x')\nfinish(prompt)\n"))  # fmt: skip
    work = house.workspace()
    for number in range(3):
        with house.wire() as wire:
            wire.call("agent.spawn", workspace=str(work), name=f"a{number}", prompt="x")
            house.kill()
        house.start()
        agent = house.wait(f"a{number}")
        assert agent["turn"]["outcome"] in {"success", "lost", "error"}
    runs = (work / "runs").read_text()
    outcomes = [agent["turn"]["outcome"] for agent in house.ok("ls")]
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


def test_a_start_asks_systemd_for_the_time_that_a_check_of_the_database_takes(house):
    house.start()
    house.kill()
    database = house.state / "substrat.db"
    with contextlib.closing(sqlite3.connect(database)) as db, db:
        db.execute("CREATE TABLE large (bytes BLOB) STRICT")
        db.execute("INSERT INTO large VALUES (zeroblob(?))", (40 << 20,))
    (house.state / "substrat.db-wal").touch()  # as after a death
    address = str(house.home / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(20)
        house.start(environment={"NOTIFY_SOCKET": address})
        name, _, wanted = manager.recv(4096).decode().partition("=")
        assert (name, int(wanted) >= 40_000_000) == ("EXTEND_TIMEOUT_USEC", True)
        assert manager.recv(4096).startswith(b"READY=1")
