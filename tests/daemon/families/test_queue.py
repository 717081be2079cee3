"""The queue of one daemon, without processes: gates and needs with a clock that goes when asked, and commits that fail."""

import random
import uuid

import pytest
import trio
import trio.testing

from substrat.core.agents.records import Priority
from substrat.core.families.account_gate import SPREAD_S
from substrat.core.families.waits import WaitMode
from substrat.errors import InvalidParams, PolicyDenied, Refused

PATIENCE = 30
LIMIT = "ActionRequiredError: You're out of usage."


def need(house, name, *needed, parent="lead"):
    return house.spawn(name, "work", parent=parent, needs=house.families.needs.checked(house.agent(parent), needed))


def queue(house):
    return [house.registry.name_of(place.agent) for place in house.families.queue.places()]


def held_until(house):
    (gate,) = house.families.gates.shut().values()
    return gate.until


def later(house, when):
    house.clock.time = when
    house.registry.admit()


def test_a_gate_holds_its_login_and_one_turn_tries_at_a_time(house, monkeypatch):
    numbers = random.Random(1)  # an agent's id decides when in the spread its turn begins
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=numbers.getrandbits(128), version=4))
    house.spawn("greedy", "work")
    house.fall("greedy", errors=LIMIT)
    for name in ("a", "b", "c"):
        house.spawn(name, "work")
    house.spawn("rich", "work", environment=(("CURSOR_API_KEY", "x"),))
    assert [house.state(name) for name in ("a", "b", "c", "rich")] == ["queued", "queued", "queued", "running"]
    assert len(house.told("a", "turn:waiting")) == 1
    assert held_until(house) in house.runner.admissions, "the timer is set"
    later(house, held_until(house))
    assert [house.state(name) for name in ("a", "b", "c")] == ["running", "queued", "queued"]
    house.fall("a", errors="RetriableError: [unavailable] PING timed out")
    assert [house.state(name) for name in ("a", "b", "c")] == ["queued", "running", "queued"], "another one tries"
    before = house.clock.time
    house.fall("b", errors=LIMIT)
    assert 599 < held_until(house) - before < 601, "the second in a row"
    house.restart()
    assert [house.state(name) for name in ("a", "c")] == ["queued", "queued"]
    later(house, held_until(house) + 1)
    trying = next(name for name in ("a", "c") if house.state(name) == "running")
    house.finish(trying)
    assert {house.state("a"), house.state("c")} == {"idle", "queued"}, "each at a time of its own"
    later(house, house.clock.time + SPREAD_S)
    assert {house.state("a"), house.state("c")} == {"idle", "running"}
    assert house.families.gates.shut() == {}


def test_a_trial_that_is_frozen_keeps_nobody_waiting(house):
    house.spawn("greedy", "work")
    house.fall("greedy", errors=LIMIT)
    house.spawn("a", "work")
    house.spawn("b", "work")
    house.families.gates.try_now("ctl")
    assert [house.state(name) for name in ("a", "b")] == ["running", "queued"]
    assert house.families.gates.try_now("ctl") == [], "one tries already"
    house.supervisor.freeze("a")
    assert house.state("b") == "running"


def test_a_gate_that_can_not_be_stored_leaves_nothing_behind(house):
    house.spawn("greedy", "work")
    house.store.failing = True
    with pytest.raises(Exception, match="disk"):
        house.fall("greedy", errors=LIMIT)
    house.store.failing = False
    assert house.families.gates.shut() == {}
    house.fall("greedy", errors=LIMIT)
    assert len(house.families.gates.shut()) == 1


def test_families_take_turns_and_children_have_their_parents_priority(new_house):
    house = new_house(turns={"max_running": 1})
    house.spawn("lead", "work", priority=Priority.HIGH)
    house.spawn("anna", "work")
    house.spawn("kid", "work", parent="lead")
    assert house.agent("kid").settings.priority is Priority.HIGH
    assert queue(house) == ["kid", "anna"]
    house.restart()
    assert queue(house) == ["kid", "anna"]


async def test_a_check_takes_the_next_turns_place_and_gives_it_back(new_house):
    house = new_house(turns={"max_running": 1})
    house.spawn("anna", "work")
    told: list[str] = []
    go = trio.Event()

    async def check():
        async with house.families.queue.checking(told.append):
            await go.wait()

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(check)
            nursery.start_soon(check)
            await trio.testing.wait_all_tasks_blocked()
            house.spawn("bob", "work")
            await trio.testing.wait_all_tasks_blocked()
            assert set(told) == {"its check waits: 1 turn runs, as many as may at once (turns.max_running)"}
            house.finish("anna")
            await trio.testing.wait_all_tasks_blocked()
            house.registry.admit()
            assert house.state("bob") == "queued"
            (place,) = house.families.queue.places()
            assert place.reason == "place 1 in the queue: 1 check runs, as many as may at once (turns.max_running)"
            assert told[-1].startswith("its check waits: 1 check runs"), "the other one"
            go.set()
            for _ in range(2):  # the other one first
                await trio.testing.wait_all_tasks_blocked()
                later(house, house.runner.admissions[-1])
    assert house.state("bob") == "running"


async def test_a_check_that_is_no_longer_wanted_leaves_the_queue(new_house):
    house = new_house(turns={"max_running": 1})
    house.spawn("anna", "work")

    def refuse(reason):
        raise Refused(reason)

    with trio.fail_after(PATIENCE), pytest.raises(Refused):
        async with house.families.queue.checking(refuse):
            pass
    house.spawn("bob", "work")
    house.finish("anna")
    assert house.state("bob") == "running"


async def test_no_check_begins_below_the_free_space_that_turns_need(new_house):
    free = [0]
    house = new_house(lambda _path: free[0], disk={"free": 1 << 20})
    told: list[str] = []
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:

            async def check():
                async with house.families.queue.checking(told.append):
                    nursery.cancel_scope.cancel()

            nursery.start_soon(check)
            await trio.testing.wait_all_tasks_blocked()
            assert "0 MiB are free at /state, and disk.free" in told[-1]
            free[0] = 2 << 20
            later(house, house.runner.admissions[-1])
            await trio.sleep_forever()


def test_a_need_that_is_removed_or_ended_fails_and_so_does_what_needs_that_in_turn(house):
    house.spawn("lead", "work")
    for name in ("author", "other"):
        house.spawn(name, parent="lead")
    need(house, "tester", "author")
    need(house, "critic", "tester")
    need(house, "reader", "other")
    house.supervisor.remove("author")
    assert [house.state(name) for name in ("tester", "critic", "reader")] == ["failed", "failed", "queued"]
    assert "was removed before it had succeeded" in house.agent("tester").unmet
    house.supervisor.end("other")
    assert "has ended without a turn" in house.agent("reader").unmet
    house.finish("lead")
    assert all(f"{name} has done nothing" in house.prompt("lead") for name in ("tester", "critic", "reader"))
    house.supervisor.send("tester", "do it")
    assert (house.state("tester"), house.agent("tester").unmet) == ("running", None)
    house.restart()
    assert house.state("critic") == "failed"


def test_a_need_that_a_person_interrupted_is_waited_for(house):
    house.spawn("lead", "work")
    house.spawn("author", "write", parent="lead")
    need(house, "tester", "author")
    house.supervisor.interrupt("author")
    house.fall("author")
    assert (house.state("author"), house.state("tester")) == ("idle", "queued")
    house.supervisor.send("author", "write it otherwise")
    house.finish("author")
    assert house.state("tester") == "running"


def test_what_can_not_be_needed_is_refused(house):
    house.spawn("lead", "work")
    house.spawn("author", "write", parent="lead")
    house.spawn("anna", "work")
    for error, name in ((Refused, "lead"), (PolicyDenied, "anna"), (InvalidParams, "task:t1")):
        with pytest.raises(error, match=name):
            need(house, "tester", name)
    need(house, "tester", "author")
    with pytest.raises(Refused, match="author would wait for tester, who waits for author"):
        house.families.waits.register(house.agent("author"), ["tester"], WaitMode.ALL, None, None)


def test_a_child_that_met_the_limit_in_its_work_is_no_success_and_its_parent_learns_it_when_the_account_goes_on(house):
    house.spawn("lead", "work")
    house.spawn("kid", "part", parent="lead")
    house.families.waits.register(house.agent("lead"), None, WaitMode.ALL, None, None)
    house.finish("lead")
    house.write("kid", {"type": "tool_call", "subtype": "started", "tool_call": {"shellToolCall": {"args": {}}}})
    house.fall("kid", errors=LIMIT)
    assert (house.state("kid"), house.state("lead")) == ("failed", "queued")
    later(house, held_until(house))
    told = house.prompt("lead")
    assert "kid (failed): turn 1, error" in told
    assert "> the account has used up what it may" in told
    assert "success" not in told
