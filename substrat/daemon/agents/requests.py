"""Answers requests of people and agents about agents: send, suspend, resume, end; `accounting` records turns."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from mcp_server.tools import MAX_STATUS
from substrat.core.agents import excerpts, result_schema, turn_check
from substrat.core.agents.lifecycle import LIVE_PHASES, Event, Phase, stays_together
from substrat.core.agents.prompts import fitting
from substrat.core.agents.records import (
    BY_OPERATOR,
    OPERATOR,
    Agent,
    Closed,
    Completion,
    Intent,
    Item,
    ItemKind,
    by_agent,
    open_turn_id,
)
from substrat.core.agents.turn_check import CheckState
from substrat.daemon.agents import mail, spawning, turn_prompts, turn_words
from substrat.daemon.state.events import DaemonEvent
from substrat.errors import InvalidParams, LimitReached, NotFound, Refused

if TYPE_CHECKING:
    from substrat.config import Config
    from substrat.core.workspaces.clone_life import CloneEvent
    from substrat.core.workspaces.clones import Clone
    from substrat.daemon.agents.change import Change
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.agents.spawning import SpawnRequest

T = TypeVar("T")
_SHOWN_PROMPT = 200
"""Characters of a prompt that its event repeats; the whole prompt is in the turn's directory and in `transcript`."""


class AgentRequests:
    """Answers requests about agents. Methods that aren't async run without an await."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
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

    def send(self, name: str, prompt: str, by: str = BY_OPERATOR, *, now: bool = False) -> tuple[Agent, int, bool]:
        """Queue a prompt from the operator.

        Args:
            name: the agent's name or id.
            prompt: the prompt.
            by: who sends it (`records.BY_OPERATOR`).
            now: whether it is for the turn that runs, if there is one and its program takes words meanwhile.

        Returns:
            The agent, the inbox item's number, and whether it is for the turn that runs.
        """
        agent = self.find(name)
        kind = ItemKind.NOW if now and turn_words.reach(agent, prompt) else ItemKind.PROMPT
        with self.registry.change("prompt queued") as change:
            item = self._prompt(change, agent, prompt, by, kind)
        return self.find(name), item, kind is ItemKind.NOW

    def _prompt(self, change: Change, agent: Agent, prompt: str, by: str, kind: ItemKind = ItemKind.PROMPT) -> int:
        words = prompt if len(prompt) <= _SHOWN_PROMPT else f"{prompt[:_SHOWN_PROMPT]}…"
        (cause,) = change.record(DaemonEvent(agent.id, None, "prompt:queued", f"from the operator: {words}", {"by": by}))
        self.check_room(agent)
        operator = (OPERATOR, OPERATOR)
        return change.add_item(by_a_person(agent), kind, prompt, operator, Event.PROMPT, cause)

    def message(
        self, sender: Agent, to: str, text: str, intent: Intent = Intent.REQUEST, reply_to: int | None = None
    ) -> int:
        """Put a message from one agent into another's inbox, or the operator's.

        Args:
            sender: who sends it.
            to: the addressee's name, or `operator`.
            text: the message.
            intent: what it is for.
            reply_to: the number of the message that it answers.

        Returns:
            The inbox item's number.

        Raises:
            NotFound: no such addressee.
            LimitReached: the message is too long, the inbox full, or the addressee was woken or failed too often.
            Refused: the addressee is the sender, has ended, or has failed and isn't the sender's to let go on.
        """
        if len(text.encode("utf-8", "replace")) > self._config.limits.message_bytes:
            raise LimitReached(f"a message may have {self._config.limits.message_bytes} bytes: write it to a file instead")
        with self.registry.change("message to the operator" if to == OPERATOR else "message sent") as change:
            turn = open_turn_id(sender)
            start = self._store.start_of_turn(turn)
            data: dict[str, object] = {"by": by_agent(sender), "to": to, "intent": intent.value}
            if reply_to is not None:
                data["reply_to"] = reply_to
            if to == OPERATOR:
                mail.check(self.registry, sender, None)
                told = DaemonEvent(sender.id, turn, "message:sent", f"to the operator: {text}", data, start)
                return change.add_operator_item(ItemKind.MESSAGE, text, sender, *change.record(told), intent=intent)
            addressee = self.find(to)
            if addressee.id == sender.id:
                raise Refused(f"{sender.name} can't send a message to itself")
            wakes = mail.starts_turn(self.registry, sender, addressee, intent, reply_to)
            mail.check(self.registry, sender, addressee, wakes=wakes)
            if intent is not Intent.INFORM:
                mail.check_failed(self.registry, sender, addressee)
            self.check_room(addressee)
            data["to"] = addressee.name
            sent = change.record(DaemonEvent(sender.id, turn, "message:sent", f"to {addressee.name}: {text}", data, start))
            words, came = f"from {sender.name}: {text}", {**data, "by": by_agent(sender)}
            (cause,) = change.record(DaemonEvent(addressee.id, None, "message:received", words, came, *sent))
            by = (sender.id, sender.name)
            if reply_to is not None:
                self._store.settle_requests([reply_to])
            is_revived = wakes and addressee.phase is Phase.FAILED
            if is_revived and turn_prompts.say_again(self.registry, change, addressee, cause):
                addressee, wakes = self.find(addressee.id), False  # the message comes with the task
            return change.add_item(
                addressee, ItemKind.MESSAGE, text, by, mail.event_of(addressee), cause, intent=intent, reply_to=reply_to,
                starts_turn=wakes,
            )  # fmt: skip

    def take_inbox(self, name: str) -> list[Item]:
        """Hand out the messages that wait for an agent, once, as many as fit into one answer."""
        agent = self.find(name)
        items = self._next_messages(agent)
        if items:
            with self.registry.change("inbox read") as change:
                self._store.close_items(items, Closed.READ)
                change.take_items(agent, items)
        return items

    def peek_inbox(self, name: str) -> list[Item]:
        """Return the messages that wait for an agent, as many as fit into one answer, without handing them out."""
        return self._next_messages(self.find(name))

    def _next_messages(self, agent: Agent) -> list[Item]:
        waiting = [item for item in self._store.waiting_items(agent.id) if item.kind is ItemKind.MESSAGE]
        return fitting(waiting, partial(mail.rank_of, self.registry, agent))

    def message_for(self, name: str, number: int) -> Item:
        """Return a message that came for an agent, whether it was handed out or not; raises `NotFound`."""
        item = self._store.item(number)
        if item is None or item.agent != self.find(name).id or item.kind is not ItemKind.MESSAGE:
            raise NotFound(f"no message {number} has come for you")
        return item

    def complete(self, name: str, result: str, report: str, completion: Completion) -> None:
        """Note the result that an agent gives its turn itself.

        Args:
            name: the agent's name or id.
            result: the result.
            report: the result with the files that belong to it.
            completion: how it calls its work.

        Raises:
            Refused: it has no turn.
            LimitReached: the result is too long.
            InvalidParams: it doesn't fit the schema that it must have.
        """
        agent = self.find(name)
        if agent.turn is None or agent.turn.outcome is not None:
            raise Refused(f"{agent.name} has no turn whose result this could be")
        if len(report.encode("utf-8", "replace")) > excerpts.MOST:
            raise LimitReached(f"a result may have {excerpts.MOST} bytes: write the rest to a file, and name it in files")
        if (schema := agent.settings.result_schema) is not None and completion is Completion.SUCCEEDED:
            problem = result_schema.misfit(schema, result)
            if problem is not None:
                raise InvalidParams(f"{problem}; the result must fit {schema}")
        with self.registry.change("turn completed") as change:
            change.put_turn(agent, replace(agent.turn, report=report, completion=completion))
            data = {"by": by_agent(agent), "status": completion.value}
            cause = self._store.start_of_turn(agent.turn.id)
            change.record(DaemonEvent(agent.id, agent.turn.id, "turn:completed", f"{completion}: {report}", data, cause))

    def report_status(self, name: str, text: str) -> None:
        """Record an agent's report on its work."""
        agent = self.find(name)
        text = text[:MAX_STATUS]
        with self.registry.change("status reported") as change:
            change.put(replace(agent, status=text))
            data = {"by": by_agent(agent)}
            change.record(DaemonEvent(agent.id, open_turn_id(agent), "agent:status", text, data))

    def suspend(self, name: str, by: str = BY_OPERATOR, *, together: bool = False) -> Agent:
        """Ask for an agent to be suspended; `Waiting.settled` tells when its process is gone.

        Args:
            name: the agent's name or id.
            by: who asks.
            together: whether all agents are being suspended; one that was suspended by its name stays so.
        """
        kinds = {Phase.SUSPENDED: "agent:suspended"}
        return self._request(name, Event.SUSPEND, "suspend asked", kinds, by, together=together)

    def freeze(self, name: str, by: str = BY_OPERATOR, *, together: bool = False) -> Agent:
        """Suspend an agent with its turn stopped in memory; the arguments are as for `suspend`."""
        kinds = {Phase.SUSPENDED: "agent:suspended", Phase.FROZEN: "agent:frozen"}
        return self._request(name, Event.FREEZE, "freeze asked", kinds, by, together=together)

    def interrupt(self, name: str, by: str = BY_OPERATOR) -> Agent:
        """Ask for an agent's turn to be stopped."""
        return self._request(name, Event.INTERRUPT, "interrupt asked", {}, by)

    def end(self, name: str, by: str = BY_OPERATOR) -> Agent:
        """Ask for an agent to be finished."""
        return self._request(name, Event.END, "end asked", {Phase.ENDED: "agent:ended"}, by)

    def end_family(self, name: str, by: str = BY_OPERATOR) -> list[Agent]:
        """Ask for an agent and all that descend from it to be finished; returns those that hadn't been, deepest first."""
        members = [one for one in self.registry.family(self.find(name)) if one.phase != Phase.ENDED][::-1]
        with self.registry.change("end asked") as change:
            for one in members:
                after = change.step(self.registry.find(one.id), Event.END)
                if after.phase == Phase.ENDED:
                    change.record(DaemonEvent(one.id, None, "agent:ended", "ended", {"by": by}))
        return members

    def _request(
        self, name: str, event: Event, what: str, kinds: dict[Phase, str], by: str, *, together: bool | None = None
    ) -> Agent:
        before = asked = self.find(name)
        if together is not None:
            asked = replace(before, together=stays_together(before.phase, asked=together, before=before.together))
        with self.registry.change(what) as change:
            after = change.step(asked, event)
            if after.phase != before.phase and (kind := kinds.get(after.phase)) is not None:
                change.record(DaemonEvent(after.id, None, kind, kind.partition(":")[2], {"by": by}))
        return after

    def resume(self, name: str, prompt: str | None, by: str = BY_OPERATOR) -> tuple[Agent, int | None]:
        """Let an agent go on where it stopped.

        Args:
            name: the agent's name or id.
            prompt: a prompt in place of the one that it stopped at.
            by: who asks (`records.BY_OPERATOR`).

        Returns:
            The agent, and the number of the inbox item that makes it go on; None when nothing was left to do.

        Raises:
            Refused: it has ended or is just being stopped.
        """
        agent = self.find(name)
        if agent.phase not in {Phase.SUSPENDED, Phase.FAILED}:
            with self.registry.change("agent resumed") as change:
                for other in self._frozen_with(agent):
                    change.step(other, Event.RESUME)
                    change.record(DaemonEvent(other.id, None, "agent:resumed", f"resumed with {agent.name}", {"by": by}))
                going = change.step(agent, Event.RESUME)
                item = self._prompt(change, going, prompt, by) if prompt else None
                if agent.phase == Phase.FROZEN:
                    change.record(DaemonEvent(agent.id, None, "agent:resumed", "resumed", {"by": by}))
                    item = item if item is not None else self._carried(agent)
            return self.find(name), item
        unfinished = prompt or turn_prompts.unfinished(self.registry, agent)
        with self.registry.change("agent resumed") as change:
            item, resumed = None, self._with_check(change, by_a_person(agent), has_words=unfinished is not None)
            (cause,) = change.record(DaemonEvent(agent.id, None, "agent:resumed", "resumed", {"by": by}))
            if unfinished is not None:
                asker = turn_prompts.asker_of(self.registry, agent)
                item = change.add_item(resumed, ItemKind.CONTINUATION, unfinished, asker, Event.RESUME, cause)
            else:
                change.step(resumed, Event.RESUME)
            if item is None and turn_check.is_pending(self.find(name).checked):
                item = self._carried(agent)  # its turn is over, and comes to its verdict
            if item is None:
                # Nothing to go on with, but something may have been waiting all along.
                item = next((waiting.id for waiting in self._store.waiting_items(agent.id, 1)), None)
        return self.find(name), item

    def _with_check(self, change: Change, agent: Agent, *, has_words: bool) -> Agent:
        """Let the check that an agent has failed for run once more, where its person has no other words for it."""
        turn = self._store.turn(agent.turn.id) if agent.turn is not None else None
        check = agent.checked
        if has_words or turn is None or check is None or check.turn != turn.number or check.state is not CheckState.FAILED:
            return agent
        anew = turn_check.anew(check, agent.settings)
        agent = replace(agent, checked=anew, accepted_turn=None)
        return change.put_turn(agent, replace(turn, unsettled=anew is not None))

    def _frozen_with(self, agent: Agent) -> list[Agent]:
        """Return the other agents whose turns are frozen because one of the same protected paths was replaced."""
        paths = set(agent.turn.replaced or ()) if agent.phase == Phase.FROZEN and agent.turn is not None else set()
        return [
            other
            for other in self.registry.index.in_phases((Phase.FROZEN,))
            if other.id != agent.id
            if other.turn is not None and not paths.isdisjoint(other.turn.replaced or ())
        ]

    def _carried(self, agent: Agent) -> int | None:
        """Return the number of an item that an agent's newest turn carries."""
        items = self._store.items_of_turn(agent.turn.id) if agent.turn is not None else []
        return items[-1].id if items else None

    def check_removable(self, agent: Agent) -> None:
        """Raise `Refused` while a turn of an agent is running, or its work is being landed: its rows say how that ends."""
        if agent.phase in LIVE_PHASES:
            how = "frozen" if agent.phase == Phase.FROZEN else "running"
            raise Refused(f"{agent.name} is {how}: `substratctl end {agent.name}` first")
        if (checkout := self._store.lands_in(agent.id)) is not None:
            raise Refused(f"{agent.name}'s work is being landed in {checkout}: try again in a moment")

    def remove(self, name: str, left: tuple[Clone, CloneEvent] | None = None) -> None:
        """Forget an agent.

        Args:
            name: its name or id.
            left: its clone, and what this is to it, `LEAVE` or `PRUNE`; None: it had none.

        Raises:
            Refused: a turn of it is running, or its work is being landed.
        """
        agent = self.find(name)
        self.check_removable(agent)
        with self.registry.change("agent removed") as change:
            change.remove(agent)
            if left is not None:
                change.step_clone(*left)

    def unread(self, agent: Agent) -> int:
        """Count all that waits for an agent, also the messages that start no turn."""
        return agent.waiting + self._store.informing(agent.id)

    def check_room(self, agent: Agent) -> None:
        """Raise `LimitReached` if too much waits for an agent already."""
        if (waiting := self.unread(agent)) >= self._config.limits.waiting_items:
            raise LimitReached(f"{agent.name} has {waiting} messages waiting: let it work first")


def by_a_person(agent: Agent) -> Agent:
    """Forget earlier tries: a person has decided that the agent shall work now."""
    return replace(agent, attempts=0, retry_at=None)
