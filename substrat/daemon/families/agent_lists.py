"""Lists agents for an agent: who there is, what each does and waits for, and how its last work came out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_server.tools import nearest
from substrat.core.agents.lifecycle import STATE_OF, Phase
from substrat.core.agents.prompts import timestamp
from substrat.core.agents.records import OPERATOR
from substrat.errors import NotFound

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.families.queue import Queue
    from substrat.daemon.families.waits import Waits

_LONGEST = 200
"""Characters of what came of an agent's last turn: one line of a list."""


def unknown(registry: Registry, caller: Agent, name: str) -> NotFound:
    """Return the error of a name that no agent has, with the nearest name in the caller's family."""
    names = [one.name for one in registry.family(registry.root_of(caller))]
    return NotFound(f"there is no agent {name[:80]!r}{nearest(name, names)}: list_agents shows those there are")


class AgentLists:
    """Lists agents."""

    def __init__(self, registry: Registry, waits: Waits, queue: Queue) -> None:
        self._registry = registry
        self._waits = waits
        self._queue = queue

    def others(self, caller: Agent, scope: str) -> list[dict[str, object]]:
        """List the agents besides one that haven't ended.

        Args:
            caller: the agent that asks.
            scope: `children`, `siblings`, `family` (its root and all that descend from it), or `all`.
        """
        found = [one for one in self._scope(caller, scope) if one.id != caller.id and one.phase != Phase.ENDED]
        return self._rows(found)

    def one(self, caller: Agent, name: str) -> dict[str, object]:
        """Return the facts about an agent, more of them about one of the family; raises `NotFound`."""
        try:
            agent = self._registry.find(name)
        except NotFound:
            raise unknown(self._registry, caller, name) from None
        (facts,) = self._rows([agent])
        if self._registry.root_of(caller).id == self._registry.root_of(agent).id:
            turn = self._registry.store.turn(agent.turn.id) if agent.turn is not None else None
            facts["last_outcome"] = self._waits.outcome_of(agent, turn)
            facts["failure"] = agent.clone.error if agent.clone is not None else None
            facts["work"] = self._work(agent)
        return facts

    def _scope(self, caller: Agent, scope: str) -> list[Agent]:
        registry = self._registry
        if scope == "children":
            return registry.children(caller.id)
        if scope == "siblings":
            return registry.children(caller.parent) if caller.parent is not None else []
        return registry.family(registry.root_of(caller)) if scope == "family" else list(registry.agents)

    def _rows(self, agents: list[Agent]) -> list[dict[str, object]]:
        askers = self._registry.store.askers([one.id for one in agents])
        queued = any(one.phase == Phase.QUEUED for one in agents)
        reasons = {place.agent: place.reason for place in self._queue.places()} if queued else {}
        return [self._row(one, reasons.get(one.id), asks=one.id in askers) for one in agents]

    def _row(self, agent: Agent, reason: str | None, *, asks: bool) -> dict[str, object]:
        registry = self._registry
        waits = [name for wait in self._waits.open_of(agent.id) for name in wait.awaited]
        waits += [OPERATOR] if asks and agent.phase != Phase.ENDED else []
        came = (agent.turn.error if agent.turn is not None else None) or agent.last or ""
        return {
            "name": agent.name,
            "state": STATE_OF[agent.phase],
            "since": timestamp(agent.since),
            "parent": registry.name_of(agent.parent) or OPERATOR,
            "status": agent.status,
            **({"waits_for": waits} if waits else {}),
            **({"reason": reason} if reason is not None else {}),
            "tokens": agent.tokens.input + agent.tokens.output,
            **({"work": made} if (made := registry.work_of(agent)) else {}),
            **({"last": came.strip().partition("\n")[0][:_LONGEST]} if came else {}),
        }

    def _work(self, agent: Agent) -> dict[str, object] | None:
        """Return the work of an agent in a clone as of its last keep."""
        if agent.clone is None:
            return None
        kept = agent.clone.kept
        return {
            "text": self._registry.work_of(agent), "commit": kept.head, "branch": agent.clone.branch, "ahead": kept.ahead,
            "uncommitted_files": kept.files,
        }  # fmt: skip
