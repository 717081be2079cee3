"""Agents, turns, waiting and stopping."""

import json

from substrat.protocol.objects import GateObject, QueuedObject, WaitObject
from tests.protocol import document
from tests.protocol.rules import rule
from tests.protocol.transcript import MATCHES
from tests.support.processes import link, processes
from tests.support.waiting import PATIENCE

LIMITS = {"time_limit": 0, "silence_limit": 900}


@rule("P-OBJ-1", "P-OBJ-2", "P-TURN-1")
def test_an_object_has_all_its_members_always(wire, running):
    members = document.column("The agent object", "member")
    turn_members = document.column("The turn object", "member")
    before = running.spawn(wire)
    assert list(before) == members
    assert (before["session_id"], before["parent"], before["turn"]) == (None, None, None)
    during = running.hold(wire, "bert")
    running.release()
    after = wire.call("agent.wait", agents=["bert"])[0]
    assert list(during) == [*members, *LIMITS]
    assert list(after) == members
    for agent in (during, after):
        assert list(agent["turn"]) == turn_members
        assert MATCHES["time"](agent["created_at"])
        assert MATCHES["time"](agent["turn"]["started_at"])
        assert MATCHES["uuid"](agent["id"])
        assert MATCHES["uuid"](agent["turn"]["id"])
    assert (during["state"], during["turn"]["outcome"], during["turn"]["ended_at"]) == ("running", None, None)
    assert (after["state"], after["turn"]["outcome"], after["turn"]["number"]) == ("idle", "success", 1)
    assert MATCHES["time"](after["turn"]["ended_at"])
    assert MATCHES["uuid"](after["session_id"])


@rule("P-OBJ-3")
def test_only_answers_about_one_agents_turn_have_its_result(wire, running):
    running.run(wire, prompt=f"/say {'r' * 5000}")
    running.run(wire, "bert", prompt=f"/stderr {'e' * 5000}\n/exit 3")
    by_name = {name: [wire.call("agent.show", agent=name)] for name in ("anna", "bert")}
    for name, whole in by_name.items():
        whole.append(wire.call("agent.wait_message", agent=name))
        assert whole[0] == {**whole[1], **LIMITS}
        assert wire.call("agent.turns", agent=name)["turns"] == [whole[0]["turn"]]
    anna, bert = (found[0]["turn"] for found in by_name.values())
    assert anna["result"] == "r" * 5000
    assert anna["usage"]
    assert len(bert["error"]) > 200
    lists = [wire.call("agent.list"), wire.call("agent.wait", agents=["anna", "bert"])]
    lists.append([wire.call("agent.send", agent=name, prompt="/say more")["agent"] for name in ("anna", "bert")])
    assert all(agent["turn"]["result"] is None for listed in lists for agent in listed)
    assert all(agent["turn"]["usage"] is None for listed in lists for agent in listed)
    for listed in lists[:2]:
        assert listed[0]["turn"] == {**anna, "result": None, "usage": None}
        assert listed[1]["turn"] == {**bert, "error": f"{bert['error'][:199]}…"}
    wire.call("agent.wait", agents=["anna", "bert"])
    for method in ("agent.suspend", "agent.end"):
        assert wire.call(method, agent="anna")["turn"]["result"] is None
    assert wire.call("agent.show", agent="anna")["turn"]["result"] == "more"


def test_a_list_has_the_members_that_are_asked_for(wire, running):
    agent = running.spawn(wire)
    assert wire.call("agent.list", fields=["name", "id"]) == [{"name": agent["name"], "id": agent["id"]}]
    assert wire.call("agent.list", fields=[]) == [agent]
    assert wire.refused("agent.list", fields=["name", "colour"]) == "InvalidParams"


@rule("P-TURN-1")
def test_each_prompt_has_a_turn_of_its_own(wire, running):
    first = running.hold(wire)["turn"]
    sent = [wire.call("agent.send", agent="anna", prompt=f"/say {word}") for word in ("one", "two")]
    assert [answer["agent"]["unread"] for answer in sent] == [1, 2]
    assert all(answer["agent"]["turn"] == first for answer in sent), "one turn at a time"
    running.release()
    turns = [wire.call("agent.wait_message", agent="anna", message=answer["message"])["turn"] for answer in sent]
    assert [(turn["number"], turn["result"]) for turn in turns] == [(2, "one"), (3, "two")]
    again = wire.call("agent.wait_message", agent="anna", message=sent[0]["message"])["turn"]
    assert again == turns[0], "also when there is a newer one"


@rule("P-NAME-1")
def test_names(wire, running):
    work = str(running.workspace)
    for name in ("a", "0", "A.b-c_d", "x" * 64):
        agent = wire.call("agent.spawn", workspace=work, name=name)
        assert wire.call("agent.show", agent=name) == wire.call("agent.show", agent=agent["id"]) == {**agent, **LIMITS}
        assert wire.refused("agent.spawn", workspace=work, name=name) == "NameTaken"
        wire.call("agent.rm", agent=agent["id"])
        assert wire.refused("agent.show", agent=name) == "NotFound"
    odd = ["", "x" * 65, ".a", "-a", "_a", "a b", "é", "a/b", "a\n", "a'b", agent["id"], agent["id"].upper()]
    names = ("all", "me", "operator", "parent", "substrat", "sub-strat", "system")
    reserved = [word for name in names for word in (name, name.upper())]
    for name in [*odd, *reserved]:
        assert wire.refused("agent.spawn", workspace=work, name=name) == "InvalidParams", name
    assert wire.call("agent.spawn", workspace=work)["name"], "one is made up"


@rule("P-QUEUE-1", "P-QUEUE-2")
def test_the_queue_of_a_login_that_is_held_is_listed_in_its_order(wire, running):
    assert wire.call("queue.try") == []
    running.run(wire, "greedy", prompt="/shell true\n/fail quota")
    for name, priority in (("first", None), ("last", "low"), ("urgent", "high")):
        running.spawn(wire, name, prompt="/say hello", priority=priority)
    queue, (gate,) = wire.call("queue.list"), wire.call("queue.gates")
    assert [list(place) for place in queue] == [list(QueuedObject.__annotations__)] * 3
    assert [(place["position"], place["agent"], place["priority"]) for place in queue] == [
        (1, "urgent", "high"), (2, "first", "normal"), (3, "last", "low"),
    ]  # fmt: skip
    ids = {agent["name"]: agent["id"] for agent in wire.call("agent.list")}
    assert wire.call("queue.list", limit=1) + wire.call("queue.list", after="urgent", limit=2) == queue
    assert (wire.call("queue.list", after=ids["last"]), wire.refused("queue.list", after="greedy")) == ([], "NotFound")
    assert [place["family"] for place in queue] == [ids[name] for name in ("urgent", "first", "last")]
    assert list(gate) == list(GateObject.__annotations__)
    assert (gate["failures"], gate["trying"]) == (1, None)
    assert all(gate["until"] in place["reason"] for place in queue)
    assert [tried["login"] for tried in wire.call("queue.try")] == [gate["login"]]
    wire.call("agent.wait", agents=["urgent", "first", "last"], until=["idle"])
    assert (wire.call("queue.list"), wire.call("queue.gates")) == ([], [])


@rule("P-WAIT-1")
def test_waiting(wire, running):
    running.spawn(wire)
    running.hold(wire, "bert")
    assert wire.call("agent.wait", agents=[]) == []
    assert wire.call("agent.wait", agents=["anna"], until=[], timeout=0)[0]["state"] == "idle"
    both = wire.call("agent.wait", agents=["bert", "anna"], until=["running", "idle"])
    assert [agent["name"] for agent in both] == ["bert", "anna"]
    assert wire.refused("agent.wait", agents=["anna", "carl"]) == "NotFound"
    assert wire.refused("agent.wait", agents=["anna", "bert"], timeout=0.01) == "WaitTimedOut"
    assert wire.refused("agent.wait_message", agent="bert", timeout=0.01) == "WaitTimedOut"
    assert wire.refused("agent.wait_message", agent="anna") == "NotFound"
    assert wire.call("agent.show", agent="bert")["state"] == "running", "it goes on"
    wait = wire.ask("agent.wait", agents=["anna"], until=["ended"])
    with running.wire() as other:
        other.call("agent.rm", agent="anna")
    assert wire.answer(wait)["error"]["data"]["type"] == "NotFound"


@rule("P-WAIT-2")
def test_waits_for_other_agents_are_listed_until_those_have_finished(wire, running):
    assert wire.call("wait.list") == []
    kid = json.dumps({"name": "kid", "prompt": "/shell while [ ! -e go ]; do sleep 0.02; done"})
    script = f"/tool spawn_agent {kid}\n" + '/tool wait_agents {"mode": "any", "timeout_s": 1000, "note": "n"}'
    running.spawn(wire, "lead", prompt=script)
    wire.call("agent.wait", agents=["lead"], until=["idle"])
    (wait,) = wire.call("wait.list", agents=["lead", "lead"])
    assert list(wait) == list(WaitObject.__annotations__)
    assert (wait["agent"], wait["names"], wait["mode"], wait["done"], wait["note"]) == ("lead", ["kid"], "any", [], "n")
    assert wire.call("wait.list", agents=["kid"]) == wire.call("wait.list", after=wait["id"]) == []
    assert wire.call("wait.list", after=wait["id"] - 1, limit=1) == [wait]
    assert wire.refused("wait.list", agents=["nemo"]) == "NotFound"
    assert wire.refused("agent.wait", agents=["lead"], timeout=0.01) == "WaitTimedOut"
    (running.workspace / "go").touch()
    (lead,) = wire.call("agent.wait", agents=["lead"])
    assert (lead["waits"], lead["turn"]["number"]) == (0, 2)


@rule("P-STOP-1")
def test_a_stop_is_answered_when_the_processes_are_gone(wire, running):
    for method, state in (("suspend", "suspended"), ("interrupt", "idle"), ("end", "ended")):
        running.hold(wire, method, before=f"/shell sleep 600 & echo $! > {running.workspace}/pid\n")
        agent = wire.call(f"agent.{method}", agent=method)
        assert working_in(running.workspace) == [], method
        assert (agent["state"], agent["turn"]["outcome"]) == (state, "interrupted")


def working_in(workspace):
    """Who works in a workspace and hasn't ended."""
    return [pid for pid in processes() if link(f"/proc/{pid}/cwd") == str(workspace)]


@rule("P-STOP-2")
def test_asking_twice_and_asking_too_much(wire, running):
    running.spawn(wire)
    assert wire.refused("agent.interrupt", agent="anna") == "Refused"
    assert [wire.call("agent.suspend", agent="anna")["state"] for _ in range(2)] == ["suspended"] * 2
    assert wire.call("agent.resume", agent="anna")["message"] is None
    wire.call("agent.suspend", agent="anna")
    sent = wire.call("agent.send", agent="anna", prompt="/say late")
    assert sent["agent"]["state"] == "suspended"
    number = wire.call("agent.resume", agent="anna")["message"]
    assert number == sent["message"]
    turn = wire.call("agent.wait_message", agent="anna", message=number, timeout=PATIENCE)["turn"]
    assert turn["result"] == "late"
    assert [wire.call("agent.end", agent="anna")["state"] for _ in range(2)] == ["ended"] * 2
    before = wire.pages()
    for method, more in (("send", {"prompt": "x"}), ("resume", {}), ("suspend", {}), ("interrupt", {})):
        assert wire.refused(f"agent.{method}", agent="anna", **more) == "Refused"
    assert wire.pages() == before
    running.hold(wire, "bert")
    assert wire.refused("agent.rm", agent="bert") == "Refused"


def test_limits_are_named(daemon):
    daemon.start("[limits]\nagents = 1\nwaiting_items = 1\n")
    with daemon.wire() as wire:
        daemon.hold(wire)
        assert wire.refused("agent.spawn", workspace=str(daemon.workspace)) == "LimitReached"
        wire.call("agent.send", agent="anna", prompt="x")
        assert wire.refused("agent.send", agent="anna", prompt="x") == "LimitReached"
        daemon.reload("[limits]\nwaiting_items = 2\n")
        wire.call("agent.send", agent="anna", prompt="x")


@rule("P-SHUT-1")
def test_turns_outlive_the_daemon(daemon):
    daemon.start()
    with daemon.wire() as wire, daemon.wire() as other:
        before = daemon.hold(wire)
        wire.call("daemon.shutdown")
        assert wire.receive() is None
        assert other.receive() is None
    assert daemon.process.wait(PATIENCE) == 0
    assert not daemon.socket.exists()
    daemon.start()
    with daemon.wire() as wire:
        assert wire.call("agent.show", agent="anna")["turn"]["id"] == before["turn"]["id"]
        daemon.release()
        assert wire.call("agent.wait", agents=["anna"])[0]["turn"]["outcome"] == "success"


@rule("P-SHUT-1")
def test_a_shutdown_that_suspends(daemon):
    daemon.start()
    with daemon.wire() as wire, daemon.wire() as watcher:
        daemon.hold(wire)
        daemon.spawn(wire, "bert")
        daemon.spawn(wire, "carl")
        wire.call("agent.end", agent="carl")
        watcher.call("events.subscribe", since=0)
        wire.call("daemon.shutdown", suspend=True)
    assert daemon.process.wait(PATIENCE) == 0
    assert working_in(daemon.workspace) == []
    daemon.start()
    with daemon.wire() as wire:
        states = {agent["name"]: agent["state"] for agent in wire.call("agent.list")}
    assert states == {"anna": "suspended", "bert": "suspended", "carl": "ended"}
