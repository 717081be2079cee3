"""Keeps the operator's inbox: agents' questions and messages, and the operator's answers, which go back as messages."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from mcp_server.tools import no_such
from substrat.core.agents import prompts
from substrat.core.agents.lifecycle import Event, Phase
from substrat.core.agents.records import (
    BY_OPERATOR,
    OPERATOR,
    SYSTEM,
    Closed,
    Item,
    ItemKind,
    by_agent,
    open_turn_id,
)
from substrat.core.agents.reminding import LONGEST_S
from substrat.daemon.agents import mail
from substrat.daemon.state.events import DaemonEvent
from substrat.errors import InvalidParams, LimitReached, NotFound, Refused
from substrat.protocol import answers

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.registry import Registry


class Question(NamedTuple):
    """A question of an agent's.

    Args:
        text: its words.
        options: answers to choose from.
        default: the answer when its time is over.
        deadline_s: its time, in seconds.
    """

    text: str
    options: tuple[str, ...] = ()
    default: str | None = None
    deadline_s: float | None = None


class Inbox:
    """Keeps the items that wait for the operator."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store

    def ask(self, agent: Agent, question: Question) -> int:
        """Put a question to the operator.

        Returns:
            Its number, by which it is answered.

        Raises:
            LimitReached: it is too long, or too much waits for the operator already.
            InvalidParams: it has a default answer or a deadline alone, or too late a one.
        """
        text, deadline = question.text, self._deadline(question)
        limits = self._registry.config.limits
        if len(text.encode("utf-8", "replace")) > limits.message_bytes:
            raise LimitReached(f"a question may have {limits.message_bytes} bytes: write the rest to a file")
        if question.options and question.default is not None and answers.chosen(question.options, question.default) is None:
            raise InvalidParams(no_such("option for the default", question.default, question.options))
        mail.check(self._registry, agent, None)
        with self._registry.change("question asked") as change:
            turn = open_turn_id(agent)
            item = Item(
                0, None, ItemKind.QUESTION, agent.id, agent.name, text, self._registry.now(),
                options=question.options or None, default_answer=question.default, deadline=deadline,
            )  # fmt: skip
            number = self._store.add_item(item)
            change.put(self._registry.find(agent.id))  # for those who look at what has changed: its attention has
            data = {"by": by_agent(agent), "question": number}
            told = f"question {number}: {text}"
            start = self._store.start_of_turn(turn)
            self._store.note_cause(number, *change.record(DaemonEvent(agent.id, turn, "question:asked", told, data, start)))
            if deadline is not None:
                change.after(partial(self._registry.wake_at, deadline))
        return number

    def _deadline(self, question: Question) -> float | None:
        """Return when a question's default is its answer, in seconds since the epoch."""
        if (question.default is None) != (question.deadline_s is None):
            raise InvalidParams("default and deadline_s go together: the default is the answer when the time is over")
        if question.deadline_s is None:
            return None
        if not 0 < question.deadline_s <= LONGEST_S:
            raise InvalidParams(f"deadline_s can be up to {LONGEST_S:g} seconds, not {question.deadline_s:g}")
        return self._registry.now() + question.deadline_s

    def end_due(self, now: float) -> float | None:
        """Answer the questions whose time is over with their defaults; return when the next one's is (`due.end_due`)."""
        for item in self._store.questions_due(now):
            self._answer_by_default(item)
        return self._store.next_deadline()

    def _answer_by_default(self, item: Item) -> None:
        agent = self._registry.get(item.sender)
        with self._registry.change("question expired") as change:
            self._store.close_items([item], Closed.SETTLED)
            if agent is None or agent.phase in {Phase.ENDING, Phase.ENDED}:
                return
            text = item.default_answer or ""
            data, told = {"by": SYSTEM, "question": item.id}, f"question {item.id}, by its default: {text}"
            (cause,) = change.record(DaemonEvent(agent.id, None, "question:answered", told, data, item.cause))
            words = prompts.default_answer(item, text)
            change.add_item(agent, ItemKind.MESSAGE, words, (SYSTEM, SYSTEM), Event.MAIL, cause, reply_to=item.id)

    def answer(self, number: int, text: str, by: str = BY_OPERATOR) -> tuple[Agent, int]:
        """Answer a question, or a message, of an agent's.

        Args:
            number: the item's number.
            text: the answer.
            by: who answers (`records.BY_OPERATOR`).

        Returns:
            The agent, and the number of the inbox item that carries the answer.

        Raises:
            NotFound: there is no such item, or its agent is gone.
            Refused: it is settled already, or its agent has ended.
        """
        item = self.item(number)
        agent = self._registry.get(item.sender)
        if agent is None:
            raise NotFound(
                f"the agent {item.sender_name}, who wrote {number}, is gone: `substratctl inbox --dismiss {number}`"
            )
        chosen = answers.chosen(item.options or (), text)
        own_words = f"{text}\n\n(in the operator's own words)" if item.options else text
        with self._registry.change("question answered") as change:
            self._store.close_items([item], Closed.SETTLED)
            data, told = {"by": by, "question": number}, f"question {number}: {chosen or text}"
            (cause,) = change.record(DaemonEvent(agent.id, None, "question:answered", told, data, item.cause))
            # An answer is a decision that the agent shall work, like a prompt.
            woken = replace(agent, attempts=0, retry_at=None)
            words = prompts.answer(item, chosen or own_words)
            sent = change.add_item(
                woken, ItemKind.MESSAGE, words, (OPERATOR, OPERATOR), Event.PROMPT, cause, reply_to=number
            )
        return self._registry.find(agent.id), sent

    def dismiss(self, number: int) -> None:
        """Take an item off the inbox without an answer.

        Raises:
            NotFound: there is no such item.
            Refused: it is settled already.
        """
        item = self.item(number)
        self._dismiss(item, Closed.SETTLED, self._registry.get(item.sender))

    def take_back(self, agent: Agent, number: int | None) -> int:
        """Take an agent's own question back, by default its newest, and return its number; raises `NotFound`."""
        own = {item.id: item for item in self._store.questions_of(agent.id)}
        number = number if number is not None else max(own, default=0)
        if number not in own:
            named = f"no question {number}" if number else "no question"
            raise NotFound(f"{named} of yours waits; there are: {', '.join(map(str, own)) or 'none'}")
        self._dismiss(own[number], Closed.DROPPED, agent)
        return number

    def _dismiss(self, item: Item, how: Closed, agent: Agent | None) -> None:
        with self._registry.change("question dismissed") as change:
            self._store.close_items([item], how)
            self._store.forget_settled()
            if agent is not None:
                change.put(agent)  # those who wait for it look at it again: it may have finished by that
                for question_closed in self._registry.follow_ups.question_closed:
                    question_closed(change, agent)

    def item(self, number: int) -> Item:
        """Return an item that waits for the operator; raises `NotFound`, or `Refused` if it is settled already."""
        item = self._store.item(number)
        if item is None or item.agent is not None:
            raise NotFound(f"there is no question or message {number} for you: `substratctl inbox` lists those there are")
        if not self._store.waits(number):
            asker = self._registry.get(item.sender)
            why = f": {asker.name} has ended" if asker is not None and asker.phase == Phase.ENDED else ""
            raise Refused(f"{number} is settled already{why}")
        return item
