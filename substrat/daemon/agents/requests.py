"""Answers requests of people and agents about agents: send, suspend, resume, end, wait; `accounting` records turns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import trio

from mcp_server.tools import MAX_STATUS
from substrat.core.agents.lifecycle import LIVE_PHASES, STATE_OF, STOPPING_PHASES, Event, Phase
from substrat.core.agents.prompts import fitting
from substrat.core.agents.records import (
    OPERATOR,
    Agent,
    Closed,
    Item,
    ItemKind,
    open_turn_id,
)
from substrat.core.workspaces import overlap
from substrat.daemon.agents import mail, spawning
from substrat.daemon.state.events import DaemonEvent
from substrat.errors import LimitReached, NotFound, Refused, WaitTimedOut

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable

    from substrat.config import Config
    from substrat.core.workspaces.overlap import Overlap
    from substrat.daemon.agents.accounting import Accounting, StoredSessions
    from substrat.daemon.agents.change import Change
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.agents.spawning import SpawnRequest

T = TypeVar("T")


class AgentRequests:
    """Answers requests about agents. Methods that aren't async run without an await.

    Args:
        registry: the agents.
        accounting: the record of their turns.
        sessions: finds agents' sessions on disk.
    """

    def __init__(self, registry: Registry, accounting: Accounting, sessions: StoredSessions) -> None:
        self.registry = registry
        self._accounting = accounting
        self._sessions = sessions
        self._store = registry.store

    @property
    def _config(self) -> Config:
        return self.registry.config

    def find(self, name: str) -> Agent:
        """Return the agent with a name or an id; raises `NotFound`."""
        return self.registry.find(name)

    # The life of an agent

    def spawn(self, request: SpawnRequest, parent: Agent | None = None) -> Agent:
        """Create an agent and queue its first prompt, if there is one (`spawning.spawn`)."""
        return spawning.spawn(self.registry, request, parent)

    def shared(self, agent: Agent) -> tuple[Overlap, ...]:
        """Return the directories that an agent shares with others that haven't ended, as far as more follows from that.

        That is so where networks differ or where directories lie in one another. One workspace for several agents with the
        same rights is common, and stands in the events only.
        """
        found = overlap.overlaps(self.registry.claim(agent), self.registry.claims(agent.id))
        return tuple(one for one in found if one.is_mixed or not one.is_same)

    def send(self, name: str, prompt: str) -> tuple[Agent, int]:
        """Queue a prompt from the operator.

        Returns:
            The agent and the inbox item's number.
        """
        with self.registry.change("prompt queued") as change:
            item = self._add(change, self.find(name), ItemKind.PROMPT, prompt, None, Event.PROMPT)
        return self.find(name), item

    def message(self, sender: Agent, to: str, text: str) -> int:
        """Put a message from one agent into another's inbox, or the operator's.

        Returns:
            The inbox item's number.

        Raises:
            NotFound: no such addressee.
            LimitReached: the message is too long, the inbox full, or the addressee was woken too often.
        """
        if len(text.encode("utf-8", "replace")) > self._config.limits.message_bytes:
            raise LimitReached(f"a message may have {self._config.limits.message_bytes} bytes: write it to a file instead")
        with self.registry.change("message to the operator" if to == OPERATOR else "message sent") as change:
            if to == OPERATOR:
                mail.check(self.registry, sender, None)
                item = change.add_operator_item(ItemKind.MESSAGE, text, sender)
                change.record(DaemonEvent(sender.id, open_turn_id(sender), "message:sent", f"to the operator: {text}"))
                return item
            addressee = self.find(to)
            if addressee.id == sender.id:
                raise Refused(f"{sender.name} can't send a message to itself")
            mail.check(self.registry, sender, addressee)
            item = self._add(change, addressee, ItemKind.MESSAGE, text, sender, Event.MAIL)
            change.record(
                DaemonEvent(sender.id, open_turn_id(sender), "message:sent", f"to {addressee.name}: {text}"),
                DaemonEvent(addressee.id, None, "message:received", f"from {sender.name}: {text}"),
            )
        return item

    def take_inbox(self, name: str) -> list[Item]:
        """Hand out the messages that wait for an agent, once, as many as fit into one answer."""
        agent = self.find(name)
        items = fitting([item for item in self._store.waiting_items(agent.id) if item.kind is ItemKind.MESSAGE])
        if items:
            with self.registry.change("inbox read") as change:
                self._store.close_items(items, Closed.READ)
                agent = change.put(replace(agent, waiting=agent.waiting - len(items)))
                if agent.phase == Phase.QUEUED and not agent.waiting:
                    change.step(by_a_person(agent), Event.EMPTIED)
        return items

    def report_status(self, name: str, text: str) -> None:
        """Record an agent's report on its work."""
        agent = self.find(name)
        text = text[:MAX_STATUS]
        with self.registry.change("status reported") as change:
            change.put(replace(agent, status=text))
            change.record(DaemonEvent(agent.id, open_turn_id(agent), "agent:status", text))

    def suspend(self, name: str) -> Agent:
        """Ask for an agent to be suspended; `wait_settled` tells when its process is gone."""
        return self._request(name, Event.SUSPEND, "suspend asked", {Phase.SUSPENDED: "agent:suspended"})

    def freeze(self, name: str) -> Agent:
        """Suspend an agent with its turn stopped in memory."""
        kinds = {Phase.SUSPENDED: "agent:suspended", Phase.FROZEN: "agent:frozen"}
        return self._request(name, Event.FREEZE, "freeze asked", kinds)

    def interrupt(self, name: str) -> Agent:
        """Ask for an agent's turn to be stopped."""
        return self._request(name, Event.INTERRUPT, "interrupt asked", {})

    def end(self, name: str) -> Agent:
        """Ask for an agent to be finished."""
        return self._request(name, Event.END, "end asked", {Phase.ENDED: "agent:ended"})

    def _request(self, name: str, event: Event, what: str, kinds: dict[Phase, str]) -> Agent:
        before = self.find(name)
        with self.registry.change(what) as change:
            after = change.step(before, event)
            if after.phase != before.phase and (kind := kinds.get(after.phase)) is not None:
                change.record(DaemonEvent(after.id, None, kind, kind.partition(":")[2]))
        return after

    def resume(self, name: str, prompt: str | None) -> tuple[Agent, int | None]:
        """Let an agent go on where it stopped.

        Returns:
            The agent, and the number of the inbox item that makes it go on; None when nothing was left to do.

        Raises:
            Refused: it has ended or is just being stopped.
            SessionMissing: its chat isn't where it was recorded.
        """
        agent = self.find(name)
        if agent.phase not in {Phase.SUSPENDED, Phase.FAILED}:
            with self.registry.change("agent resumed") as change:
                going = change.step(agent, Event.RESUME)
                item = self._add(change, going, ItemKind.PROMPT, prompt, None, Event.PROMPT) if prompt else None
                if agent.phase == Phase.FROZEN:
                    change.record(DaemonEvent(agent.id, None, "agent:resumed", "resumed"))
                    item = item if item is not None else self._carried(agent)
            return self.find(name), item
        self._sessions.check_resumable(agent)
        unfinished = prompt or self._accounting.unfinished(agent)
        with self.registry.change("agent resumed") as change:
            item, resumed = None, by_a_person(agent)
            if unfinished is not None:
                asker = self._accounting.asker_of(agent)
                item = change.add_item(resumed, ItemKind.CONTINUATION, unfinished, asker, Event.RESUME)
            else:
                change.step(resumed, Event.RESUME)
            change.record(DaemonEvent(agent.id, None, "agent:resumed", "resumed"))
            if item is None:
                # Nothing to go on with, but something may have been waiting all along.
                item = next((waiting.id for waiting in self._store.waiting_items(agent.id, 1)), None)
        return self.find(name), item

    def _carried(self, agent: Agent) -> int | None:
        """Return the number of an item that an agent's newest turn carries."""
        items = self._store.items_of_turn(agent.turn.id) if agent.turn is not None else []
        return items[-1].id if items else None

    def remove(self, name: str) -> None:
        """Forget an agent.

        Raises:
            Refused: a turn of it is running.
        """
        agent = self.find(name)
        if agent.phase in LIVE_PHASES:
            how = "frozen" if agent.phase == Phase.FROZEN else "running"
            raise Refused(f"{agent.name} is {how}: `substratctl end {agent.name}` first")
        with self.registry.change("agent removed") as change:
            change.remove(agent)

    def _add(self, change: Change, agent: Agent, kind: ItemKind, text: str, sender: Agent | None, event: Event) -> int:
        """Put something into an agent's inbox and let its lifecycle know."""
        if agent.waiting >= self._config.limits.waiting_items:
            raise LimitReached(f"{agent.name} has {agent.waiting} messages waiting: let it work first")
        by = (sender.id, sender.name) if sender is not None else (OPERATOR, OPERATOR)
        return change.add_item(by_a_person(agent) if event is Event.PROMPT else agent, kind, text, by, event)

    # Waiting

    async def wait_states(self, names: Iterable[str], states: Collection[str] | None) -> list[Agent]:
        """Wait until each agent is in one of the states; None means neither queued nor running.

        Raises:
            NotFound: an agent isn't there, or was removed meanwhile.
        """
        wanted = states if states else {"idle", "suspended", "failed", "ended"}
        found = []
        for agent_id in [self.find(name).id for name in names]:
            while STATE_OF[(agent := self.find(agent_id)).phase] not in wanted:
                await self.registry.next_change(agent_id)
            found.append(agent)
        return found

    async def wait_settled(self, name: str) -> Agent:
        """Wait until no turn of an agent is being stopped."""
        agent_id = self.find(name).id
        while (agent := self.find(agent_id)).phase in STOPPING_PHASES:
            await self.registry.next_change(agent_id)
        return agent

    async def wait_item(self, name: str, item: int | None) -> Agent:
        """Wait until the turn that delivered an inbox item has ended.

        Returns:
            The agent, with that turn as its turn.

        Raises:
            NotFound: no such item.
            Refused: the item will never get a turn, because the agent has ended.
        """
        agent_id = self.find(name).id
        item = item if item is not None else self._store.newest_prompt(agent_id)
        while True:
            where = self._store.item_turn(item) if item is not None else None
            if where is None or where[0] != agent_id:
                raise NotFound(f"{name} was given no such prompt")
            agent = self.find(agent_id)
            turn = self._store.turn(where[1]) if where[1] is not None else None
            if turn is not None and turn.outcome is not None:
                return replace(agent, turn=turn)
            if turn is None and agent.phase == Phase.ENDED:
                raise Refused(f"{agent.name} has ended before it came to this prompt")
            await self.registry.next_change(agent_id)


def by_a_person(agent: Agent) -> Agent:
    """Forget earlier tries: a person has decided that the agent shall work now."""
    return replace(agent, attempts=0, retry_at=None)


async def bounded(seconds: float | None, what: str, wait: Callable[[], Awaitable[T]]) -> T:
    """Await something for at most some seconds.

    Raises:
        WaitTimedOut: it didn't happen in time.
    """
    with trio.move_on_after(seconds if seconds is not None else float("inf")):
        return await wait()
    raise WaitTimedOut(f"timed out after {seconds:g} s waiting for {what}; it goes on")
