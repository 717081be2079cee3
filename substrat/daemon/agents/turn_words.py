"""Tells agents in the middle of their turns the operator's words of `send --now`, and that messages wait."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from substrat.core.agents import prompts
from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.records import SYSTEM, Agent, Item, ItemKind
from substrat.core.programs.table import program_of
from substrat.daemon.agents import mail
from substrat.daemon.state.events import DaemonEvent

if TYPE_CHECKING:
    from substrat.daemon.agents.registry import Registry

MOST = 8000
"""Characters that are handed over at once: of more than 10,000 claude shows its model the beginning alone."""
_FRAME = len(prompts.amid_turn([""], ())) + len("\n\n")
"""Characters that a prompt takes beside its own: a line above it, and an empty line between it and the next one."""


class Words(NamedTuple):
    """The words that wait for an agent in the middle of its turn.

    Args:
        text: the words for it; empty: there is nothing.
        prompts: the operator's prompts in them.
        newest: the number of the newest message that it knows of then.
    """

    text: str
    prompts: tuple[Item, ...]
    newest: int


def reach(agent: Agent, prompt: str) -> bool:
    """Say whether a prompt can reach an agent in its running turn."""
    return agent.phase is Phase.RUNNING and program_of(agent).has_hooks and len(prompt) + _FRAME <= MOST


class TurnWords:
    """Hands words over to agents in the middle of their turns, and notes which ones."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def waiting(self, turn: str, newest: int) -> Words:
        """Return the words that wait for the agent of a running turn.

        Args:
            turn: the turn.
            newest: the number of the newest message that the agent knows of; older ones are told with a newer one.
        """
        agent = self._agent(turn)
        items = self._registry.store.waiting_items(agent.id) if agent is not None else []
        if agent is None or not items:
            return Words("", (), newest)
        said = [item for item in items if item.kind is ItemKind.NOW]
        lengths = accumulate(len(item.text) + _FRAME for item in said)
        said = [item for item, length in zip(said, lengths, strict=True) if length <= MOST]
        messages = [item for item in items if item.kind is ItemKind.MESSAGE]
        last = max((item.id for item in messages), default=0)
        ranks = [mail.rank_of(self._registry, agent, item) for item in messages] if last > newest else []
        return Words(prompts.amid_turn([item.text for item in said], ranks), tuple(said), max(last, newest))

    def note(self, turn: str, handed_over: tuple[Item, ...]) -> None:
        """Note that prompts were handed over: the turn delivers them, unless it is over or they have gone another way."""
        agent, store = self._agent(turn), self._registry.store
        items = [item for item in handed_over if store.waits(item.id)]
        if agent is None or not items:
            return
        with self._registry.change("words handed over") as change:
            store.deliver(items, turn)
            for item in items:
                data = {"by": SYSTEM, "message": item.id}
                told = "handed over in the running turn"
                change.record(DaemonEvent(agent.id, turn, "prompt:delivered", told, data, cause=item.cause))
            change.take_items(agent, items)

    def _agent(self, turn: str) -> Agent | None:
        agent = self._registry.agent_of_turn(turn)
        return agent if agent is not None and agent.phase is Phase.RUNNING else None
