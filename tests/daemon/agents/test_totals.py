"""The totals of one daemon, without processes: exact over a script, and untouched by restarts, removals and failures."""

from dataclasses import replace

import pytest

from substrat.core.agents import totals
from substrat.core.agents.records import Intent
from substrat.core.programs.table import CURSOR, PROGRAMS
from substrat.errors import StorageFailed

TOOL = {"type": "tool_call", "call_id": "c", "tool_call": {"shellToolCall": {"args": {"command": "make"}}}}


def found(house):
    """The totals as they are stored, without durations."""
    stored = house.store.totals()
    return {key: value for key, value in stored.items() if not key[0].startswith(("turn_seconds", "queue_seconds"))}


def test_totals_are_exact_over_a_script(house):
    house.spawn("anna", "one", model="gpt-5")
    house.spawn("bert", "two")
    house.begin("anna")
    house.write("anna", {**TOOL, "subtype": "started"}, {**TOOL, "subtype": "completed"}, {**TOOL, "subtype": "started"})
    turn = house.turn("anna").id
    house.book.network_decided(turn, "network:denied", "a.example:443", "a.example")
    house.book.network_decided(turn, "network:allowed", "b.example:443", None)
    house.supervisor.message(house.agent("anna"), "bert", "hello", Intent.INFORM, None)
    house.supervisor.message(house.agent("anna"), "operator", "hello", Intent.INFORM, None)
    house.finish("anna", usage={"inputTokens": 10, "outputTokens": 2})
    house.fall("bert")
    house.supervisor.send("anna", "more")
    house.finish("anna", usage={"inputTokens": 5, "cacheReadTokens": 4})
    expected = {
        ("turns", "success"): 2, ("turns", "error"): 1, ("tokens", "input gpt-5"): 15, ("tokens", "output gpt-5"): 2,
        ("tokens", "cache_read gpt-5"): 4, ("tool_calls", ""): 2, ("messages", "accepted"): 2, ("network", "denied"): 1,
        ("network", "allowed"): 1,
    }  # fmt: skip
    assert found(house) == expected
    counts = totals.put_together(house.store.totals())
    assert [counts[name]["count"] for name in ("turn_seconds", "queue_seconds")] == [3, 3]
    before = house.store.totals()
    house.restart()
    house.journal.delete([event.cursor for event in house.journal.page(0, None, 1000)])
    for name in ("anna", "bert"):
        house.supervisor.remove(name)
    assert house.store.totals() == before


def test_tokens_are_those_of_the_model_that_the_turn_began_with(house):
    house.spawn("anna", "one", model="first")
    with house.registry.change("settings changed") as change:
        change.put(replace(house.agent("anna"), model="second"))
    house.finish("anna", usage={"inputTokens": 1})
    house.supervisor.send("anna", "more")
    house.finish("anna", usage={"inputTokens": 2})
    assert {key: value for key, value in found(house).items() if key[0] == "tokens"} == {
        ("tokens", "input first"): 1, ("tokens", "input second"): 2,
    }  # fmt: skip


def test_a_change_that_fails_adds_nothing_and_is_counted_once_when_it_succeeds(house):
    house.spawn("anna", "one")
    before = house.store.totals()
    house.store.failing = True
    with pytest.raises(StorageFailed):
        house.finish("anna", usage={"inputTokens": 1})
    with pytest.raises(StorageFailed):
        house.write("anna", {**TOOL, "subtype": "started"})
    assert house.store.totals() == before
    house.store.failing = False
    house.write("anna", {**TOOL, "subtype": "started"})
    house.finish("anna", usage={"inputTokens": 1})
    assert found(house) == {("tool_calls", ""): 1, ("turns", "success"): 1, ("tokens", "input auto"): 1}


def test_the_wait_in_the_queue_is_counted_and_not_the_turn_before(new_house):
    house = new_house(turns={"max_running": 1})
    house.spawn("anna", "one")
    house.spawn("bert", "two")
    house.supervisor.send("anna", "after a hundred seconds of her own")
    house.clock.time += 100
    house.finish("anna")
    house.clock.time += 1000
    house.finish("bert")
    waited = totals.put_together(house.store.totals())["queue_seconds"]
    counts = {bucket["up_to"]: bucket["count"] for bucket in waited["buckets"]}
    assert [counts[bound] for bound in (15.0, 300.0, 900.0, 3600.0)] == [1, 2, 2, 3]
    assert waited["sum"] == pytest.approx(1100, abs=15)


def test_of_a_program_that_counts_the_whole_session_a_turn_gets_its_own_share(house, monkeypatch):
    monkeypatch.setitem(PROGRAMS, CURSOR.id, CURSOR._replace(usage_is_total=True))
    house.spawn("anna", "one")
    house.finish("anna", usage={"inputTokens": 450})
    house.supervisor.send("anna", "more")
    house.finish("anna", usage={"inputTokens": 900, "outputTokens": 5})
    house.supervisor.send("anna", "more")
    house.finish("anna", usage={"inputTokens": 1350, "outputTokens": 5})
    own = [usage for _, usage in house.store.usages(house.agent("anna").id, 0, 9)]
    assert own == [{"inputTokens": 450}, {"inputTokens": 450, "outputTokens": 5}, {"inputTokens": 450, "outputTokens": 0}]
    assert house.agent("anna").tokens.input == 1350
