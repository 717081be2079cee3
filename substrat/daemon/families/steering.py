"""Lets an agent stop the turns of its descendants, and end them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.core.agents import turn_check
from substrat.core.agents.lifecycle import LIVE_PHASES, Event, Phase
from substrat.core.agents.records import Closed, ItemKind, by_agent, open_turn_id
from substrat.daemon.agents import mail
from substrat.daemon.families.agent_lists import unknown
from substrat.daemon.state.events import DaemonEvent
from substrat.errors import LimitReached, NotFound, PolicyDenied, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.change import Change
    from substrat.daemon.agents.requests import AgentRequests
    from substrat.daemon.families.waits import Waits

_SHOWN_TEXT = 200
"""Characters of a prompt that its event repeats."""


class Steering:
    """Carries out agents' wishes about their descendants.

    Args:
        requests: changes the agents.
        waits: the agents' waits: none wakes an agent for its own doing.
    """

    def __init__(self, requests: AgentRequests, waits: Waits) -> None:
        self._requests = requests
        self._registry = requests.registry
        self._store = requests.registry.store
        self._waits = waits

    def interrupt(self, caller: Agent, names: Sequence[str], text: str | None) -> str:
        """Stop descendants' running turns, and give each a prompt that comes before all that waits for it.

        Raises:
            NotFound: no such agent.
            PolicyDenied: it is no descendant.
            Refused: it runs no turn and is given no text, or it has ended.
            LimitReached: it has failed alike again and again.
        """
        return _each(names, lambda name: self._interrupt(caller, name, text))

    def _interrupt(self, caller: Agent, name: str, text: str | None) -> str:
        agent = before = self._descendant(caller, name)
        is_at_work = agent.phase in {*LIVE_PHASES, Phase.CHECKING}
        if not is_at_work and text is None:
            raise Refused(f"{name} runs no turn: with a text, it begins one")
        if agent.phase == Phase.ENDED:
            raise Refused(f"{name} has ended for good: spawn another")
        if text is not None:
            mail.check_failed(self._registry, caller, agent)
            self._requests.check_room(agent)
        released = ""
        with self._registry.change("interrupt asked") as change:
            by, start = by_agent(caller), self._store.start_of_turn(open_turn_id(caller))
            # Before the check of a turn is stopped: its end is told then, but not to who has stopped it.
            of = agent.turn.id if is_at_work and agent.turn is not None else None
            told = DaemonEvent(agent.id, of, "agent:interrupted", f"by {caller.name}", {"by": by}, cause=start)
            (cause,) = change.record(told)
            if is_at_work:
                agent = change.step(agent, Event.INTERRUPT)
            if text is not None:
                data, words = {"by": by}, f"from {caller.name}: {text[:_SHOWN_TEXT]}"
                (queued,) = change.record(DaemonEvent(agent.id, None, "prompt:queued", words, data, cause))
                sender = (caller.id, caller.name)
                change.add_item(agent, ItemKind.CONTINUATION, text, sender, Event.PROMPT, queued)
            elif not agent.waiting:
                released = self._waits.release(change, caller, {agent.id})
        begins = "your text begins its next turn"
        then = f"; {begins}" if text is not None else ""
        if before.phase in LIVE_PHASES and before.turn is not None:
            said = f"turn {before.turn.number} of {name} is being stopped{then}"
        elif before.phase is Phase.CHECKING:
            said = f"the check of {name} is stopped{then}"
        elif before.phase == Phase.SUSPENDED:
            said = f"{name} is suspended: {begins}, once the operator resumes it"
        else:
            said = f"{name} runs no turn; {begins}"
        return f"{said}\n{released}".strip()

    def end(self, caller: Agent, names: Sequence[str], reason: str | None) -> str:
        """End descendants and all that descend from them, the deepest first.

        Raises:
            NotFound: no such agent.
            PolicyDenied: it is no descendant.
        """
        return _each(names, lambda name: self._end(caller, name, reason))

    def _end(self, caller: Agent, name: str, reason: str | None) -> str:
        agent = self._descendant(caller, name)
        members = [one for one in self._registry.family(agent) if one.phase not in {Phase.ENDING, Phase.ENDED}][::-1]
        over: dict[bool, list[str]] = {True: [], False: []}
        with self._registry.change("end asked") as change:
            start = self._store.start_of_turn(open_turn_id(caller))
            why = f": {reason}" if reason else ""
            for one in members:
                self._withdraw(change, caller, one)
                text, by = f"ended by {caller.name}{why}", {"by": by_agent(caller)}
                if turn_check.is_pending(one.checked) and one.turn is not None:
                    change.record(DaemonEvent(one.id, one.turn.id, "agent:interrupted", text, by, cause=start))
                ended = change.step(self._registry.find(one.id), Event.END)
                over[ended.phase == Phase.ENDED].append(one.name)
                # One whose turn is still to be stopped ends with that; who stops it, and why, is told now.
                kind = "agent:ended" if ended.phase == Phase.ENDED else "agent:interrupted"
                change.record(DaemonEvent(one.id, open_turn_id(ended), kind, text, by, cause=start))
            released = self._waits.release(change, caller, {one.id for one in members})
        if not members:
            return f"{name} {'had ended already' if agent.phase == Phase.ENDED else 'is being ended already'}"
        said = [f"ended as soon as the turn is stopped: {', '.join(over[False])}"] if over[False] else []
        said += [f"ended: {', '.join(over[True])}"] if over[True] else []
        said += [f"{one.name}'s work: {work}" for one in reversed(members) if (work := self._registry.work_of(one))]
        return "\n".join([*said, released]).strip()

    def _withdraw(self, change: Change, caller: Agent, agent: Agent) -> None:
        """Take back the requests of an agent to one that it ends: it needn't be told that they will not be answered."""
        self._store.settle_requests(item.id for item in self._store.open_requests(agent.id) if item.sender == caller.id)
        if own := [item for item in self._store.waiting_items(agent.id) if item.sender == caller.id]:
            self._store.settle_requests(item.id for item in own)
            self._store.close_items(own, Closed.DROPPED)
            change.take_items(self._registry.find(agent.id), own)

    def _descendant(self, caller: Agent, name: str) -> Agent:
        """Return an agent that descends from another; raises if there is none of that name, or it is no descendant."""
        try:
            found = self._requests.find(name)
        except NotFound:
            raise unknown(self._registry, caller, name) from None
        if caller.id not in self._registry.lineage(found)[1:]:
            raise PolicyDenied(f"{name} doesn't descend from {caller.name}: ask its parent or the operator")
        return found


def _each(names: Sequence[str], act: Callable[[str], str]) -> str:
    """Do something to each of some agents, and return what is told of each; raises the problem where there is no other."""
    told, problems = [], []
    for name in names:
        try:
            told.append(act(name))
        except (NotFound, PolicyDenied, Refused, LimitReached) as problem:
            told.append(f"{name}: refused: {problem}")
            problems.append(problem)
    if len(problems) == len(told):
        raise problems[0]
    return "\n".join(told)
