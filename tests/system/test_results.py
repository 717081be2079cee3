"""Results of agents' work, steering, questions and reminders, through real sandboxes: each told once, and none forged."""

import contextlib
import json
import socket
import sqlite3
import time
from datetime import UTC, datetime

from tests.system.test_mcp import INITIALIZE, INITIALIZED, request
from tests.system.test_messages import HOLD, prompts, send, settled, tool

BAD_ENDS = {
    "mute": "/shell true",
    "silent": "/exit 0",
    "killed": "/shell kill -9 2",
    "stopped": HOLD.format(mark="stopped"),
    "loser": tool("complete", result="it can't be done", status="failed") + "\n/say fine, thanks",
    "misfit": "/say no JSON at all",
    "winner": tool("complete", result="the very result", files=["out/report.txt"]) + "\n/say only words",
}
SCHEMA = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}


def test_each_bad_end_of_a_child_is_an_outcome_of_its_own_and_no_success(daemon, until):
    daemon.start()
    work = daemon.workspace()
    schemas = {"misfit": {"result_schema": SCHEMA}}
    children = [tool("spawn_agent", name=name, prompt=text, **schemas.get(name, {})) for name, text in BAD_ENDS.items()]
    begin_lead = "\n".join([*children, tool("wait_agents", note="all of them")])
    daemon.ok("spawn", "lead", "-w", work, "--prompt-file", "-", stdin=begin_lead.encode())
    until((work / "stopped").exists, "the child that goes on")
    daemon.ok("interrupt", "stopped")
    until(lambda: settled(daemon, "lead", 2), "the wake")
    assert daemon.show("lead")["turn"]["number"] == 2, "one wake for all"
    wake = prompts(daemon, "lead")[1]
    heads = {line.partition(" ")[0]: line for line in wake.splitlines() if ": turn 1, " in line}
    ends = {name: heads[name].partition(": turn 1, ")[2] for name in BAD_ENDS}
    assert [name for name, end in ends.items() if "success" in end] == ["winner"], ends
    assert len(set(ends.values())) >= 6, ends
    assert ends["mute"].startswith("empty")
    assert ends["loser"].startswith("failed")
    assert ends["stopped"].startswith("interrupted")
    assert "doesn't fit" in ends["misfit"]
    assert "> it can't be done" in wake
    assert "signal 9" in wake or "SIGKILL" in wake
    assert "> the very result" in wake
    assert "out/report.txt" in wake
    assert "only words" not in wake, "complete replaces the last text"
    shown = {name: daemon.ctl("show", name).out for name in ("loser", "winner", "misfit")}
    assert "\n  completed failed: it can't be done\n" in shown["loser"]
    assert "\n  completed succeeded: the very result" in shown["winner"]
    assert "completed" not in shown["misfit"]


def test_a_result_that_does_not_fit_is_an_error_that_can_be_mended(shared, until):
    child = "\n".join([
        tool("complete", result='{"score": "high"}'), tool("complete", result="high"),
        tool("complete", result='{"score": NaN}'), tool("complete", result='{"score": 7}'), "/say done",
    ])  # fmt: skip
    shared.spawn("lead", shared.workspace(), tool("spawn_agent", name="kid", prompt=child, result_schema=SCHEMA))
    until(lambda: settled(shared, "lead", 2), "the result")
    *wrong, right = shared.tool("kid")
    assert [text.startswith("!") for text in (*wrong, right)] == [True, True, True, False]
    assert "'score'" in wrong[0]
    assert '> {"score": 7}' in prompts(shared, "lead")[1]
    assert "success" in prompts(shared, "lead")[1]
    (refused,) = send(shared, "lead", tool("spawn_agent", name="odd", prompt="x", result_schema={"$ref": "#"}))
    assert refused.startswith("!")
    assert "result_schema" in refused


def test_nobody_completes_anothers_turn_nor_one_that_is_over(daemon, until):
    """A result counts for the turn of the agent whose socket it came through, while that runs."""
    daemon.start()
    work = daemon.workspace()
    kid = f"{HOLD.format(mark='k')}\n/say the true result"
    daemon.spawn("lead", work, tool("spawn_agent", name="kid", prompt=kid))
    until((work / "k").exists, "the child's turn")
    daemon.spawn("rival", work, tool("complete", result="forged by a rival"))
    path = daemon.runtime / "agents" / daemon.show("kid")["id"] / "agent.sock"
    with socket.socket(socket.AF_UNIX) as kept:
        kept.settimeout(10)
        kept.connect(str(path))
        stream = kept.makefile("rwb")
        for line in (INITIALIZE, INITIALIZED):
            stream.write(line.encode() + b"\n")
        stream.flush()
        assert stream.readline()
        (work / "go-k").touch()
        until(lambda: settled(daemon, "lead", 2), "the result")
        forged = request(7, "tools/call", name="complete", arguments={"result": "forged after the end"})
        with contextlib.suppress(OSError):  # the connection may have gone with the turn
            stream.write(forged.encode() + b"\n")
            stream.flush()
            assert b'"isError":false' not in stream.readline()
    assert not path.exists()
    assert "> the true result" in prompts(daemon, "lead")[1]
    (told,) = send(daemon, "lead", tool("get_agent", name="kid", what="result"))
    assert "the true result" in told
    # What was given in one turn isn't the result of the next.
    send(daemon, "kid", tool("complete", result="of the second turn"))
    send(daemon, "kid", "/say of the third turn")
    (told,) = send(daemon, "lead", tool("get_agent", name="kid", what="result"))
    assert "of the third turn" in told
    assert "second" not in told
    assert "forged" not in str([prompts(daemon, name) for name in ("lead", "kid")])


def test_a_child_that_ends_while_its_parent_does_not_listen_is_told_later_or_never(shared, until):
    work = shared.workspace()
    verbs = {"suspended": ("suspend",), "ended": ("end", "--alone")}
    for state, (verb, *options) in verbs.items():
        kid = f"{HOLD.format(mark=state)}\n/say the child's result"
        shared.spawn(f"lead-{state}", work, tool("spawn_agent", name=f"kid-{state}", prompt=kid))
        until((work / state).exists, "the child's turn")
        shared.ok(verb, f"lead-{state}", *options)
        (work / f"go-{state}").touch()
    for state in verbs:
        until(lambda state=state: settled(shared, f"kid-{state}", 1), "the child's end")
        assert shared.show(f"lead-{state}")["state"] == state
    shared.ok("resume", "lead-suspended")
    until(lambda: settled(shared, "lead-suspended", 2), "the result")
    assert [text.count("> the child's result") for text in prompts(shared, "lead-suspended")] == [0, 1]
    assert shared.show("lead-ended")["state"] == "ended"
    assert "Traceback" not in shared.log


def test_end_agent_takes_the_subtree_deepest_first_and_own_descendants_alone(daemon, until):
    daemon.start()
    work = daemon.workspace()
    leaf = tool("spawn_agent", name="leaf", prompt=HOLD.format(mark="leaf"))
    branch = tool("spawn_agent", name="branch", prompt=leaf)
    daemon.spawn("root", work, "\n".join([branch, tool("spawn_agent", name="beside", prompt="/say hello")]))
    daemon.spawn("stranger", work)
    until((work / "leaf").exists, "the leaf's turn")

    def quiet():
        # In one look: the end of a child wakes its parent in the same moment.
        return {agent["state"] for agent in daemon.ok("ls") if agent["name"] != "leaf"} == {"idle"}

    until(quiet, "the end of all turns but the leaf's")
    refusals = send(daemon, "branch", *(tool(verb, name=name) for verb in ("end_agent", "interrupt_agent")
                                       for name in ("root", "branch", "beside", "stranger", "nobody")))  # fmt: skip
    assert all(text.startswith("!") for text in refusals), refusals
    until(quiet, "the end of the turn that asked, and of no agent")
    said, again = send(daemon, "root", *[tool("end_agent", name="branch", reason="enough of it")] * 2)
    assert said.index("leaf") < said.index("branch")
    assert "already" in again
    until(lambda: daemon.show("leaf")["state"] == "ended", "the end of its turn")
    states = {agent["name"]: agent["state"] for agent in daemon.ok("ls")}
    assert states == {"root": "idle", "branch": "ended", "leaf": "ended", "beside": "idle", "stranger": "idle"}
    assert [len(daemon.events(name, "agent:ended")) for name in ("branch", "leaf")] == [1, 1]
    (told,) = daemon.events("branch", "agent:ended")
    (stopped,) = daemon.events("leaf", "agent:interrupted")
    assert [(event["text"], event["data"]["by"]) for event in (told, stopped)] == [
        ("ended by root: enough of it", "agent:root")
    ] * 2


def test_an_interruption_with_a_text_begins_the_next_turn_with_it(shared, until):
    work = shared.workspace()
    kid = tool("spawn_agent", name="kid", prompt=HOLD.format(mark="old"))
    shared.spawn("lead", work, kid)
    until((work / "old").exists, "the child's turn")
    shared.ok("send", "kid", "/say queued before")
    (said,) = send(shared, "lead", tool("interrupt_agent", name="kid", text="/shell touch new\n/say the new way"))
    assert not said.startswith("!")
    until(lambda: settled(shared, "kid", 3), "the turns after it")
    second, third = prompts(shared, "kid")[1:]
    assert second.startswith("/shell touch new")
    assert third == "/say queued before"
    assert (work / "new").exists()
    turns = shared.events("kid", "turn:ended")
    assert [event["data"]["outcome"] for event in turns] == ["interrupted", "success", "success"]
    # The parent asked for the interruption: what it gave the child to do instead is what it is told of.
    until(lambda: shared.show("lead")["state"] == "idle", "the end of the reports")
    assert "> the new way" in "".join(prompts(shared, "lead"))
    (refused,) = send(shared, "lead", tool("interrupt_agent", name="kid"))
    assert refused.startswith("!"), "nothing runs"


def test_looking_at_an_agent_consumes_nothing(shared, until):
    work = shared.workspace()
    shared.spawn("lead", work, tool("spawn_agent", name="kid", prompt="/shell echo seen\n/say looked at"))
    until(lambda: settled(shared, "lead", 2), "the result")
    shared.ok("suspend", "kid")
    shared.ok("send", "kid", "waits")
    looks = [tool("get_agent", name="kid", what=what) for what in ("result", "status", "tail", "diff")]
    answers = send(shared, "lead", *looks, *looks)
    for first, second in zip(answers[:3], answers[4:7], strict=True):
        assert first == second
        assert not first.startswith("!")
    assert "looked at" in answers[0]
    assert '"suspended"' in answers[1]
    assert "echo seen" in answers[2]
    assert answers[3].startswith("!"), "it works in place"
    assert "no clone" in answers[3]
    assert shared.show("kid")["unread"] == 1
    assert shared.show("lead")["turn"]["number"] == 3
    # What an agent is and does others may see, not what it has said to its parent.
    shared.spawn("stranger", work, "\n".join(looks))
    assert [text.startswith("!") for text in shared.tool("stranger")] == [True, False, True, True]


def ask(daemon, name, **question):
    (said,) = send(daemon, name, tool("ask_operator", **question))
    assert not said.startswith("!"), said
    return daemon.ok("inbox")[-1]


def test_questions_have_options_and_answers_in_ones_own_words(shared, until):
    shared.spawn("anna", shared.workspace())
    approval = {"question": "delete it?", "options": ["yes, delete", "no, keep"]}
    answers = (("2", "no, keep"), ("YES, delete", "yes, delete"), ("/say only half", "half"))
    for turn, (answer, said) in enumerate(answers, 1):
        item = ask(shared, "anna", **approval)
        assert (item["options"], item["default"], item["deadline"]) == (approval["options"], None, None)
        shared.ok("answer", str(item["id"]), answer)
        until(lambda turn=turn: settled(shared, "anna", 2 * turn), "the answer")
        told = prompts(shared, "anna")[-1]
        assert said in told
        assert ("own words" in told) == (said == "half")
    printed = ask(shared, "anna", default="no, keep", deadline_s=3600, **approval)
    shown = shared.ctl("inbox").out
    assert all(word in shown for word in (*approval["options"], "1", "2"))
    assert printed["default"] == "no, keep"
    assert printed["deadline"] > printed["time"]
    odd = ({"default": "y"}, {"deadline_s": 5})
    bad = send(shared, "anna", *(tool("ask_operator", question="x", **more) for more in odd))
    assert all(text.startswith("!") for text in bad)


def test_at_the_deadline_the_default_is_the_answer_once_also_when_no_daemon_ran(daemon, until):
    daemon.start()
    work = daemon.workspace()
    how = {"question": "now?", "options": ["now", "/say later"], "default": "/say later"}
    for name in ("anna", "bert"):
        daemon.spawn(name, work, tool("remind_me", text="a far one", in_s=9999))
    items = [ask(daemon, "anna", **how, deadline_s=1)]
    until(lambda: settled(daemon, "anna", 3), "the default answer")
    items.append(ask(daemon, "bert", **how, deadline_s=1.5))
    daemon.kill()
    until(lambda: datetime.now(UTC) > datetime.fromisoformat(items[1]["deadline"]), "the deadline")
    daemon.start()
    until(lambda: settled(daemon, "bert", 3), "the default answer")
    daemon.kill()
    daemon.start()
    assert daemon.ok("inbox") == []
    for name, item in zip(("anna", "bert"), items, strict=True):
        told = prompts(daemon, name)[2]
        assert "later" in told, name
        assert "default" in told, name
        late = daemon.ctl("answer", str(item["id"]), "now")
        assert late.code == 1
        assert "settled" in late.error
        send(daemon, name, "/say one more")
        assert len(prompts(daemon, name)) == 4
        assert len(daemon.events(name, "question:answered")) == 1


def test_a_repeated_reminder_has_an_end_and_those_that_were_missed_are_told_once(daemon, until):
    daemon.start()
    daemon.spawn("anna", daemon.workspace(), tool("remind_me", text="tick", in_s=0, every_s=60, times=3))
    for turn in (2, 3, 4):
        until(lambda turn=turn: settled(daemon, "anna", turn), "a reminder")
        assert prompts(daemon, "anna")[-1].count("tick") == 1
        daemon.kill()
        with contextlib.closing(sqlite3.connect(daemon.state / "substrat.db")) as database, database:
            database.execute("UPDATE reminders SET due = due - 600")  # ten periods without a daemon
        daemon.start()
    (who, *bad) = send(
        daemon, "anna", tool("whoami"), tool("remind_me", text="x", every_s=60),
        tool("remind_me", text="x", every_s=0.1, times=2),
        tool("remind_me", text="x", in_s=1, at="2030-01-01T00:00:00Z"), tool("remind_me", text="x", at="2030-01-01"),
        tool("remind_me", text="x", every_s=60, until="2020-01-01T00:00:00Z"),
    )  # fmt: skip
    assert json.loads(who)["reminders"] == []
    assert all(text.startswith("!") for text in bad), bad
    assert len(prompts(daemon, "anna")) == 5


def test_a_reminder_that_repeats_does_not_pile_up(daemon, until):
    daemon.start()
    daemon.spawn("anna", daemon.workspace(), tool("remind_me", text="tick", every_s=1, times=5))
    until(lambda: settled(daemon, "anna", 2), "the first")
    daemon.ok("suspend", "anna")
    until(lambda: daemon.show("anna")["unread"] == 1, "the next")
    past = time.time() + 1.5
    until(lambda: time.time() > past, "the time of another")
    assert daemon.show("anna")["unread"] == 1
