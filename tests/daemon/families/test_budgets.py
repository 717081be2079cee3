"""Budgets in a daemon without processes: who counts for whom, what waits, and what goes on by itself."""

import uuid

import pytest
import trio
import trio.testing

from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.prices import Price
from substrat.core.agents.records import Process
from substrat.core.agents.verdict import TurnObservation, judge
from substrat.core.families.scheduling import ObstacleKind
from substrat.core.programs.program import TurnResult
from substrat.core.programs.table import CURSOR
from substrat.daemon.families.budgets import Wish
from substrat.errors import InvalidParams, OutOfBudget, PolicyDenied, Refused
from tests.support.waiting import PATIENCE

ENDED = Process(17, 99, "boot")
"""A process of another boot."""
SHELL = {"shellToolCall": {"args": {"command": "x"}}}
CALL = {"type": "tool_call", "subtype": "started", "call_id": "c", "tool_call": SHELL}


def give(agents, name, *, clear=False, more=(), **limits):
    agents.families.budgets.change(name, Wish(limits, dict(more), clear), "ctl")


def used(agents, name):
    return agents.agent(name).budget.used


def attention(agents, name):
    (found,) = agents.families.overview.attentions([agents.agent(name)])
    return found.kind.value, found.text


def reason(agents, name):
    return next(place.reason for place in agents.families.queue.places() if agents.registry.name_of(place.agent) == name)


def test_turns_of_a_family_are_counted_together_and_the_rest_waits(agents):
    agents.spawn("lead", "lead", budget={"turns": 3.0})
    agents.begin("lead")
    for name in ("a", "b", "c"):
        agents.spawn(name, "work", parent="lead")
    assert [agents.state(name) for name in ("a", "b", "c")] == ["running", "running", "queued"]
    assert used(agents, "lead") == {"turns": 3}
    assert [kind for kind, _ in agents.told("lead") if kind.startswith("budget:")] == ["budget:out"]
    used_up = "3 of 3 turns of the budget of lead are used: `substratctl budget lead --add turns=1` lets it go on"
    assert reason(agents, "c") == used_up
    for name in ("a", "b", "lead"):
        agents.finish(name)
    assert attention(agents, "lead") == ("budget", "3 of 3 turns: budget lead --add turns=1")
    assert attention(agents, "c") == ("queued", reason(agents, "c"))
    assert agents.told("c", "turn:waiting") == [("turn:waiting", f"its turn waits: {reason(agents, 'c')}")]
    agents.restart()
    assert agents.state("c") == "queued"
    give(agents, "lead", more={"turns": 1.0})
    assert agents.state("c") == "running"
    assert attention(agents, "lead")[0] != "budget"


def test_dollars_are_those_of_the_started_model_where_the_program_names_one_for_people(agents):
    agents.registry.prices = {"priced": Price(input=1.0, output=10.0)}
    agents.spawn("lead", "work", model="priced", budget={"usd": 1.0})
    agents.begin("lead")
    agents.finish("lead", "done", {"inputTokens": 100_000})
    assert (agents.agent("lead").turn.told_model, used(agents, "lead")["usd"]) == (None, pytest.approx(0.1)), "it says Auto"


def test_dollars_are_counted_by_the_model_that_the_program_names(agents):
    agents.registry.prices = {"priced": Price(input=1.0, output=10.0), "cheap": Price(input=0.1, output=1.0)}
    agents.spawn("lead", "work", model="priced", budget={"usd": 1.0})
    agents.spawn("kid", "part", parent="lead", model="priced")
    million = {"inputTokens": 400_000, "outputTokens": 10_000}
    agents.begin("kid")
    agents.finish("kid", "done", million)
    assert used(agents, "lead") == pytest.approx({"turns": 2.0, "usd": 0.5, "input_tokens": 4e5, "output_tokens": 1e4})
    agents.write("lead", {"type": "system", "subtype": "init", "session_id": str(uuid.uuid4()), "model": "cheap"})
    agents.finish("lead", "done", million)
    assert used(agents, "lead")["usd"] == pytest.approx(0.55)
    for name, asked in (("other", lambda: agents.spawn("other", parent="lead", model="auto")),
                        ("alone", lambda: agents.spawn("alone", model="auto", budget={"usd": 1.0}))):  # fmt: skip
        with pytest.raises(InvalidParams, match="the model 'auto' has no list price"):
            asked()
        assert name not in {agent.name for agent in agents.registry.agents}
    agents.spawn("free", model="auto")
    with pytest.raises(InvalidParams, match="the model 'auto' has no list price"):
        give(agents, "free", usd=1.0)


def test_a_turn_without_a_price_pauses_the_pool_until_a_person_counts_on(agents):
    agents.registry.prices = {"priced": Price(input=1.0, output=10.0)}
    agents.spawn("lead", "work", model="priced", budget={"usd": 1.0})
    agents.write("lead", {"type": "system", "subtype": "init", "session_id": str(uuid.uuid4()), "model": "opus-9"})
    agents.finish("lead", "done", {"inputTokens": 5})
    agents.supervisor.send("lead", "more")
    assert attention(agents, "lead") == (
        "budget", "opus-9 has no list price, so the usd of a turn aren't known: budget lead --set usd=1",
    )  # fmt: skip
    agents.restart()
    agents.registry.prices = {"priced": Price(input=1.0, output=10.0)}
    assert agents.state("lead") == "queued"
    give(agents, "lead", usd=1.0)
    assert agents.state("lead") == "running"


def test_a_budget_whose_rest_would_be_overspent_at_once_is_not(agents):
    agents.admission.close()
    agents.spawn("lead", "lead", budget={"turns": 2.0})
    for name in ("a", "b", "c"):
        agents.spawn(name, "work", parent="lead")
    agents.spawn("other", "work")
    agents.admission.open()
    agents.registry.admit()
    assert sorted(agents.state(name) for name in ("lead", "a", "b", "c")) == ["queued", "queued", "running", "running"]
    assert agents.state("other") == "running"


def test_a_childs_use_counts_up_the_chain_and_its_own_budget_is_a_part_of_its_parents(agents):
    agents.spawn("lead", "lead", budget={"turns": 10.0, "output_tokens": 100.0})
    agents.begin("lead")
    with pytest.raises(PolicyDenied, match="turns can be 9 at most, the rest of lead's budget"):
        agents.spawn("kid", "work", parent="lead", budget={"turns": 10.0})
    agents.spawn("kid", "work", parent="lead", budget={"turns": 2.0})
    agents.book.turn_spawned(agents.turn("kid").id, None)
    agents.begin("kid")
    agents.finish("kid", usage={"inputTokens": 7, "outputTokens": 100})
    assert used(agents, "kid")["turns"] == 1
    assert used(agents, "lead")["output_tokens"] == 100
    assert 0 < used(agents, "kid")["minutes"] < 1
    agents.supervisor.send("kid", "more")
    assert agents.state("kid") == "queued", "lead's tokens are used up, kid's turns aren't"
    assert "lead" in reason(agents, "kid")


def test_turns_that_run_are_stopped_at_the_last_tool_call_and_go_on_where_they_were(agents):
    agents.spawn("lead", "lead", budget={"tool_calls": 2.0})
    session = agents.begin("lead")
    agents.spawn("kid", "work", parent="lead")
    agents.begin("kid")
    agents.write("lead", CALL, {**CALL, "call_id": "d"})
    assert {reason.kind for _, reason in agents.runner.stopped} == {"budget"}
    assert len(agents.runner.stopped) == 2
    for name in ("lead", "kid"):
        agents.fall(name)
        assert agents.state(name) == "queued"
    assert attention(agents, "lead")[0] == "budget"
    agents.restart()
    give(agents, "lead", more={"tool_calls": 5.0})
    assert (agents.state("lead"), agents.state("kid")) == ("running", "running")
    assert agents.agent("lead").session.id == session
    assert agents.prompt("lead").startswith("You were stopped in the middle of the task below")
    assert "> lead" in agents.prompt("lead")


def test_a_parent_hears_of_a_child_that_was_stopped_for_the_budget_once_it_is_done(agents):
    agents.spawn("lead", "lead", budget={"tool_calls": 1.0})
    agents.begin("lead")
    agents.spawn("kid", "work", parent="lead")
    agents.begin("kid")
    agents.finish("lead")
    agents.write("kid", CALL)
    agents.fall("kid")
    assert (agents.state("kid"), agents.state("lead")) == ("queued", "idle")
    assert agents.told("lead", "message:received") == []
    give(agents, "lead", more={"tool_calls": 9.0})
    agents.begin("kid", agents.agent("kid").session.id)
    agents.finish("kid", "all of it")
    assert "all of it" in agents.told("lead", "message:received")[0][1]


def test_minutes_run_out_while_turns_run(agents, clock):
    agents.spawn("lead", "lead", budget={"minutes": 1.0})
    agents.book.turn_spawned(agents.turn("lead").id, None)
    agents.begin("lead")
    agents.registry.admit()
    assert 50 < min(agents.runner.admissions) - clock.time < 61, "it is looked at in time"
    clock.time += 61
    agents.registry.admit()
    assert [reason.kind for _, reason in agents.runner.stopped] == ["budget"]
    assert agents.told("lead", "budget:out")[0][1].startswith("1.0 of 1 minutes")
    agents.fall("lead")
    assert (agents.state("lead"), attention(agents, "lead")[0]) == ("queued", "budget")


def test_so_many_turns_run_at_once_and_only_the_queue_tells(agents):
    agents.spawn("lead", budget={"running": 1.0})
    agents.spawn("a", "work", parent="lead")
    agents.spawn("b", "work", parent="lead")
    assert (agents.state("a"), agents.state("b")) == ("running", "queued")
    (place,) = agents.families.queue.places()
    assert place.obstacle.kind is ObstacleKind.AT_ONCE
    assert place.reason == "1 turns of lead and its descendants run, as many as its budget lets at once"
    assert attention(agents, "lead")[0] == "idle"
    agents.begin("a")
    agents.finish("a")
    assert agents.state("b") == "running"


def test_a_line_of_events_tells_of_four_fifths_and_of_the_end(agents):
    agents.spawn("lead", "one", budget={"turns": 5.0})
    for number in range(4):
        agents.begin("lead")
        agents.finish("lead")
        agents.supervisor.send("lead", f"more {number}")
    assert [kind for kind, _ in agents.told("lead") if kind.startswith("budget:")] == ["budget:warned", "budget:out"]


def test_a_person_takes_a_budget_away_and_an_ended_agent_has_none(agents):
    agents.spawn("lead", "lead", budget={"turns": 0.0})
    agents.spawn("kid", "work", parent="lead")
    assert (agents.state("lead"), agents.state("kid")) == ("queued", "queued")
    give(agents, "lead", clear=True)
    assert (agents.state("lead"), agents.state("kid")) == ("running", "running")
    assert (agents.agent("lead").budget, agents.agent("kid").budget) == (None, None)
    agents.supervisor.suspend("kid")
    agents.fall("kid")
    agents.supervisor.end("kid")
    assert agents.agent("kid").phase is Phase.ENDED
    with pytest.raises(Refused, match="kid has ended"):
        give(agents, "kid", turns=1.0)


def test_what_a_removed_child_has_used_stays_used(agents):
    agents.spawn("lead", budget={"turns": 2.0})
    agents.spawn("kid", "work", parent="lead")
    agents.begin("kid")
    agents.finish("kid")
    before = used(agents, "lead")
    agents.supervisor.remove("kid")
    assert used(agents, "lead") == before
    assert before["turns"] == 2, "the kid's, and lead's that was told"


def test_a_suspended_turn_stays_suspended_when_there_is_more(agents):
    agents.spawn("lead", "lead", budget={"tool_calls": 1.0})
    agents.begin("lead")
    agents.write("lead", CALL)
    agents.supervisor.suspend("lead")
    agents.fall("lead")
    give(agents, "lead", more={"tool_calls": 1.0})
    assert agents.state("lead") == "suspended"


def test_what_ends_first_holds_back_no_other_limit(agents, clock):
    agents.spawn("lead", "lead", budget={"turns": 1.0, "minutes": 1.0})
    agents.book.turn_spawned(agents.turn("lead").id, None)
    agents.begin("lead")
    agents.registry.admit()
    assert agents.told("lead", "budget:out") == [("budget:out", "1 of 1 turns, 0 of 1 minutes of its budget are used")]
    clock.time += 61
    agents.registry.admit()
    assert [reason.kind for _, reason in agents.runner.stopped] == ["budget"]


def test_limits_that_are_lowered_below_what_is_used_stop_turns_that_run(agents):
    agents.spawn("lead", "lead", budget={"tool_calls": 10.0})
    agents.begin("lead")
    agents.write("lead", CALL, {**CALL, "call_id": "d"})
    assert agents.runner.stopped == []
    give(agents, "lead", tool_calls=2.0)
    assert [reason.kind for _, reason in agents.runner.stopped] == ["budget"]


def test_a_frozen_turn_counts_and_is_stopped_once_it_goes_on(agents, clock):
    agents.spawn("lead", "lead", budget={"minutes": 2.0})
    agents.spawn("kid", "work", parent="lead")
    for name in ("lead", "kid"):
        agents.book.turn_spawned(agents.turn(name).id, None)
        agents.begin(name)
    clock.time += 50
    agents.supervisor.freeze("kid")
    clock.time += 50
    agents.registry.admit()
    assert {turn for turn, _ in agents.runner.stopped} == {agents.turn("lead").id}, "50 s of kid and 100 s of lead"
    agents.supervisor.resume("kid", None)
    assert {turn for turn, _ in agents.runner.stopped} == {agents.turn("lead").id, agents.turn("kid").id}


def test_a_turn_that_ended_while_no_daemon_ran_counts_as_long_as_it_took(agents, clock):
    agents.spawn("lead", "lead", budget={"minutes": 60.0})
    agents.book.turn_spawned(agents.turn("lead").id, ENDED)
    agents.begin("lead")
    started = clock.time
    clock.time += 7200
    agents.restart()
    assert agents.runner.stopped == []
    agents.finish("lead", ended_at=started + 60)
    assert 0.9 < used(agents, "lead")["minutes"] < 1.2
    agents.supervisor.send("lead", "more")
    assert agents.state("lead") == "running"


def test_an_owner_that_has_ended_can_have_more_for_those_below_it(agents):
    agents.spawn("lead", "lead", budget={"turns": 2.0})
    agents.begin("lead")
    agents.spawn("kid", "work", parent="lead")
    agents.begin("kid")
    agents.supervisor.end("lead")
    agents.fall("lead")
    agents.finish("kid")
    agents.supervisor.send("kid", "more")
    assert (agents.state("lead"), agents.state("kid")) == ("ended", "queued")
    give(agents, "lead", more={"turns": 1.0})
    assert agents.state("kid") == "running"


def test_the_removal_of_an_owner_lets_those_below_it_go_on(agents):
    agents.spawn("lead", budget={"turns": 0.0})
    agents.spawn("kid", "work", parent="lead")
    assert agents.state("kid") == "queued"
    agents.supervisor.remove("lead")
    assert agents.state("kid") == "running"


def test_suspend_and_resume_of_an_agent_that_waits_for_its_budget_double_nothing(agents):
    agents.spawn("lead", "lead", budget={"tool_calls": 1.0})
    agents.begin("lead")
    agents.write("lead", CALL)
    agents.fall("lead")
    agents.supervisor.suspend("lead")
    agents.supervisor.resume("lead", None)
    assert agents.agent("lead").waiting == 1
    give(agents, "lead", more={"tool_calls": 9.0})
    agents.begin("lead", agents.agent("lead").session.id)
    agents.finish("lead")
    assert (agents.state("lead"), agents.turn("lead").number) == ("idle", 2)


def test_a_stopped_program_that_calls_it_an_error_is_gone_on_with(agents):
    agents.spawn("lead", "lead", budget={"tool_calls": 1.0})
    agents.begin("lead")
    agents.write("lead", CALL)
    stop = agents.turn("lead").stop
    seen = TurnObservation(TurnResult("aborted", is_error=True, usage=None), 1, stop, "", anything=True)
    agents.book.turn_over(agents.turn("lead").id, judge(seen, CURSOR), seen)
    assert agents.state("lead") == "queued"
    give(agents, "lead", more={"tool_calls": 9.0})
    assert agents.prompt("lead").startswith("You were stopped in the middle of the task below")


def test_a_turn_that_ends_by_itself_with_the_last_minute_is_no_stopped_one(agents, clock):
    agents.spawn("lead", "lead", budget={"minutes": 1.0})
    agents.book.turn_spawned(agents.turn("lead").id, None)
    agents.begin("lead")
    clock.time += 61
    agents.finish("lead", ended_at=clock.time)
    assert (agents.state("lead"), agents.turn("lead").stop, agents.runner.stopped) == ("idle", None, [])
    assert agents.told("lead", "budget:out")


def test_what_is_left_counts_the_minutes_of_turns_that_run(agents, clock):
    agents.spawn("lead", "lead", budget={"minutes": 60.0})
    agents.book.turn_spawned(agents.turn("lead").id, None)
    agents.begin("lead")
    clock.time += 50 * 60
    with pytest.raises(PolicyDenied, match=r"minutes can be 10\.0 at most"):
        agents.spawn("kid", "work", parent="lead", budget={"minutes": 60.0})
    give(agents, "lead", turns=100.0)
    assert agents.told("lead", "budget:changed")[0][1].startswith("50.0 of 60 minutes, 1 of 100 turns")


def test_a_budget_above_leaves_the_counts_of_a_living_one_below(agents):
    agents.spawn("lead", "lead")
    agents.spawn("mid", "work", parent="lead", budget={"turns": 5.0})
    agents.spawn("leaf", "work", parent="mid")
    give(agents, "lead", turns=9.0)
    assert (used(agents, "mid"), used(agents, "leaf")) == ({"turns": 2}, {"turns": 1})
    give(agents, "mid", clear=True)
    agents.begin("leaf")
    agents.finish("leaf")
    agents.supervisor.send("leaf", "more")
    assert (used(agents, "lead")["turns"], used(agents, "leaf")["turns"]) == (1, 2)


async def test_who_waits_hears_of_a_budget_that_an_ancestor_gets_meanwhile(agents):
    agents.admission.close()
    agents.spawn("lead")
    agents.spawn("kid", "work", parent="lead")
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agents.families.waiting.states, ["kid"], None)
            await trio.testing.wait_all_tasks_blocked()
            give(agents, "lead", turns=0.0)
    with pytest.raises(OutOfBudget, match="kid waits: 0 of 0 turns of the budget of lead are used"):
        await agents.families.waiting.item("kid", None)
