"""The totals of one daemon, without processes: exact over a script, and untouched by restarts, removals and failures."""

from dataclasses import replace

import pytest

from substrat.core.agents import totals
from substrat.core.agents.records import Intent
from substrat.core.programs.table import CURSOR, PROGRAMS
from substrat.errors import StorageFailed

TOOL = {"type": "tool_call", "call_id": "c", "tool_call": {"shellToolCall": {"args": {"command": "make"}}}}


def found(agents):
    """The totals as they are stored, without durations."""
    stored = agents.store.totals()
    return {key: value for key, value in stored.items() if not key[0].startswith(("turn_seconds", "queue_seconds"))}


def test_totals_are_exact_over_a_script(agents):
    agents.spawn("anna", "one", model="gpt-5")
    agents.spawn("bert", "two")
    agents.begin("anna")
    agents.write("anna", {**TOOL, "subtype": "started"}, {**TOOL, "subtype": "completed"}, {**TOOL, "subtype": "started"})
    turn = agents.turn("anna").id
    agents.book.network_decided(turn, "network:denied", "a.example:443", "a.example")
    agents.book.network_decided(turn, "network:allowed", "b.example:443", None)
    agents.supervisor.message(agents.agent("anna"), "bert", "hello", Intent.INFORM, None)
    agents.supervisor.message(agents.agent("anna"), "operator", "hello", Intent.INFORM, None)
    agents.finish("anna", usage={"inputTokens": 10, "outputTokens": 2})
    agents.fall("bert")
    agents.supervisor.send("anna", "more")
    agents.finish("anna", usage={"inputTokens": 5, "cacheReadTokens": 4})
    expected = {
        ("turns", "success"): 2, ("turns", "error"): 1, ("tokens", "input gpt-5"): 15, ("tokens", "output gpt-5"): 2,
        ("tokens", "cache_read gpt-5"): 4, ("tool_calls", ""): 2, ("messages", "accepted"): 2, ("network", "denied"): 1,
        ("network", "allowed"): 1,
    }  # fmt: skip
    assert found(agents) == expected
    counts = totals.put_together(agents.store.totals())
    assert [counts[name]["count"] for name in ("turn_seconds", "queue_seconds")] == [3, 3]
    before = agents.store.totals()
    agents.restart()
    agents.journal.delete([event.cursor for event in agents.journal.page(0, None, 1000)])
    for name in ("anna", "bert"):
        agents.supervisor.remove(name)
    assert agents.store.totals() == before


def test_tokens_are_those_of_the_model_that_the_turn_began_with(agents):
    agents.spawn("anna", "one", model="first")
    with agents.registry.change("settings changed") as change:
        change.put(replace(agents.agent("anna"), model="second"))
    agents.finish("anna", usage={"inputTokens": 1})
    agents.supervisor.send("anna", "more")
    agents.finish("anna", usage={"inputTokens": 2})
    assert {key: value for key, value in found(agents).items() if key[0] == "tokens"} == {
        ("tokens", "input first"): 1, ("tokens", "input second"): 2,
    }  # fmt: skip


def test_a_change_that_fails_adds_nothing_and_is_counted_once_when_it_succeeds(agents):
    agents.spawn("anna", "one")
    before = agents.store.totals()
    agents.store.failing = True
    with pytest.raises(StorageFailed):
        agents.finish("anna", usage={"inputTokens": 1})
    with pytest.raises(StorageFailed):
        agents.write("anna", {**TOOL, "subtype": "started"})
    assert agents.store.totals() == before
    agents.store.failing = False
    agents.write("anna", {**TOOL, "subtype": "started"})
    agents.finish("anna", usage={"inputTokens": 1})
    assert found(agents) == {("tool_calls", ""): 1, ("turns", "success"): 1, ("tokens", "input auto"): 1}


def test_the_wait_in_the_queue_is_counted_and_not_the_turn_before(new_agents):
    agents = new_agents(turns={"max_running": 1})
    agents.spawn("anna", "one")
    agents.spawn("bert", "two")
    agents.supervisor.send("anna", "after a hundred seconds of her own")
    agents.clock.time += 100
    agents.finish("anna")
    agents.clock.time += 1000
    agents.finish("bert")
    waited = totals.put_together(agents.store.totals())["queue_seconds"]
    counts = {bucket["up_to"]: bucket["count"] for bucket in waited["buckets"]}
    assert [counts[bound] for bound in (15.0, 300.0, 900.0, 3600.0)] == [1, 2, 2, 3]
    assert waited["sum"] == pytest.approx(1100, abs=15)


def test_of_a_program_that_counts_the_whole_session_a_turn_gets_its_own_share(agents, monkeypatch):
    monkeypatch.setitem(PROGRAMS, CURSOR.id, CURSOR._replace(usage_is_total=True))
    agents.spawn("anna", "one")
    agents.begin("anna")
    agents.finish("anna", usage={"inputTokens": 450})
    agents.supervisor.send("anna", "more")
    agents.finish("anna", usage={"inputTokens": 900, "outputTokens": 5})
    agents.supervisor.send("anna", "more")
    agents.finish("anna", usage={"inputTokens": 1350, "outputTokens": 5})
    own = [used.usage for used in agents.store.usages(agents.agent("anna").id, 0, 9)]
    assert own == [{"inputTokens": 450}, {"inputTokens": 450, "outputTokens": 5}, {"inputTokens": 450, "outputTokens": 0}]
    assert agents.agent("anna").tokens.input == 1350


def test_a_session_that_takes_anothers_place_counts_from_its_own_beginning(agents, monkeypatch):
    monkeypatch.setitem(PROGRAMS, CURSOR.id, CURSOR._replace(usage_is_total=True))
    agents.spawn("anna", "one")
    first = agents.begin("anna")
    agents.finish("anna", usage={"inputTokens": 900})
    agents.supervisor.send("anna", "more")
    assert agents.begin("anna") != first
    agents.finish("anna", usage={"inputTokens": 450})
    agents.supervisor.send("anna", "more")
    agents.finish("anna", usage={"inputTokens": 600})
    own = [used.usage for used in agents.store.usages(agents.agent("anna").id, 0, 9)]
    assert own == [{"inputTokens": 900}, {"inputTokens": 450}, {"inputTokens": 150}]
