"""Makes the protocol's objects from the daemon's records: agents, turns and items of the inbox."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from substrat.core.agents import turn_check
from substrat.core.agents.lifecycle import STATE_OF
from substrat.core.agents.prompts import timestamp
from substrat.core.workspaces import work
from substrat.daemon.servers import slices
from substrat.daemon.servers.methods.request import Encoded
from substrat.protocol import vocabulary

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from substrat.core.agents.records import Agent, Item, Turn
    from substrat.core.agents.turn_check import TurnCheck
    from substrat.core.families.account_gate import Gate
    from substrat.core.families.budget import Budget
    from substrat.core.families.scheduling import Place
    from substrat.core.families.tasks import Task
    from substrat.core.families.waits import Wait
    from substrat.core.workspaces.clones import Clone
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.families.overview import Overview, Places
    from substrat.daemon.servers.kept_objects import KeptObjects

_LISTED_ERROR = 200
"""Characters of a turn's error in a list: enough for its sentence, and a thousand of them are still a small answer."""
_LISTED_TEXT = 2000
"""Characters of an item's text in a list: few are longer, and sixteen of them are encoded at once."""
_LOOKED_FOR = 4096
"""Agents whose objects are looked for at once, in a millisecond or two."""
_LOOKED_UP = frozenset({"attention", "reason", "family", "priority", "status", "activity", "clone", "waits", "check"})
"""Members of an agent object that `abridged` leaves out, most of them because the record doesn't hold them."""


def agent_object(agent: Agent) -> dict[str, object]:
    """Make an agent object without the members that are looked up."""
    return {
        "id": agent.id,
        "name": agent.name,
        "state": STATE_OF[agent.phase],
        "session_id": agent.session.id if agent.session else None,
        "workspace": agent.workspace,
        "program": agent.settings.program,
        "model": agent.model,
        "network": agent.policy.network.value,
        "parent": agent.parent,
        "created_at": timestamp(agent.created_at),
        "unread": agent.waiting,
        "last": agent.last,
        "tokens": agent.tokens._asdict(),
        "turn": turn_object(agent.turn) if agent.turn else None,
        "budget": budget_object(agent.budget) if agent.budget is not None and agent.budget.limits else None,
    }


def budget_object(budget: Budget) -> dict[str, object]:
    """Make the object of a budget."""
    return {"limits": budget.limits, "used": budget.used, "left": budget.left, "state": budget.told.value}


def clone_object(agent: Agent, holder: str | None) -> dict[str, object] | None:
    """Make the object of an agent's private clone; None for an agent that works in the user's checkout.

    Args:
        agent: the agent.
        holder: the name of the ancestor that has its commits (`Clone.holder`).
    """
    clone = agent.clone
    if clone is None:
        return None
    kept = clone.kept
    return {
        "branch": clone.branch,
        "base": clone.base,
        "head": kept.head,
        "ahead": kept.ahead,
        "behind": kept.behind,
        "files": kept.files,
        "landed": kept.landed and kept.files == 0,
        "stage": clone.stage.value,
        "work": _work_object(clone, holder, agent.checked),
    }


def _work_object(clone: Clone, holder: str | None, check: TurnCheck | None) -> dict[str, object] | None:
    """Make the object of the work in a clone; None: it holds none that isn't landed."""
    text, kept = work.describe(clone, holder, turn_check.said_of(check, clone)), clone.kept
    if not text:
        return None
    return {
        "text": text,
        "commits": kept.ahead,
        "head": kept.head,
        "wip": kept.wip if kept.files else None,
        "files": kept.files,
        "branches": [{"name": name, "commits": commits} for name, commits in kept.branches],
        "stashes": kept.stashes,
        "hidden": kept.hidden,
        "landed": kept.landed,
        "in": holder,
        "checked": turn_check.passed_on(check, clone),
        "unkept": clone.unkept,
    }


def _joined(
    recorded: dict[str, object], looked_up: dict[str, object], agent: Agent, holder: str | None
) -> dict[str, object]:
    """Put an agent object together, its members in the order of `vocabulary.AGENT_FIELDS`."""
    found = {
        **recorded, **looked_up, "priority": agent.settings.priority.value, "status": agent.status or None,
        "clone": clone_object(agent, holder),
    }  # fmt: skip
    return vocabulary.fields(found, vocabulary.AGENT_FIELDS)


def wait_object(wait: Wait, agent: str | None, done: list[str]) -> dict[str, object]:
    """Make the object of an open wait, from the name of the agent that waits and those that have finished."""
    return {
        "id": wait.id,
        "agent": agent,
        "names": list(wait.names),
        "mode": wait.mode.value,
        "done": done,
        "deadline": timestamp(wait.deadline) if wait.deadline is not None else None,
        "note": wait.note,
        "created_at": timestamp(wait.created_at),
    }


def task_object(task: Task, family: str | None, claimed_by: str | None) -> dict[str, object]:
    """Make the object of a task, from the names of its family's root and of the agent that has it, or had it last."""
    return {
        "number": task.number, "family": family, "id": task.id, "title": task.title, "description": task.description,
        "state": task.state.value, "label": task.label, "needs": list(task.needs), "claimed_by": claimed_by,
        "attempts": task.attempts, "max_attempts": task.max_attempts,
        "status": task.status.value if task.status is not None else None, "result": task.result,
        "created_at": timestamp(task.created_at),
        "finished_at": timestamp(task.finished_at) if task.finished_at is not None else None,
    }  # fmt: skip


def place_object(place: Place, agent: Agent, blamed: str | None) -> dict[str, object]:
    """Make the object of an agent's place in the queue, with the name of the agent that has shut its login's gate."""
    return {
        "position": place.position,
        "agent": agent.name,
        "family": place.family,
        "priority": place.priority.value,
        "since": timestamp(agent.since),
        "reason": place.reason,
        "model": agent.model,
        "blamed": blamed,
    }


def gate_object(gate: Gate, trying: str | None, blamed: str | None) -> dict[str, object]:
    """Make the object of a login whose turns are held, from the names of the agents whose turns try, and have shut it."""
    return {
        "login": gate.login,
        "model": gate.model,
        "since": timestamp(gate.shut_at),
        "until": timestamp(gate.until),
        "failures": gate.failures,
        "trying": trying,
        "reason": gate.reason,
        "blamed": blamed,
    }


def abridged(agent: Agent) -> dict[str, object]:
    """Make an agent object for every answer but those that show one agent's turn (P-OBJ-3 in docs/protocol.md)."""
    found = agent_object(agent)
    if agent.turn is not None:
        turn = turn_object(agent.turn)
        found["turn"] = {**turn, "result": None, "usage": None, "error": _cut(agent.turn.error, _LISTED_ERROR)}
    return found


def turn_object(turn: Turn) -> dict[str, object]:
    """Make a turn object."""
    return {
        "id": turn.id,
        "number": turn.number,
        "outcome": turn.outcome.value if turn.outcome else None,
        "started_at": timestamp(turn.started_at),
        "ended_at": timestamp(turn.ended_at) if turn.ended_at is not None else None,
        "exit_code": turn.exit_code,
        "result": turn.result,
        "usage": dict(turn.usage) if turn.usage is not None else None,
        "error": turn.error,
    }


def item_object(item: Item) -> dict[str, object]:
    """Make the object of a question or a message to the operator."""
    return {
        "id": item.id,
        "from": item.sender_name,
        "time": timestamp(item.time),
        "text": item.text,
        "kind": item.kind.value,
        "options": list(item.options or ()),
        "default": item.default_answer,
        "deadline": timestamp(item.deadline) if item.deadline is not None else None,
    }


def listed_item(item: Item) -> dict[str, object]:
    """Make the object of an item in a list: its text is shortened, and `cut` tells whether it was."""
    return {**item_object(item), "text": _cut(item.text, _LISTED_TEXT), "cut": len(item.text) > _LISTED_TEXT}


def _listed_check(check: object) -> object:
    """Return an agent's check for a list: its command and its verdict are shortened."""
    if not isinstance(check, dict):
        return check
    return {**check, **{name: _cut(check[name], _LISTED_ERROR) for name in ("command", "text")}}


def _cut(text: str | None, length: int) -> str | None:
    return text[: length - 1] + "…" if text is not None and len(text) > length else text


class AgentObjects:
    """Makes complete agent objects, with the members that are looked up."""

    def __init__(self, registry: Registry, overview: Overview, kept: KeptObjects) -> None:
        self._kept = kept
        self._overview = overview
        self._registry = registry

    def one(self, agent: Agent) -> dict[str, object]:
        """Make one abridged object."""
        return self._many([agent])[0]

    def whole(self, agent: Agent) -> dict[str, object]:
        """Make an object with its turn's result and usage; `agent` has been read with them."""
        return _joined(agent_object(agent), self._overview.of([agent])[0], agent, self._registry.holder_of(agent))

    def with_result(self, agent: Agent) -> dict[str, object]:
        """Make an object with its turn's result and usage, which only the store holds."""
        turn = self._registry.store.turn(agent.turn.id) if agent.turn is not None else None
        return self.whole(replace(agent, turn=turn) if turn is not None else agent)

    async def encode(self, agents: Sequence[Agent], members: Collection[str] = ()) -> Encoded:
        """Encode any number of abridged objects in slices.

        The records are values, so a change meanwhile isn't seen.

        Args:
            agents: the agents.
            members: the members each object has, in their order; empty: all.
        """
        places, wanted = self._overview.places(), tuple(members)
        found: list[bytes | None] = []
        for some in slices.sliced(agents, _LOOKED_FOR):
            found += self._kept.found(some, wanted)
            await trio.lowlevel.checkpoint()
        for numbers in slices.sliced([number for number, one in enumerate(found) if one is None]):
            some = [agents[number] for number in numbers]
            made = list(map(slices.encoded, self._chosen(some, members, places)))
            self._kept.keep(some, wanted, made)
            for number, one in zip(numbers, made, strict=True):
                found[number] = one
            await trio.lowlevel.checkpoint()
        return Encoded([b"[", b",".join(filter(None, found)), b"]"])

    def _many(self, agents: Sequence[Agent], places: Places | None = None) -> list[dict[str, object]]:
        more, holder_of = self._overview.of(agents, places), self._registry.holder_of
        return [
            _joined(abridged(agent), {**added, "check": _listed_check(added["check"])}, agent, holder_of(agent))
            for agent, added in zip(agents, more, strict=True)
        ]

    def _chosen(self, agents: Sequence[Agent], members: Collection[str], places: Places) -> list[dict[str, object]]:
        if not members:
            return self._many(agents, places)
        is_recorded = _LOOKED_UP.isdisjoint(members)
        found = [abridged(agent) for agent in agents] if is_recorded else self._many(agents, places)
        if vocabulary.HEARD_AT in members:
            heard = self._overview.heard_at(agents)
            found = [{**one, vocabulary.HEARD_AT: value} for one, value in zip(found, heard, strict=True)]
        if vocabulary.TOGETHER in members:
            found = [{**one, vocabulary.TOGETHER: agent.together} for one, agent in zip(found, agents, strict=True)]
        return [{name: one[name] for name in members} for one in found]
