"""Words in the middle of a turn, by the hook that the program runs after each tool call."""

import json

from tests.support.hearing import HEARING
from tests.support.waiting import wait_until


def test_the_operators_words_come_into_the_running_turn_once_and_a_peers_never(daemon):
    work = daemon.workspace()
    heard = work / "heard"
    daemon.start(config=f'[programs.claude]\nbinary = "{daemon.program(HEARING)}"\n')
    daemon.ok("spawn", "anna", "--program", "claude", "-w", work, "listen")
    assert "it comes into the running turn after its next tool call" in daemon.ctl("send", "anna", "use tabs", "--now").out
    wait_until(lambda: daemon.events("anna", "prompt:delivered"), "the hand-over")
    words = json.dumps({"to": "anna", "text": "stop, says a peer"})
    daemon.ok("spawn", "bert", "-w", work, f"/tool send_message {words}", "--wait")
    wait_until(lambda: "waits" in heard.read_text(), "the line about the message")
    assert heard.read_text() == ("The operator says to you, while you work:\nuse tabs\n1 message waits: call check_inbox\n")
    daemon.ok("send", "anna", "then stop", "--now", "--wait")
    daemon.ok("send", "anna", "go on", "--wait")
    assert daemon.ctl("transcript", "anna", "--turn", "1").out.splitlines()[2] == "> listen"
    assert [event["text"].splitlines()[0] for event in daemon.events("anna", "user")] == ["listen", "go on"]
    with daemon.wire() as wire:
        first, second = wire.call("agent.turns", agent="anna")["turns"]
    assert (first["result"], second["number"]) == ("The operator says to you, while you work:\nthen stop", 2)
    assert "stop, says a peer" in second["result"], "another family's message comes with the next turn"
    assert len(daemon.events("anna", "prompt:delivered")) == 2


def test_words_for_a_program_without_hooks_come_with_the_next_turn(running):
    running.ok("spawn", "anna", "-w", running.workspace(), "/shell while [ ! -e end ]; do sleep 0.02; done")
    said = running.ctl("send", "anna", "/shell true", "--now")
    assert said.out == "anna  prompt queued (running; it comes with the next turn)\n"
    assert running.ok("send", "anna", "/shell touch end", "--now")["into"] == "next"


def test_an_agent_goes_on_with_another_program_in_a_new_chat(daemon):
    daemon.start(config=f'[programs.claude]\nbinary = "{daemon.program(HEARING)}"\n')
    daemon.spawn("anna", daemon.workspace(), "/say hello")
    done = daemon.ctl("set", "anna", "program=claude")
    assert (done.code, done.out) == (0, "anna is set, from its next turn on, with a new chat\n"), done
    assert (daemon.show("anna")["program"], daemon.show("anna")["session_id"]) == ("claude", None)
    assert daemon.ctl("send", "anna", "--wait", "stop").out == "stop\n"
    assert daemon.show("anna")["session_id"] is not None
    assert [event["text"] for event in daemon.events("anna", "user")] == ["/say hello", "stop"]
    assert daemon.ctl("set", "anna", "program=vi").code == 2
