"""Lets an agent stop the turns of its descendants, and end them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.core.agents.lifecycle import LIVE_PHASES, Event, Phase
from substrat.core.agents.records import ItemKind, by_agent, open_turn_id
from substrat.daemon.agents import mail
from substrat.daemon.state.events import DaemonEvent
from substrat.errors import NotFound, PolicyDenied, Refused

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.requests import AgentRequests

_SHOWN_TEXT = 200
"""Characters of a prompt that its event repeats."""


class Steering:
    """Carries out agents' wishes about their descendants.

    Args:
        requests: changes the agents.
    """

    def __init__(self, requests: AgentRequests) -> None:
        self._requests = requests
        self._registry = requests.registry

    def interrupt(self, caller: Agent, name: str, text: str | None) -> str:
        """Stop a descendant's running turn, and give it a prompt that comes before all that waits for it.

        Raises:
            NotFound: no such agent.
            PolicyDenied: it is no descendant.
            Refused: it runs no turn and is given no text, or it has ended.
            LimitReached: it has failed alike again and again.
        """
        agent = self._descendant(caller, name)
        if agent.phase not in LIVE_PHASES and text is None:
            raise Refused(f"{name} runs no turn: with a text, it begins one")
        if text is not None:
            mail.check_failed(self._registry, caller, agent)
            self._requests.check_room(agent)
        with self._registry.change("interrupt asked") as change:
            if agent.phase in LIVE_PHASES:
                agent = change.step(agent, Event.INTERRUPT)
            turn, by = open_turn_id(caller), by_agent(caller)
            start = self._registry.store.start_of_turn(turn)
            told = DaemonEvent(agent.id, open_turn_id(agent), "agent:interrupted", f"by {caller.name}", {"by": by}, start)
            (cause,) = change.record(told)
            if text is not None:
                data, words = {"by": by}, f"from {caller.name}: {text[:_SHOWN_TEXT]}"
                (queued,) = change.record(DaemonEvent(agent.id, None, "prompt:queued", words, data, cause))
                sender = (caller.id, caller.name)
                change.add_item(agent, ItemKind.CONTINUATION, text, sender, Event.PROMPT, queued)
        return f"{name} is stopped" + ("; its next turn begins with your text" if text is not None else "")

    def end(self, caller: Agent, name: str, reason: str | None) -> str:
        """End a descendant and all that descend from it, the deepest first.

        Raises:
            NotFound: no such agent.
            PolicyDenied: it is no descendant.
        """
        agent = self._descendant(caller, name)
        members = [one for one in self._registry.family(agent) if one.phase not in {Phase.ENDING, Phase.ENDED}]
        with self._registry.change("end asked") as change:
            start = self._registry.store.start_of_turn(open_turn_id(caller))
            why = f": {reason}" if reason else ""
            for one in reversed(members):
                ended, text = change.step(self._registry.find(one.id), Event.END), f"ended by {caller.name}{why}"
                # One whose turn is still to be stopped ends with that; who stops it, and why, is told now.
                kind = "agent:ended" if ended.phase == Phase.ENDED else "agent:interrupted"
                change.record(DaemonEvent(one.id, open_turn_id(ended), kind, text, {"by": by_agent(caller)}, start))
        if not members:
            return f"{name} had ended already"
        held = [(one.name, self._registry.work_of(one)) for one in members]
        kept = "".join(f"\n{name}'s work: {text}" for name, text in held if text)
        return f"ended: {', '.join(one.name for one in reversed(members))}{kept}"

    def _descendant(self, caller: Agent, name: str) -> Agent:
        """Return an agent that descends from another; raises if there is none of that name, or it is no descendant."""
        try:
            found = self._requests.find(name)
        except NotFound:
            raise NotFound(f"there is no agent {name!r}: list_agents shows those there are") from None
        if caller.id not in self._registry.lineage(found)[1:]:
            raise PolicyDenied(f"{name} doesn't descend from {caller.name}: ask its parent or the operator")
        return found
