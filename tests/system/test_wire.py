"""Clients that leave or don't read, the daemon's log, and the command line's objects; tests/protocol has the rules."""

import json
from pathlib import Path

import pytest

from substrat.protocol import vocabulary


@pytest.fixture
def running(shared):
    """All tests here share a daemon, each with agents of its own."""
    return shared


def test_objects_on_the_wire_are_those_of_the_command_line(running):
    running.spawn("anna", running.workspace(), "x")
    with running.wire() as wire:
        (agent,) = wire.call("agent.list")
        assert tuple(agent) == vocabulary.AGENT_FIELDS
        assert tuple(agent["turn"]) == vocabulary.TURN_FIELDS
        whole = wire.call("agent.show", agent="anna")
        assert whole == running.show("anna")
        shown = {name: whole[name] for name in vocabulary.AGENT_FIELDS}
        assert agent == {**shown, "turn": {**whole["turn"], "result": None, "usage": None}}
        page = wire.call("events.read", since=0)
        assert page["events"] == running.ctl("events", "--json", "--since", "0").lines
        assert page["cursor"] == page["events"][-1]["cursor"]
        assert wire.call("events.read", since=page["cursor"])["events"] == []
        status = wire.call("daemon.status")
        assert (status["pid"], status["agents"], status["running"]) == (running.process.pid, 1, 0)


@pytest.mark.slow
def test_a_client_that_stops_reading_costs_only_itself(daemon):
    running = daemon.start(executed=True)  # its memory is its own
    work = running.workspace()
    with running.wire() as lazy, running.wire() as keen:
        lazy.call("events.subscribe", since=0)
        keen.call("events.subscribe", since=0)
        before = memory(running)
        done = running.ctl("spawn", "anna", "-w", work, "--wait", "/emit 1500 2000")
        assert done.code == 0
        kinds = []
        while "turn:ended" not in kinds:
            kinds.append(keen.event()["kind"])
        assert kinds.count("assistant:delta") >= 1500
        assert len(keen.call("agent.list")) == 1
        assert memory(running) < before + 100_000, "what it doesn't read isn't kept in memory"
        # It may be cut off, or be given everything later; in neither case does it get a part with a hole.
        cursors = []
        while (message := lazy.receive()) is not None:
            cursors.append(message["params"]["event"]["cursor"])
            if message["params"]["event"]["kind"] == "turn:ended":
                break
        assert cursors == list(range(cursors[0], cursors[0] + len(cursors))) or cursors == sorted(set(cursors))


def memory(daemon):
    """The daemon's resident memory in KiB."""
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def test_a_client_that_never_reads_its_answers(running):
    with running.wire() as lazy:
        lazy.socket.settimeout(0.2)
        request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "daemon.status"}).encode() + b"\n"
        try:
            for _ in range(200):
                lazy.socket.sendall(request * 200)
        except (TimeoutError, ConnectionError):
            pass
        assert running.ctl("ls").code == 0
    assert running.ctl("ls").code == 0


def test_a_client_that_leaves_in_the_middle_of_a_wait(running):
    work = running.workspace()
    running.held("anna", work)
    for _ in range(20):
        with running.wire() as wire:
            wire.ask("agent.wait", agents=["anna"])
            wire.ask("events.subscribe", since=0)
    (work / "go").touch()
    assert running.wait("anna")["state"] == "idle"
    assert "Traceback" not in running.log


def test_shutdown_answers_before_the_end(running):
    with running.wire() as wire:
        wire.call("daemon.shutdown")
        assert running.process.wait(20) == 0
    assert "Traceback" not in running.log


def test_a_log_of_secrets_is_not_kept(daemon):
    """Prompts and the environment stay out of the daemon's log."""
    daemon.start(environment={"CURSOR_API_KEY": "canary-key"})
    daemon.spawn("anna", daemon.workspace(), "/say canary-prompt")
    daemon.stop()
    assert "canary-key" not in daemon.log
    assert "canary-prompt" not in daemon.log


def test_an_event_reaches_a_subscriber_while_the_turn_runs(running):
    work = running.workspace()
    with running.wire() as wire:
        wire.call("events.subscribe", since=0)
        running.held("anna", work, before="/say early words\n")
        texts: list[str] = []
        while "early words" not in "".join(texts):
            texts.append(wire.event()["text"] or "")
    assert running.show("anna")["state"] == "running"
