"""Sends agents' messages to one or several, lists them in both directions, and takes back those that still wait."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from substrat.core.agents.excerpts import shortened
from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.records import (
    BY_OPERATOR,
    GROUPS,
    OPERATOR,
    SYSTEM,
    Closed,
    Intent,
    Item,
    ItemKind,
    by_agent,
    open_turn_id,
)
from substrat.daemon.families.agent_lists import unknown
from substrat.daemon.state.events import DaemonEvent
from substrat.errors import InvalidParams, LimitReached, NotFound, PolicyDenied, Refused

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.requests import AgentRequests

_REFUSED_BYTES = 200
"""Bytes that are kept of a refused message: enough to know which one it was."""
_MOST_REFUSED = 20
"""Refused messages of one agent that are kept: one that tries again and again must not fill the disk."""


class Receipt(NamedTuple):
    """The outcome of a message to one addressee: the item's number and when it comes, or why it was refused."""

    to: str
    number: int | None
    problem: str = ""
    when: str = ""

    def __str__(self) -> str:
        if self.number is None:
            return f"to {self.to}: not accepted: {self.problem}"
        return f"message {self.number} to {self.to} is accepted{self.when}"


class Messages:
    """Sends, lists and drops agents' messages."""

    def __init__(self, requests: AgentRequests) -> None:
        self._requests = requests
        self._registry = requests.registry
        self._store = requests.registry.store

    def send(self, sender: Agent, to: str, text: str, intent: Intent | None, reply_to: int | None) -> list[Receipt]:
        """Send a message to an agent, to the operator or to each of a group.

        Args:
            sender: who sends it.
            to: a name, `parent`, `operator`, or one of `GROUPS`.
            text: the message.
            intent: its purpose; None: a reply where `reply_to` is given, else a request.
            reply_to: the number of the message that it answers; a reply without one answers the last from its addressee.

        Returns:
            The outcome for each addressee; all may have refused it.

        Raises:
            NotFound: no such addressee, or no such message to reply to.
            InvalidParams: the intent and `reply_to` don't go together.
            Refused: the one addressee has ended, or is the sender.
            LimitReached: the operator takes no more.
        """
        intent = intent or (Intent.REPLY if reply_to is not None else Intent.REQUEST)
        if intent is not Intent.REPLY and reply_to is not None:
            raise InvalidParams(f"only a reply answers a message: leave the intent {intent} away, or reply_to")
        if to == "parent":
            to = self._registry.name_of(sender.parent) or OPERATOR
        if to not in GROUPS:
            return [self._send_to_one(sender, to, text, intent, reply_to)]
        if intent is Intent.REPLY:
            raise InvalidParams(f"a reply goes to one agent, not to {to}")
        receipts = [self._receipt(sender, member, text, intent) for member in self._group(sender, to)]
        if not receipts:
            raise NotFound(f"{sender.name} has no {to} to write to")
        return receipts

    def _send_to_one(self, sender: Agent, to: str, text: str, intent: Intent, reply_to: int | None) -> Receipt:
        if intent is Intent.REPLY:
            reply_to = self._checked_reply(sender, to, reply_to)
        try:
            number = self._requests.message(sender, to, text, intent, reply_to)
            item = self._store.item(number) if intent is not Intent.INFORM else None
            waits = item is not None and not item.starts_turn
            when = f": {to} is of another family, so it starts no turn and comes with {to}'s next" if waits else ""
            return Receipt(to, number, when=when)
        except NotFound:
            raise unknown(self._registry, sender, to) from None
        except LimitReached as problem:
            if to == OPERATOR:
                raise
            self._note_refused(sender, self._requests.find(to), text, intent, problem.message)
            return Receipt(to, None, problem.message)

    def _checked_reply(self, sender: Agent, to: str, number: int | None) -> int:
        """Return the number of the message that a reply answers: it must have come to its sender from its addressee."""
        try:
            whom = OPERATOR if to == OPERATOR else self._requests.find(to).id
        except NotFound:
            raise unknown(self._registry, sender, to) from None
        if number is None:
            if (newest := self._store.newest_delivered(sender.id, whom)) is None:
                raise NotFound(f"{sender.name} was given no message from {to} that it could reply to")
            return newest
        item = self._store.item(number)
        if item is None or item.agent != sender.id or item.sender == SYSTEM or not self._store.was_given(number):
            raise NotFound(f"{sender.name} was given no message {number} that can be replied to")
        if item.sender != whom:
            raise InvalidParams(f"message {number} is from {item.sender_name}: reply to {item.sender_name}")
        return number

    def _group(self, sender: Agent, group: str) -> list[Agent]:
        registry = self._registry
        if group == "children":
            found = registry.children(sender.id)
        elif group == "siblings":
            found = registry.children(sender.parent) if sender.parent is not None else []
        else:
            found = registry.family(registry.root_of(sender))
        return [one for one in found if one.id != sender.id and one.phase not in {Phase.ENDING, Phase.ENDED}]

    def _receipt(self, sender: Agent, member: Agent, text: str, intent: Intent) -> Receipt:
        """Send a message to one of a group: the others get it although this one may take no more."""
        try:
            return Receipt(member.name, self._requests.message(sender, member.name, text, intent))
        except (LimitReached, Refused, PolicyDenied) as problem:
            self._note_refused(sender, member, text, intent, problem.message)
            return Receipt(member.name, None, problem.message)

    def _note_refused(self, sender: Agent, member: Agent, text: str, intent: Intent, problem: str) -> None:
        """Keep that an addressee didn't take a message, so that a person sees why two that write to each other stop."""
        with self._registry.change("message sent") as change:
            turn = open_turn_id(sender)
            data = {"by": by_agent(sender), "to": member.name}
            told = f"to {member.name}: not accepted: {problem}"
            cause = self._store.start_of_turn(turn)
            (refused,) = change.record(DaemonEvent(sender.id, turn, "message:refused", told, data, cause))
            now, kept = self._registry.now(), shortened(text, _REFUSED_BYTES)
            item = Item(0, member.id, ItemKind.MESSAGE, sender.id, sender.name, kept, now, refused, intent=intent)
            self._store.close_items([replace(item, id=self._store.add_item(item))], Closed.REFUSED)
            self._store.forget_refused(sender.id, _MOST_REFUSED)

    # For people

    def drop(self, agent: Agent, number: int, by: str = BY_OPERATOR) -> None:
        """Take back something that waits for an agent, or that it has sent and that still waits.

        Args:
            agent: the agent.
            number: the item's number.
            by: who does it (`records.BY_OPERATOR`).

        Raises:
            NotFound: nothing of that number was sent to it or by it.
            Refused: it was delivered already.
        """
        item = self._store.item(number)
        if item is None or agent.id not in {item.agent, item.sender}:
            raise NotFound(f"{agent.name} has no message {number}: `substratctl inbox {agent.name}` lists them")
        if item.agent is None:
            raise Refused(f"{number} waits for you: `substratctl inbox --dismiss {number}`")
        if not self._store.waits(number):
            raise Refused(f"message {number} was delivered already, or given up")
        with self._registry.change("message dropped") as change:
            self._store.close_items([item], Closed.DROPPED)
            addressee = self._registry.find(item.agent)
            text = f"message {number} was taken back"
            change.record(DaemonEvent(addressee.id, None, "message:dropped", text, {"by": by}, item.cause))
            change.take_items(addressee, [item])
            change.tell_dropped(item, "the operator has taken it back")
