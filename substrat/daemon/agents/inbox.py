"""Keeps the operator's inbox: agents' questions and messages, and the operator's answers, which go back as messages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from substrat.core.agents import prompts
from substrat.core.agents.lifecycle import Event
from substrat.core.agents.records import OPERATOR, Closed, ItemKind, open_turn_id
from substrat.daemon.agents import mail
from substrat.daemon.state.events import DaemonEvent
from substrat.errors import LimitReached, NotFound, Refused

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent, Item
    from substrat.daemon.agents.registry import Registry


class Inbox:
    """Keeps the items that wait for the operator.

    Args:
        registry: the agents.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store

    def ask(self, agent: Agent, text: str) -> int:
        """Put a question to the operator.

        Returns:
            Its number, by which it is answered.

        Raises:
            LimitReached: it is too long, or too much waits for the operator already.
        """
        limits = self._registry.config.limits
        if len(text.encode("utf-8", "replace")) > limits.message_bytes:
            raise LimitReached(f"a question may have {limits.message_bytes} bytes: write the rest to a file")
        mail.check(self._registry, agent, None)
        with self._registry.change("question asked") as change:
            number = change.add_operator_item(ItemKind.QUESTION, text, agent)
            change.record(DaemonEvent(agent.id, open_turn_id(agent), "question:asked", f"question {number}: {text}"))
        return number

    def waiting(self, after: int, limit: int) -> list[Item]:
        """Return some of the items that wait for the operator, oldest first.

        Args:
            after: the number of the item before the first one.
            limit: how many at most.
        """
        return self._store.operator_items(after, limit)

    def item(self, number: int) -> Item:
        """Return one item that waits for the operator.

        Raises:
            NotFound: there is no such item.
            Refused: it is settled already.
        """
        return self._open_item(number)

    def answer(self, number: int, text: str) -> tuple[Agent, int]:
        """Answer a question, or a message, of an agent's.

        Returns:
            The agent, and the number of the inbox item that carries the answer.

        Raises:
            NotFound: there is no such item, or its agent is gone.
            Refused: it is settled already, or its agent has ended.
        """
        item = self._open_item(number)
        agent = self._registry.get(item.sender)
        if agent is None:
            raise NotFound(
                f"the agent {item.sender_name}, who wrote {number}, is gone: `substratctl inbox --dismiss {number}`"
            )
        with self._registry.change("question answered") as change:
            self._store.close_items([item], Closed.SETTLED)
            change.record(DaemonEvent(agent.id, None, "question:answered", f"question {number}: {text}"))
            # An answer is a decision that the agent shall work, like a prompt.
            woken = replace(agent, attempts=0, retry_at=None)
            words = prompts.answer(item, text)
            sent = change.add_item(woken, ItemKind.MESSAGE, words, (OPERATOR, OPERATOR), Event.PROMPT)
        return self._registry.find(agent.id), sent

    def dismiss(self, number: int) -> None:
        """Take an item off the inbox without an answer.

        Raises:
            NotFound: there is no such item.
            Refused: it is settled already.
        """
        item = self._open_item(number)
        with self._registry.change("question dismissed"):
            self._store.close_items([item], Closed.SETTLED)
            self._store.forget_settled()

    def _open_item(self, number: int) -> Item:
        item = self._store.item(number)
        if item is None or item.agent is not None:
            raise NotFound(f"there is no question or message {number} for you: `substratctl inbox` lists those there are")
        if not self._store.waits(number):
            raise Refused(f"{number} is settled already")
        return item
