"""Clients that leave or don't read, the daemon's log, and the command line's objects; tests/protocol has the rules."""

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


def test_a_log_of_secrets_is_not_kept(daemon):
    """Prompts and the environment stay out of the daemon's log."""
    daemon.start(environment={"CURSOR_API_KEY": "canary-key"})
    daemon.spawn("anna", daemon.workspace(), "/say canary-prompt")
    daemon.stop()
    assert "canary-key" not in daemon.log
    assert "canary-prompt" not in daemon.log
