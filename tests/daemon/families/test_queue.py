"""The queue of one daemon, without processes: gates and needs with a clock that goes when asked, and commits that fail."""

import random
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from substrat.core.agents.records import Priority
from substrat.core.families.account_gate import SPREAD_S
from substrat.core.families.waits import WaitMode
from substrat.daemon.agents.allow_list import AllowLists
from substrat.daemon.agents.settings import Settings, WantedSettings
from substrat.errors import InvalidParams, PolicyDenied, Refused

PATIENCE = 30
LIMIT = "ActionRequiredError: You're out of usage."


def need(agents, name, *needed, parent="lead"):
    return agents.spawn(name, "work", parent=parent, needs=agents.families.needs.checked(agents.agent(parent), needed))


def queue(agents):
    return [agents.registry.name_of(place.agent) for place in agents.families.queue.places()]


def held_until(agents):
    (gate,) = agents.families.gates.shut().values()
    return gate.until


def later(agents, when):
    agents.clock.time = when
    agents.registry.admit()


def test_a_gate_holds_its_login_and_one_turn_tries_at_a_time(agents, monkeypatch):
    numbers = random.Random(1)  # an agent's id decides when in the spread its turn begins
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=numbers.getrandbits(128), version=4))
    agents.spawn("greedy", "work")
    agents.fall("greedy", errors=LIMIT)
    for name in ("a", "b", "c"):
        agents.spawn(name, "work")
    agents.spawn("rich", "work", environment=(("CURSOR_API_KEY", "x"),))
    assert [agents.state(name) for name in ("a", "b", "c", "rich")] == ["queued", "queued", "queued", "running"]
    assert len(agents.told("a", "turn:waiting")) == 1
    assert held_until(agents) in agents.runner.admissions, "the timer is set"
    later(agents, held_until(agents))
    assert [agents.state(name) for name in ("a", "b", "c")] == ["running", "queued", "queued"]
    agents.fall("a", errors="RetriableError: [unavailable] PING timed out")
    assert [agents.state(name) for name in ("a", "b", "c")] == ["queued", "running", "queued"], "another one tries"
    before = agents.clock.time
    agents.fall("b", errors=LIMIT)
    assert 599 < held_until(agents) - before < 601, "the second in a row"
    agents.restart()
    assert [agents.state(name) for name in ("a", "c")] == ["queued", "queued"]
    later(agents, held_until(agents) + 1)
    trying = next(name for name in ("a", "c") if agents.state(name) == "running")
    agents.finish(trying)
    assert {agents.state("a"), agents.state("c")} == {"idle", "queued"}, "each at a time of its own"
    later(agents, agents.clock.time + SPREAD_S)
    assert {agents.state("a"), agents.state("c")} == {"idle", "running"}
    assert agents.families.gates.shut() == {}


def test_another_model_of_the_login_goes_on_until_it_has_met_the_limit_too(agents):
    for name, model in (("greedy", "opus"), ("other", "auto")):
        agents.spawn(name, "work", model=model)
    agents.fall("greedy", errors=LIMIT)
    agents.spawn("a", "work", model="auto")
    agents.spawn("b", "work", model="opus")
    assert [agents.state(name) for name in ("a", "b")] == ["running", "queued"]
    agents.finish("a")
    agents.restart()
    assert agents.state("b") == "queued", "what another model can says nothing"
    agents.fall("other", errors=LIMIT)
    agents.supervisor.send("a", "more")
    assert agents.state("a") == "queued"


def test_an_agent_that_is_given_another_model_goes_on_at_once(agents):
    agents.spawn("greedy", "work", model="opus")
    agents.fall("greedy", errors=LIMIT)
    agents.spawn("b", "work", model="opus")
    assert agents.state("b") == "queued"
    networks: Any = SimpleNamespace(changed=lambda *_: None)
    Settings(agents.registry, AllowLists(agents.registry, networks)).change("b", WantedSettings(model="auto"), "operator")
    assert agents.state("b") == "running"


def test_a_trial_that_is_frozen_keeps_nobody_waiting(agents):
    agents.spawn("greedy", "work")
    agents.fall("greedy", errors=LIMIT)
    agents.spawn("a", "work")
    agents.spawn("b", "work")
    agents.families.gates.try_now("ctl")
    assert [agents.state(name) for name in ("a", "b")] == ["running", "queued"]
    assert agents.families.gates.try_now("ctl") == [], "one tries already"
    agents.supervisor.freeze("a")
    assert agents.state("b") == "running"


def test_a_gate_that_can_not_be_stored_leaves_nothing_behind(agents):
    agents.spawn("greedy", "work")
    agents.store.failing = True
    with pytest.raises(Exception, match="disk"):
        agents.fall("greedy", errors=LIMIT)
    agents.store.failing = False
    assert agents.families.gates.shut() == {}
    agents.fall("greedy", errors=LIMIT)
    assert len(agents.families.gates.shut()) == 1


def test_families_take_turns_and_children_have_their_parents_priority(new_agents):
    agents = new_agents(turns={"max_running": 1})
    agents.spawn("lead", "work", priority=Priority.HIGH)
    agents.spawn("anna", "work")
    agents.spawn("kid", "work", parent="lead")
    assert agents.agent("kid").settings.priority is Priority.HIGH
    assert queue(agents) == ["kid", "anna"]
    agents.restart()
    assert queue(agents) == ["kid", "anna"]


async def test_a_check_takes_the_next_turns_place_and_gives_it_back(new_agents):
    agents = new_agents(turns={"max_running": 1})
    agents.spawn("anna", "work")
    told: list[str] = []
    go = trio.Event()

    async def check():
        async with agents.families.queue.checking(told.append):
            await go.wait()

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(check)
            nursery.start_soon(check)
            await trio.testing.wait_all_tasks_blocked()
            agents.spawn("bob", "work")
            await trio.testing.wait_all_tasks_blocked()
            assert set(told) == {"its check waits: 1 turn runs, as many as may at once (turns.max_running)"}
            agents.finish("anna")
            await trio.testing.wait_all_tasks_blocked()
            agents.registry.admit()
            assert agents.state("bob") == "queued"
            (place,) = agents.families.queue.places()
            assert place.reason == "place 1 in the queue: 1 check runs, as many as may at once (turns.max_running)"
            assert told[-1].startswith("its check waits: 1 check runs"), "the other one"
            go.set()
            for _ in range(2):  # the other one first
                await trio.testing.wait_all_tasks_blocked()
                later(agents, agents.runner.admissions[-1])
    assert agents.state("bob") == "running"


async def test_a_check_that_is_no_longer_wanted_leaves_the_queue(new_agents):
    agents = new_agents(turns={"max_running": 1})
    agents.spawn("anna", "work")

    def refuse(reason):
        raise Refused(reason)

    with trio.fail_after(PATIENCE), pytest.raises(Refused):
        async with agents.families.queue.checking(refuse):
            pass
    agents.spawn("bob", "work")
    agents.finish("anna")
    assert agents.state("bob") == "running"


async def test_no_check_begins_below_the_free_space_that_turns_need(new_agents):
    free = [0]
    agents = new_agents(lambda _path: free[0], disk={"free": 1 << 20})
    told: list[str] = []
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:

            async def check():
                async with agents.families.queue.checking(told.append):
                    nursery.cancel_scope.cancel()

            nursery.start_soon(check)
            await trio.testing.wait_all_tasks_blocked()
            assert "0 MiB are free at /state, and disk.free" in told[-1]
            free[0] = 2 << 20
            later(agents, agents.runner.admissions[-1])
            await trio.sleep_forever()


def test_a_need_that_is_removed_or_ended_fails_and_so_does_what_needs_that_in_turn(agents):
    agents.spawn("lead", "work")
    for name in ("author", "other"):
        agents.spawn(name, parent="lead")
    need(agents, "tester", "author")
    need(agents, "critic", "tester")
    need(agents, "reader", "other")
    agents.supervisor.remove("author")
    assert [agents.state(name) for name in ("tester", "critic", "reader")] == ["failed", "failed", "queued"]
    assert "was removed before it had succeeded" in agents.agent("tester").unmet
    agents.supervisor.end("other")
    assert "has ended without a turn" in agents.agent("reader").unmet
    agents.finish("lead")
    assert all(f"{name} has done nothing" in agents.prompt("lead") for name in ("tester", "critic", "reader"))
    agents.supervisor.send("tester", "do it")
    assert (agents.state("tester"), agents.agent("tester").unmet) == ("running", None)
    agents.restart()
    assert agents.state("critic") == "failed"


def test_a_need_that_a_person_interrupted_is_waited_for(agents):
    agents.spawn("lead", "work")
    agents.spawn("author", "write", parent="lead")
    need(agents, "tester", "author")
    agents.supervisor.interrupt("author")
    agents.fall("author")
    assert (agents.state("author"), agents.state("tester")) == ("idle", "queued")
    agents.supervisor.send("author", "write it otherwise")
    agents.finish("author")
    assert agents.state("tester") == "running"


def test_what_can_not_be_needed_is_refused(agents):
    agents.spawn("lead", "work")
    agents.spawn("author", "write", parent="lead")
    agents.spawn("anna", "work")
    for error, name in ((Refused, "lead"), (PolicyDenied, "anna"), (InvalidParams, "task:t1")):
        with pytest.raises(error, match=name):
            need(agents, "tester", name)
    need(agents, "tester", "author")
    with pytest.raises(Refused, match="author would wait for tester, who waits for author"):
        agents.families.waits.register(agents.agent("author"), ["tester"], WaitMode.ALL, None, None)


def test_a_child_that_met_the_limit_in_its_work_is_no_success_and_its_parent_learns_it_when_the_account_goes_on(agents):
    agents.spawn("lead", "work")
    agents.spawn("kid", "part", parent="lead")
    agents.families.waits.register(agents.agent("lead"), None, WaitMode.ALL, None, None)
    agents.finish("lead")
    agents.write("kid", {"type": "tool_call", "subtype": "started", "tool_call": {"shellToolCall": {"args": {}}}})
    agents.fall("kid", errors=LIMIT)
    assert (agents.state("kid"), agents.state("lead")) == ("failed", "queued")
    later(agents, held_until(agents))
    told = agents.prompt("lead")
    assert "kid (failed): turn 1, error" in told
    assert "> the account has used up what it may" in told
    assert "success" not in told
