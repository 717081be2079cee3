"""File descriptors: none is lost however many turns run, and a shortage is said and leaves the operator in command."""

import os
import re
import resource
import signal
from collections import Counter
from contextlib import suppress

import pytest

from tests.support.wire import Wire

# Holds as many connections to the agent's own socket as it gets, until the workspace has the file `go`.
GREEDY = """
import json, socket
begin()
servers = json.load(open(".cursor/mcp.json"))["mcpServers"]
place, kept = servers["substrat"]["env"]["SUBSTRAT_SOCKET"], []
mark("ready")
while not os.path.exists("go"):
    if len(kept) < 60:
        one = socket.socket(socket.AF_UNIX)
        one.settimeout(1)
        one.connect(place)
        kept.append(one)
        continue
    mark("greedy")
    time.sleep(0.01)
finish()
"""


def opened(daemon):
    """What the daemon has open, how many of each, without what only says which of its kind it is."""
    place = f"/proc/{daemon.process.pid}/fd"
    found = Counter[str]()
    for name in os.listdir(place):
        with suppress(FileNotFoundError):  # closed since
            found[re.sub(r"\d+", "N", os.readlink(f"{place}/{name}"))] += 1
    return found


def settled(daemon, until, before):
    """Wait until nothing is open but what was before, which may hold what was about to be closed: a client's socket."""
    until(lambda: not opened(daemon) - before, f"the closing of all but {before}")


@pytest.mark.slow
def test_turns_and_commands_in_a_git_workspace_cost_no_descriptor(running, until):
    work = running.workspace(git=True)
    running.git(work, "init", "-q", "nested")
    linked = running.directory / "linked"
    running.git(work, "worktree", "add", "-q", linked)
    for name, place, network in (("anna", work, "filtered"), ("bert", linked, "none")):
        running.spawn(name, place, "/say hi", "--network", network)
        assert running.ctl("exec", name, "--", "true").code == 0
    running.ok("sessions", "-w", work)
    before = opened(running)
    for _ in range(2):
        for name in ("anna", "bert"):
            running.ok("send", name, "/say hi", "--wait")
            assert running.ctl("exec", name, "--", "true").code == 0
    running.ok("sessions", "-w", work)
    settled(running, until, before)


def test_turns_that_cannot_be_started_cost_no_descriptor(daemon, until):
    """A link where a file is protected, a directory in the place of the program."""
    work = daemon.start().workspace(git=True)
    daemon.spawn("anna", work, "/say hi")
    before = opened(daemon)
    (work / ".git" / "hooks").rename(work / ".git" / "elsewhere")
    (work / ".git" / "hooks").symlink_to("elsewhere")
    for _ in range(5):
        done = daemon.ctl("send", "anna", "/say hi", "--wait")
        assert done.code == 5, done
        assert daemon.ctl("exec", "anna", "--", "true").code == 1
    settled(daemon, until, before)


LIMIT = 96


def limited(number):
    return ("prlimit", f"--nofile={number}:{number}", "--")


def test_a_shortage_holds_turns_back_and_says_which_limit_to_raise(daemon, until):
    daemon.start(prefix=limited(LIMIT))
    work = daemon.workspace(git=True)
    # A turn first: what a daemon has open only while it tries the host is closed by then.
    daemon.spawn("anna", work, "/say hi", "--network", "none")
    wires = []
    try:
        while len(os.listdir(f"/proc/{daemon.process.pid}/fd")) < LIMIT - LIMIT // 4 + 8:
            wires.append(Wire(daemon.socket))
        daemon.ok("send", "anna", "/say hi")
        (event,) = until(lambda: daemon.events("anna", "turn:waiting"), "the reason")
        assert f"substratd's limit of open files ({LIMIT}) is used up" in event["text"]
        assert "LimitNOFILE" in event["text"]
        assert daemon.show("anna")["state"] == "queued"
        refused = daemon.ctl("exec", "anna", "--", "true")
        assert refused.code in {0, 1}
        if refused.code:
            assert "LimitNOFILE" in refused.error
        daemon.ok("suspend", "anna")
        daemon.ok("resume", "anna")
    finally:
        for wire in wires:
            wire.socket.close()
    assert daemon.wait("anna", "idle")["turn"]["outcome"] == "success"


def test_an_agent_that_uses_descriptors_up_leaves_the_operator_some(daemon, until):
    daemon.start(agent=daemon.program(GREEDY), prefix=limited(LIMIT))
    work, other = daemon.workspace(), daemon.workspace("other")
    for name, place in (("anna", work), ("bert", other)):
        daemon.ok("spawn", name, "-w", place, "go", "--network", "none")
        until((place / "greedy").exists, "the greed")
    daemon.ok("spawn", "carl", "-w", daemon.workspace("third"), "hello")
    for _ in range(3):
        assert [agent["name"] for agent in daemon.ok("ls")] == ["anna", "bert", "carl"]
    daemon.ok("interrupt", "anna")
    daemon.ok("end", "bert")
    assert daemon.show("anna")["state"] == "idle"
    daemon.ctl("end", "carl")
    assert not daemon.sandboxed()
    assert "internal error" not in daemon.log


ROOMS = [
    pytest.param(range(8 + start, 36, 8), marks=pytest.mark.slow if start % 4 else (), id=f"{8 + start}, ...")
    for start in range(8)
]


@pytest.mark.slow
@pytest.mark.parametrize("rooms", ROOMS)
def test_a_turn_that_finds_no_descriptor_says_so_wherever_it_is(daemon, until, rooms):
    """The limit is lowered to just above what is in use, below what is held in reserve, and raised again."""
    daemon.start(config="[disk]\nfree = 0\n")
    work = daemon.workspace(git=True)
    daemon.spawn("anna", work, "/say hi", "--network", "filtered")
    before = opened(daemon)
    limits = resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)
    for room in rooms:
        with Wire(daemon.socket) as wire:
            since = wire.call("events.read", agent="anna", since=0)["cursor"]
            highest = max(map(int, os.listdir(f"/proc/{daemon.process.pid}/fd")))
            resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (highest + room, limits[1]))
            wire.call("agent.send", agent="anna", prompt="/say hello")
            (said, *_) = until(lambda wire=wire, since=since: told(wire, since), "what is said")
            resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, limits)
            daemon.process.send_signal(signal.SIGHUP)  # turns that wait are admitted at once
            for verb in ("suspend", "resume"):  # and one that failed doesn't wait for its next try
                wire.call(f"agent.{verb}", agent="anna")
        assert "limit of open files" in said or "success" in said, (room, said)
        assert daemon.wait("anna", "idle")["turn"]["result"] == "hello", room
    assert "internal error" not in daemon.log
    settled(daemon, until, before)


def told(wire, since):
    events = wire.call("events.read", agent="anna", since=since)["events"]
    return [event["text"] for event in events if event["kind"] in {"turn:waiting", "turn:ended"}]
