"""Reports the result of an agent's work to those who gave it: to the parent, and to who sent a request.

The ends of children's tasks are gathered: such a report starts a turn of the parent's once each of its children has
finished or is held by a person, and comes earlier with any other turn. So eight children cost their parent one wake.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from substrat.core.agents import excerpts, prompts, turn_check
from substrat.core.agents.lifecycle import WORKING_PHASES, Event, Phase
from substrat.core.agents.records import SYSTEM, ItemKind, Outcome, by_agent
from substrat.core.agents.stop_reason import is_pause
from substrat.core.families import results
from substrat.daemon.agents import turn_prompts
from substrat.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Container

    from substrat.core.agents.records import Agent, Item, Turn
    from substrat.daemon.agents.change import Change
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.families.waits import Waits

log = structlog.get_logger("substrat.reports")


class Reports:
    """Sends the reports on turns that have come to their end."""

    def __init__(self, registry: Registry, waits: Waits) -> None:
        self._registry = registry
        self._waits = waits
        self._store = registry.store

    def tell(self, change: Change, agent: Agent, turn: Turn, ended: int | None) -> None:
        """Tell those who gave an agent the work of a turn.

        It isn't over yet if the agent goes on when a wait of its ends, or was only suspended.

        The requests that it was given before, in whichever turn, are answered by this one's result where it has sent no
        reply. An agent that asked several times is told the result once, and what else that answers. While the agent waits
        for an answer of the operator's, those who don't wait for it themselves are told that, and the result later.

        Args:
            change: the change that the turn's end is a part of.
            agent: the agent.
            turn: the turn.
            ended: the cursor of the event of the turn's end; None: that is forgotten.
        """
        if agent.phase not in {Phase.FAILED, Phase.ENDING} and self._waits.of(agent.id):
            change.put_turn(agent, replace(turn, unsettled=True))
            return
        question = self._waits.question_of(agent) if agent.phase is not Phase.FAILED else None
        if question is not None:
            change.put_turn(agent, replace(turn, unsettled=True))
        if is_pause(turn.stop) and turn.outcome is Outcome.INTERRUPTED:
            return
        told: dict[str, int] = {}
        stopped_by = self._stopped_by(agent, turn)
        requests = self._store.open_requests(agent.id)
        tasks = [item for item in turn_prompts.items_behind(self._store, turn) if item.kind is not ItemKind.MESSAGE]
        if question is None:
            self._store.settle_requests(item.id for item in requests)
        for item in sorted([*tasks, *requests], key=lambda item: item.id):
            asker = self._registry.get(item.sender)
            if asker is None or asker.phase in {Phase.ENDING, Phase.ENDED} or by_agent(asker) == stopped_by:
                continue
            reply_to = item.id if item.kind is ItemKind.MESSAGE else None
            if asker.id not in told:
                told[asker.id] = item.id
                text = self._words(agent, turn, reply_to, question)
            elif reply_to is not None:
                text = prompts.answered_with(agent.name, reply_to, told[asker.id])
            else:
                continue
            if question is not None and self._waits.awaits(asker, agent):
                continue
            if not self._waits.adopts(change, asker, agent, turn.id, text, reply_to):
                gathers = reply_to is None and asker.id == agent.parent
                told_in = change.tell(asker, text, by_agent(agent), ended, reply_to, gathers=gathers)
                self._store.note_report(told_in, turn.id)
        if agent.phase is Phase.FAILED:
            self._tell_parent(change, agent, turn, ended, {*told, stopped_by})

    def _tell_parent(
        self, change: Change, agent: Agent, turn: Turn, ended: int | None, told: Container[str | None]
    ) -> None:
        """Tell the parent of an agent that has failed at another one's task: a person sees no failure that is a lead's."""
        parent = self._registry.get(agent.parent)
        if parent is None or not parent.has_begun or parent.phase in {Phase.ENDING, Phase.ENDED}:
            return
        if parent.id in told or by_agent(parent) in told:
            return
        text = self._words(agent, turn, None, None)
        if not self._waits.adopts(change, parent, agent, turn.id, text, reply_to=None):
            self._store.note_report(change.tell(parent, text, by_agent(agent), ended, gathers=True), turn.id)

    def _stopped_by(self, agent: Agent, turn: Turn) -> str | None:
        """Return which agent has stopped a turn or its check, as events' `data.by` says it: that agent needs no report."""
        if turn.outcome is not Outcome.INTERRUPTED and not turn_check.was_stopped(agent.checked, turn):
            return None
        row = self._store.last_event_of_turn(agent.id, turn.id, "agent:interrupted")
        return json.loads(row.data).get("by") if row is not None and row.data is not None else None

    def settle(self, change: Change) -> None:
        """Wake the parents whose children are all at rest by a change with the gathered reports, as a part of it."""
        removed = [agent for agent in self._registry.agents if agent.id in change.removed] if change.removed else []
        at_rest = [agent for agent in change.agents.values() if agent.phase not in WORKING_PHASES]
        # Also of those above: one that waits for an agent goes on no more than that one does.
        above = dict.fromkeys(one for agent in (*at_rest, *removed) for one in self._registry.lineage(agent)[1:])
        for parent in map(self._registry.get, above):
            if parent is not None and self._is_to_wake(parent):
                self._wake(change, parent)

    def look_at_all(self) -> None:
        """Wake the parents whose last children are gone without a change, because their records couldn't be read."""
        for agent_id in self._store.agents_with_gathered(SYSTEM):
            parent = self._registry.get(agent_id)
            if parent is None or not self._is_to_wake(parent):
                continue
            try:
                with self._registry.change("wait over") as change:
                    self._wake(change, parent)
            except StorageFailed as problem:
                log.error("reports not told", agent=parent.name, reason=problem.message)  # noqa: TRY400 - it says it all

    def _is_to_wake(self, parent: Agent) -> bool:
        if parent.phase in {Phase.ENDING, Phase.ENDED}:
            return False
        children = [one.id for one in self._registry.children(parent.id)]
        return len(self._waits.finished(children) | self._waits.held(children)) == len(children)

    def _wake(self, change: Change, parent: Agent) -> None:
        if gathered := self._store.start_turn_with_gathered(parent.id, SYSTEM):
            change.step(replace(parent, waiting=parent.waiting + gathered), Event.MAIL)

    def _words(self, agent: Agent, turn: Turn, reply_to: int | None, question: Item | None) -> str:
        outcome = results.outcome_of(turn, (), question, refused=turn_check.refusal(agent.checked, turn))
        said = results.text_of(turn, question)
        made = self._registry.work_of(agent)
        if reply_to is None:
            text = prompts.child_report(agent.name, turn.number, outcome, made, said)
        else:
            text = prompts.turn_as_answer(agent.name, reply_to, outcome, made, said)
        return excerpts.shortened(text, self._registry.config.limits.message_bytes)
