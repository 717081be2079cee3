"""Long answers of the operator socket: their omissions, and other answers while they are made."""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.records import Finding, Item, ItemKind, Outcome, Turn
from substrat.daemon.servers import slices
from substrat.daemon.state.layout import Layout
from substrat.errors import NotFound
from substrat.protocol import vocabulary
from tests.daemon.state.operator_methods import OperatorMethods

HALF = slices.OBJECTS * 2
"""Trio runs ready tasks in any order, so a task may miss a turn: one for two slices shows enough."""


class Asked(OperatorMethods):
    """The methods of the operator socket, while another task does something."""

    def __init__(self, agents):
        chats: Any = SimpleNamespace()
        self.chats = chats
        super().__init__(agents, Layout("/none", "/none"), chats=chats)

    async def ask_beside(self, between, method, **params):
        """Ask, and let another task do something each time it gets its turn; returns the answer and how often it did."""
        times = 0

        async def others():
            nonlocal times
            while True:
                await trio.lowlevel.checkpoint()
                times += 1
                await between(times)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(others)
            answer = await self.ask(method, **params)
            seen = times
            nursery.cancel_scope.cancel()
        return answer, seen


async def nothing(_times):
    """Others that only want their turn."""


def opened(new_agents, listed):
    """Agents that were stored before it began."""
    agents = new_agents()
    with agents.store.transaction():
        for agent in listed:
            agents.store.save_agent(agent)
            if agent.turn is not None:
                agents.store.save_turn(agent.turn)
    agents.open()
    return Asked(agents)


def post(asked, count, text, kind=ItemKind.MESSAGE, sender="00000000-0000-4000-8000-000000000001"):
    with asked.agents.store.transaction():
        return [
            asked.agents.store.add_item(Item(0, None, kind, sender, "anna", text, 5.0)) for _ in range(count)
        ]  # fmt: skip


async def test_others_are_answered_while_agents_are_listed(new_agents, new_agent):
    asked = opened(new_agents, [new_agent() for _ in range(200)])
    names = [agent.name for agent in asked.agents.registry.agents]
    changed = []

    async def change(times):
        if times == 2:
            asked.agents.supervisor.end(names[-1])
            asked.agents.supervisor.remove(asked.agents.supervisor.find(names[-2]).id)
            changed.append((await asked.ask("agent.show", agent=names[-1]))["state"])

    before = await asked.ask("agent.list", fields=["state"])
    found, times = await asked.ask_beside(change, "agent.list")
    assert changed == ["ended"], "another request was answered meanwhile"
    assert times >= 200 // HALF
    assert [agent["name"] for agent in found] == names
    assert [agent["state"] for agent in found] == [agent["state"] for agent in before]
    assert len(await asked.ask("agent.list")) == 199


async def test_others_are_answered_while_many_agents_are_waited_for(new_agents, new_agent):
    asked = opened(new_agents, [new_agent() for _ in range(100)])
    names = [agent.name for agent in asked.agents.registry.agents]
    found, times = await asked.ask_beside(nothing, "agent.wait", agents=names)
    assert [agent["name"] for agent in found] == names
    assert times >= 100 // HALF


async def test_chosen_members_are_those_of_whole_objects(new_agents, new_agent):
    asked = opened(new_agents, [new_agent() for _ in range(40)])
    whole = await asked.ask("agent.list")
    assert list(whole[0]) == list(vocabulary.AGENT_FIELDS)
    for wanted in (["name"], ["state", "attention"], ["reason", "id", "id"]):
        expected = [{name: agent[name] for name in wanted} for agent in whole]
        assert await asked.ask("agent.list", fields=wanted) == expected


async def test_an_object_is_made_again_only_when_its_family_has_changed(new_agents, new_agent, monkeypatch):
    lead, other = new_agent(), new_agent()
    child = new_agent(parent=lead.id)
    asked = opened(new_agents, [lead, other, child, new_agent(phase=Phase.RUNNING)])
    registry, overview, of = asked.agents.registry, asked.agents.families.overview, asked.agents.families.overview.of
    made: set[str] = set()

    def noted(agents, places=None):
        made.update(agent.id for agent in agents)
        return of(agents, places)

    async def agrees(*ids):
        """Say that the list is right, and which agents' objects were made for it."""
        made.clear()
        found = await asked.ask("agent.list")
        anew = set(made)
        assert found == await Asked(asked.agents).ask("agent.list")
        return anew == {*ids, *running}

    running = [agent.id for agent in registry.agents if agent.phase == Phase.RUNNING]
    monkeypatch.setattr(overview, "of", noted)
    assert await agrees(lead.id, other.id, child.id)
    assert await agrees()
    with registry.change("status reported") as change:
        change.put(replace(registry.find(child.id), status="at work"))
    assert await agrees(lead.id, child.id)
    (question,) = post(asked, 1, "Which?", ItemKind.QUESTION, other.id)
    assert await agrees(other.id)
    assert await agrees(other.id), "of an agent that asks nothing is kept"
    asked.questions.dismiss(question)
    assert await agrees(other.id)
    assert await agrees(), "it rests again"
    asked.agents.supervisor.end(other.name)
    asked.agents.supervisor.remove(lead.id)
    assert await agrees(other.id, child.id)


async def test_pages_of_agents_and_of_usage_make_up_the_whole(new_agents, new_agent):
    asked = opened(new_agents, [new_agent() for _ in range(7)])
    for method, key in (("agent.list", "id"), ("usage.list", "agent")):
        whole = await asked.ask(method)
        pages = [await asked.ask(method, limit=3)]
        while len(pages[-1]) == 3:
            pages.append(await asked.ask(method, limit=3, after=pages[-1][-1][key]))
        assert [len(page) for page in pages] == [3, 3, 1]
        assert [one for page in pages for one in page] == whole
        assert await asked.ask(method, after=whole[-1]["name"]) == []
        with pytest.raises(NotFound):
            await asked.ask(method, after="nobody")
    assert len(await asked.ask("agent.list", limit=0)) == len(await asked.ask("usage.list", limit=-1)) == 1


async def test_a_list_of_names_has_these_and_with_family_their_descendants(new_agents, new_agent):
    lead, other = new_agent(), new_agent()
    child = new_agent(parent=lead.id)
    asked = opened(new_agents, [lead, other, child, new_agent(parent=child.id)])

    async def listed(**params):
        return [agent["name"] for agent in await asked.ask("agent.list", fields=["name"], **params)]

    everyone = await listed()
    assert await listed(names=[child.id, lead.name, "nobody"]) == [lead.name, child.name]
    assert await listed(names=[lead.name], family=True) == [name for name in everyone if name != other.name]
    assert await listed(names=[lead.name], family=True, after=lead.id, limit=1) == [child.name]
    assert await listed(names=["nobody"]) == []


async def test_a_list_has_no_long_texts(new_agents, new_agent):
    """However long an agent's texts are: its error, its question and its finding are a line each."""
    listed = [new_agent(phase=Phase.FAILED) for _ in range(3)]
    listed = [
        new_agent(
            id=agent.id, name=agent.name, phase=Phase.FAILED,
            turn=Turn(
                agent.id.replace("4000", "4001"), agent.id, 1, 1.0, outcome=Outcome.ERROR, ended_at=2.0,
                error="é" * 16000, result="r" * 20000,
            ),
        )
        for agent in listed
    ]  # fmt: skip
    agents = new_agents()
    with agents.store.transaction():
        for agent in listed:
            agents.store.save_turn(agent.turn)
            agents.store.save_agent(agent)
        agents.store.add_finding(Finding(0, listed[1].id, None, 1.0, "p" * 4000, "t" * 4000, None, "d" * 16000))
    agents.open()
    asked = Asked(agents)
    post(asked, 1, "why? " * 13000, ItemKind.QUESTION, listed[0].id)
    found = await asked.ask("agent.list")
    assert [agent["attention"]["kind"] for agent in found] == ["answer", "unsafe", "failed"]
    for agent in found:
        assert len(agent["attention"]["text"]) == len(agent["turn"]["error"]) == 200
        assert agent["attention"]["text"].endswith("…")
        assert len(json.dumps(agent)) < 4000
    shown = await asked.ask("agent.show", agent=listed[1].name)
    assert shown["findings"][0]["difference"] == "d" * 16000


async def test_an_agents_attention_is_its_oldest_open_question(new_agents, new_agent):
    asked = opened(new_agents, [new_agent() for _ in range(40)])
    listed = list(asked.agents.registry.agents)
    for agent in listed[::2]:
        post(asked, 1, "a message", sender=agent.id)
        post(asked, 1, f"first of {agent.name}", ItemKind.QUESTION, agent.id)
        post(asked, 1, "second", ItemKind.QUESTION, agent.id)
    found = {agent["name"]: agent["attention"] for agent in await asked.ask("agent.list")}
    for number, agent in enumerate(listed):
        kind = "idle" if number % 2 else "answer"
        assert found[agent.name]["kind"] == kind
        assert number % 2 or found[agent.name]["text"] == f"first of {agent.name}"


async def test_others_are_answered_while_the_inbox_is_read(new_agents, new_agent):
    asked = opened(new_agents, [new_agent()])
    post(asked, 1000, "x" * 3000)
    for params in ({}, {"after": 0}):
        found, times = await asked.ask_beside(nothing, "inbox.list", **params)
        items = found["items"] if params else found
        assert times >= len(items) // HALF
        assert {len(item["text"]) for item in items} == {2000}
        assert len(json.dumps(found)) < (1.2 if params else 2.5) * 1024 * 1024
    assert found["more"]


async def test_a_page_goes_on_where_the_last_one_ended_whatever_was_settled_meanwhile(new_agents, new_agent):
    asked = opened(new_agents, [new_agent()])
    numbers = post(asked, 900, "x" * 3000)
    first = await asked.ask("inbox.list", after=0)
    asked.questions.dismiss(first["after"])
    asked.questions.dismiss(numbers[-1])
    later = post(asked, 1, "new")
    few = await asked.ask("inbox.list", after=0, limit=17)
    assert ([item["id"] for item in few["items"]], few["more"]) == (numbers[:17], True)
    assert await asked.ask("inbox.list", limit=17) == few["items"]
    second = await asked.ask("inbox.list", after=first["after"])
    seen = [item["id"] for page in (first, second) for item in page["items"]]
    assert seen == [*numbers[:-1], *later]
    assert not second["more"]


async def test_usage_is_added_up_turn_by_turn_while_others_are_answered(new_agents, new_agent):
    agent = new_agent()
    asked = opened(new_agents, [agent, new_agent(parent=agent.id)])
    with asked.agents.store.transaction():
        for number in range(1, 1001):
            turn = Turn(
                f"00000000-0000-4002-8000-{number:012}", agent.id, number, 1.0, outcome=Outcome.SUCCESS, ended_at=2.0,
                usage={"inputTokens": 3},
            )  # fmt: skip
            asked.agents.store.save_turn(turn)
    found, times = await asked.ask_beside(nothing, "agent.usage", agent=agent.name)
    assert (found["turns"], found["usage"]) == (1000, {"inputTokens": 3000})
    numbers = {"turns": 1000, "usage": {"inputTokens": 3000}, "usd": None, "unpriced": 1000}
    assert found["family"] == {"agents": 2, **numbers}
    assert times
