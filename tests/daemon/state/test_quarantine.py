"""One agent's rows that can't be read are set aside; the others are loaded, and nothing that was written is lost."""

import json
from dataclasses import replace

import pytest

from substrat.core.agents.lifecycle import LIVE_PHASES, Phase
from substrat.core.agents.records import Item, ItemKind, Outcome, Process, Turn
from substrat.core.agents.turn_check import TurnCheck
from substrat.daemon.state.database import StateDamaged
from substrat.daemon.state.quarantine import set_aside
from substrat.daemon.state.rows import EventRow
from substrat.daemon.state.store import Store

NOW = 5000.0


def fill(store, new_agent):
    """Two agents with everything an agent can have; returns the good one and the one to be damaged."""
    good, bad = new_agent("good"), new_agent("bad", parent=None)
    with store.transaction():
        for agent in (good, replace(bad, status="hello")):
            store.save_agent(agent)
            store.save_turn(
                Turn(f"{agent.name}-1", agent.id, 1, 1.0, outcome=Outcome.SUCCESS, ended_at=2.0, usage={"inputTokens": 3})
            )
            store.save_turn(Turn(f"{agent.name}-2", agent.id, 2, 3.0, outcome=Outcome.LOST, ended_at=4.0))
            store.add_item(Item(0, agent.id, ItemKind.PROMPT, "operator", "operator", f"for {agent.name}", 1.0))
        store.save_agent(new_agent("child", parent=bad.id))
        store.add_item(Item(0, None, ItemKind.MESSAGE, good.id, "good", "to the operator", 1.0))
        store.add_events([EventRow(0, bad.id, None, 1.0, "told", "text", None, None, None)])
    return good, bad


# `test_damaged_values` tries every kind of value in every column.
DAMAGE = [
    "UPDATE agents SET phase = 'working'",
    "UPDATE agents SET name = CAST(x'ff41' AS TEXT)",
    "UPDATE agents SET phase = 'running'",
    "UPDATE turns SET usage = '{'",
    "UPDATE items SET kind = 'letter'",
]


def damage(store, command, agent):
    column = "id" if " agents " in command else "agent"
    with store.transaction():
        store.connection.execute(f"{command} WHERE {column} = ?", (agent.id,))


@pytest.mark.parametrize("command", DAMAGE)
def test_a_damaged_agent_is_set_aside_and_the_others_are_loaded(store, new_agent, command):
    good, bad = fill(store, new_agent)
    damage(store, command, bad)
    (found,) = set_aside(store, NOW)
    assert found.agent == bad.id
    assert found.reason
    assert [agent.name for agent in store.agents()] == ["good", "child"]
    assert [agent.parent for agent in store.agents()] == [None, None]
    assert store.damaged_agents() == 1
    assert [turn.id for turn in store.turns_after(good.id, 0, 10)] == ["good-1", "good-2"]
    assert store.turns_after(bad.id, 0, 10) == []
    assert store.first_waiting().keys() == {good.id}
    kept = store.connection.execute("SELECT time, agent, origin, row FROM damaged ORDER BY id").fetchall()
    assert [(row[0], row[1], row[2]) for row in kept] == [
        (NOW, bad.id, "agents"), (NOW, bad.id, "turns"), (NOW, bad.id, "turns"), (NOW, bad.id, "items")
    ]  # fmt: skip
    rows = [json.loads(row[3]) for row in kept]
    assert rows[0]["status"] == "hello"
    assert {rows[1]["id"], rows[2]["id"]} == {"bad-1", "bad-2"}
    assert rows[3]["text"] == "for bad"
    assert set_aside(store, NOW) == []


@pytest.mark.parametrize("number", [2**63 - 1, -1, "'x'", 1.5])
def test_numbers_of_rows_that_are_used_up_are_damage(store, new_agent, number):
    fill(store, new_agent)
    with store.transaction():
        store.connection.execute(f"UPDATE sqlite_sequence SET seq = {number} WHERE name = 'items'")
    store.close()
    with pytest.raises(StateDamaged, match="last given in the table items"):
        Store(store.path)


def test_sound_rows_stay(store, new_agent):
    fill(store, new_agent)
    with store.transaction():
        for phase in Phase:
            agent = new_agent(phase=phase, checked=TurnCheck(1, "make") if phase is Phase.CHECKING else None)
            store.save_agent(agent)
            outcome = None if phase in LIVE_PHASES else Outcome.SUCCESS
            store.save_turn(Turn(f"t-{phase}", agent.id, 1, 1.0, Process(5, 0, "ended"), outcome=outcome))
            store.add_item(Item(0, agent.id, ItemKind.MESSAGE, "substrat", "substrat", "", 1.0))
    before = store.agents()
    assert set_aside(store, NOW) == []
    assert store.agents() == before
    assert store.damaged_agents() == 0


def test_the_operators_messages_that_cant_be_read_are_set_aside_alone(store, new_agent):
    fill(store, new_agent)
    with store.transaction():
        store.add_item(Item(0, None, ItemKind.MESSAGE, "x", "x", "damaged", 1.0))
        store.connection.execute("UPDATE items SET time = -1 WHERE text = 'damaged'")
    (found,) = set_aside(store, NOW)
    assert found.agent is None
    assert [item.text for item in store.operator_items()] == ["to the operator"]
    assert len(store.agents()) == 3


def test_the_sandboxes_of_an_agent_that_is_set_aside_are_named(store, new_agent):
    agent = new_agent(phase=Phase.RUNNING)
    with store.transaction():
        store.save_agent(agent)
        store.save_turn(Turn("t", agent.id, 1, 1.0, Process(4242, 99, "boot")))
    damage(store, "UPDATE agents SET network = 'x'", agent)
    (found,) = set_aside(store, NOW)
    assert found.processes == (Process(4242, 99, "boot"),)
    assert found.name == agent.name
