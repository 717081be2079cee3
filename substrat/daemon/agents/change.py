"""Defines `Change`, through which all writes to agents go, and the effects that follow its commit."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, assert_never

from substrat.core.agents import turn_check
from substrat.core.agents.lifecycle import Admit, Event, FreezeTurn, Phase, StartTurn, StopTurn, ThawTurn, step
from substrat.core.agents.records import SYSTEM, Agent, Closed, Intent, Item, ItemKind, Turn
from substrat.core.agents.turn_check import CheckState
from substrat.core.workspaces import clone_life
from substrat.core.workspaces.clone_life import CloneCommand, CloneEvent
from substrat.daemon.state.events import DaemonEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from substrat.core.agents.lifecycle import LifecycleCommand
    from substrat.core.agents.stop_reason import StopReason
    from substrat.core.agents.turn_check import TurnCheck
    from substrat.core.families.waits import Wait
    from substrat.core.workspaces.clones import Clone
    from substrat.daemon.agents.registry import Registry

_TOLD = {Phase.IDLE: CloneEvent.ASKED, Phase.QUEUED: CloneEvent.ASKED, Phase.ENDED: CloneEvent.OVER}
"""What an agent's new phase is to its clone."""


class Effects(Protocol):
    """Carries out the effects of committed changes on turns and files, at once; `turns.running_turns` does."""

    def start(self, agent: Agent, turn: Turn) -> None:
        """Start a task for a turn, which may already have a process."""

    def stop(self, turn_id: str, reason: StopReason) -> None:
        """Stop a running turn."""

    def freeze(self, turn_id: str) -> None:
        """Freeze a running turn in memory."""

    def thaw(self, turn_id: str) -> None:
        """Let a frozen turn go on."""

    def forget(self, agent: Agent) -> None:
        """Delete an agent's files."""

    def prepare_clones(self) -> None:
        """Have the clones made and set up that agents want, and those no more whose agents have ended."""


class Change:
    """A change that `Registry.change` has begun and not yet committed; only it can change agents."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store
        self.agents: dict[str, Agent] = {}
        self.removed: set[str] = set()
        self.waits: dict[int, Wait | None] = {}
        self.actions: list[Callable[[], None]] = []
        self.admits = False

    def put(self, agent: Agent) -> Agent:
        """Store an agent's new record and return it."""
        self._store.save_agent(agent)
        self.agents[agent.id] = agent
        return agent

    def put_turn(self, agent: Agent, turn: Turn) -> Agent:
        """Store an agent's newest turn and return the agent with it."""
        self._store.save_turn(turn)
        return self.put(replace(agent, turn=turn))

    def put_progress(self, agent: Agent, turn: Turn) -> Agent:
        """Store how far a turn's output has been read, which is all that its newest lines change, and return the agent."""
        self._store.save_progress(turn)
        self.agents[agent.id] = replace(agent, turn=turn)
        return self.agents[agent.id]

    def put_clone(self, agent: Agent, clone: Clone) -> Agent:
        """Store an agent's clone and return the agent with it."""
        self._store.save_clone(clone)
        return self.put(replace(agent, clone=clone))

    def put_any_clone(self, clone: Clone) -> None:
        """Store a clone, also one whose agent is removed."""
        agent = self._registry.get(clone.agent)
        if agent is not None:
            self.put_clone(agent, clone)
        else:
            self._store.save_clone(clone)

    def step_clone(self, clone: Clone, event: CloneEvent) -> Clone:
        """Take a step in a clone's life, store and return it, and carry out the step's commands after the commit.

        Args:
            clone: the clone, whose agent may be removed, with all else that the event changes.
            event: the event.

        Raises:
            Refused: the clone's stage doesn't allow the event.
        """
        clone, commands = clone_life.step(clone, event)
        if clone != self._registry.clone_of(clone.agent):
            self.put_any_clone(clone)
        self.admits = self.admits or CloneCommand.ADMIT in commands
        if CloneCommand.PREPARE in commands:
            self.after(self._registry.effects.prepare_clones)
        return clone

    def put_wait(self, number: int, wait: Wait | None) -> None:
        """Store a wait; None: it is over and told."""
        if wait is None:
            self._store.forget_wait(number)
        else:
            self._store.save_wait(wait)
        self.waits[number] = wait

    def remove(self, agent: Agent) -> None:
        """Delete an agent with its events, and its files after the commit."""
        if turn_check.is_pending(agent.checked):
            agent = self._stop_check(agent)
        for removing in self._registry.follow_ups.removing:
            removing(self, agent)
        agent = self.drop_waiting(agent, "was removed")
        self._store.forget_agent(agent.id)
        for child in self._registry.children(agent.id):
            self.put(replace(self._registry.find(child.id), parent=None))  # it may have been told something just now
        self.removed.add(agent.id)
        self.agents.pop(agent.id, None)
        if agent.budget is not None and agent.budget.limits:
            self.admits = True  # it holds up nobody any more
        self.after(partial(self._registry.journal.forget, agent.id))
        self.after(partial(self._registry.effects.forget, agent))

    def record(self, *events: DaemonEvent) -> list[int]:
        """Record events of the daemon's own, and return their cursors, for events that these lead to."""
        return self._registry.journal.record(*events)

    def after(self, action: Callable[[], None]) -> None:
        """Call a function once the change is committed."""
        self.actions.append(action)

    def add_item(
        self,
        agent: Agent,
        kind: ItemKind,
        text: str,
        sender: tuple[str, str],
        event: Event,
        cause: int | None = None,
        *,
        intent: Intent | None = None,
        reply_to: int | None = None,
        starts_turn: bool = True,
    ) -> int:
        """Put an item into an agent's inbox, and let its lifecycle take the event that this is.

        Args:
            agent: the addressee.
            kind: the item's kind.
            text: its words.
            sender: the sender's id and name, for example `("operator", "operator")`.
            event: the event for the lifecycle.
            cause: the cursor of the event that brings it; the turn that it starts has that cause.
            intent: what an agent's message is for.
            reply_to: the number of the message that it answers.
            starts_turn: whether the agent gets a turn for it.

        Returns:
            The item's number.

        Raises:
            Refused: the agent takes none any more.
        """
        now = self._registry.now()
        item = Item(0, agent.id, kind, *sender, text, now, cause, intent, reply_to, starts_turn=starts_turn)
        number = self._store.add_item(item)
        if item.starts_turn:
            self.step(replace(agent, waiting=agent.waiting + 1), event)
        else:
            step(agent.phase, event, waiting=True, name=agent.name)  # it may refuse
            self.put(agent)
        return number

    def tell(
        self, agent: Agent, text: str, by: str, cause: int | None = None, reply_to: int | None = None, *,
        gathers: bool = False,
    ) -> int:  # fmt: skip
        """Tell an agent something in Substrat's name, which starts a turn.

        Args:
            agent: the addressee.
            text: the words.
            by: who has brought it about, as events' `data.by` says it.
            cause: the cursor of the event that has.
            reply_to: the number of the message that it answers.
            gathers: whether it starts a turn only once the agent's children are all at rest (`families/reports.py`).

        Returns:
            The item's number.
        """
        data = {"by": by} if reply_to is None else {"by": by, "reply_to": reply_to}
        told = self.record(DaemonEvent(agent.id, None, "message:received", f"from Substrat: {text}", data, cause))
        sender = (SYSTEM, SYSTEM)
        return self.add_item(
            agent, ItemKind.MESSAGE, text, sender, Event.MAIL, *told, reply_to=reply_to, starts_turn=not gathers
        )

    def take_items(self, agent: Agent, items: Collection[Item]) -> Agent:
        """Take items that are closed now off an agent's count; one that was queued for them alone is idle."""
        for taken in self._registry.follow_ups.taken:
            taken(self, agent.id, items)
        agent = self.put(replace(agent, waiting=agent.waiting - sum(item.starts_turn for item in items)))
        if agent.phase == Phase.QUEUED and not agent.waiting:
            return self.step(replace(agent, attempts=0, retry_at=None), Event.EMPTIED)
        return agent

    def add_operator_item(
        self, kind: ItemKind, text: str, sender: Agent, cause: int | None = None, *, intent: Intent | None = None
    ) -> int:
        """Put an agent's message or question into the operator's inbox, and return the item's number."""
        now = self._registry.now()
        return self._store.add_item(Item(0, None, kind, sender.id, sender.name, text, now, cause, intent=intent))

    def drop_waiting(self, agent: Agent, why: str) -> Agent:
        """Give up what waits for an agent that works no more, and tell the agents who await an answer of it.

        Its own questions leave the operator's inbox, because an answer would reach nobody.

        Args:
            agent: the agent.
            why: the reason, as the end of a sentence about the agent: "has ended".
        """
        self._store.drop_questions(agent.id)
        open_requests, items = self._store.open_requests(agent.id), self._store.waiting_items(agent.id)
        if items:
            self._store.close_items(items, Closed.DROPPED)
            agent = self.put(replace(agent, waiting=0))
        for item in (*open_requests, *items):
            self.tell_dropped(item, f"{agent.name} {why}")
        return agent

    def tell_dropped(self, item: Item, why: str) -> None:
        """Tell an agent that a message to which it awaits an answer will get none."""
        self._store.settle_requests([item.id])
        sender = self._registry.get(item.sender) if item.intent is Intent.REQUEST else None
        if sender is None or sender.phase in {Phase.ENDING, Phase.ENDED}:
            return
        self.tell(sender, f"Your message {item.id} will not be answered: {why}.", SYSTEM, item.cause, item.id)

    def step(self, agent: Agent, event: Event) -> Agent:
        """Take a lifecycle step, and carry out its commands after the commit.

        Raises:
            Refused: the agent's phase doesn't allow the event.
        """
        if event in {Event.INTERRUPT, Event.END} and turn_check.is_pending(agent.checked):
            agent = self._stop_check(agent)
        unchecked = turn_check.is_pending(agent.checked)
        phase, commands = step(agent.phase, event, waiting=agent.waiting > 0, unchecked=unchecked, name=agent.name)
        since = agent.since if phase == agent.phase else self._registry.now()
        agent = self.put(replace(agent, phase=phase, since=since))
        if agent.clone is not None and (event_of_clone := _TOLD.get(phase)) is not None:
            agent = replace(agent, clone=self.step_clone(agent.clone, event_of_clone))
        if phase in {Phase.IDLE, Phase.QUEUED} and agent.unmet is not None:
            agent = self.put(replace(agent, unmet=None))
        for command in commands:
            agent = self._perform(agent, command)
        return self.drop_waiting(agent, "has ended") if phase == Phase.ENDED else agent

    def end_check(self, agent: Agent, check: TurnCheck, output: str = "") -> tuple[Agent, Turn, int]:
        """Record the verdict of an agent's check, with which the work of its newest turn comes to its end.

        Args:
            agent: the agent.
            check: the check with its verdict.
            output: the last lines that its command has printed.

        Returns:
            The agent with the check, its turn with its result, and the cursor of the verdict's event.
        """
        turn = self._store.turn(agent.turn.id) if agent.turn is not None else None
        if turn is None:
            raise RuntimeError(f"{agent.name} has a check and no turn")
        is_over = check.state is not CheckState.AGAIN
        if is_over:
            turn = replace(turn, unsettled=False)
        agent = self.put_turn(replace(agent, checked=check), turn)
        kind = "check:passed" if check.state is CheckState.PASSED else "check:failed"
        data = {"command": check.command, "tries": check.tries, "final": is_over, "output": output}
        ended = self._store.last_event_of_turn(agent.id, turn.id, "turn:ended")
        cause = ended.cursor if ended is not None else None
        (told,) = self.record(DaemonEvent(agent.id, turn.id, kind, check.text, data, cause=cause))
        return agent, turn, told

    def _stop_check(self, agent: Agent) -> Agent:
        """Stop the check of an agent that is interrupted, ended or removed, and tell those who wait for the work."""
        assert agent.checked is not None
        agent, turn, told = self.end_check(agent, turn_check.stopped(agent.checked))
        for work_ended in self._registry.follow_ups.work_ended:
            work_ended(self, agent, turn, told)
        return self._registry.find(agent.id)

    def _perform(self, agent: Agent, command: LifecycleCommand) -> Agent:
        """Store the effect of one command on an agent's turn, and carry it out after the commit."""
        if isinstance(command, Admit):
            self.admits = True
            return agent
        turn, effects = agent.turn, self._registry.effects
        if turn is None:
            raise RuntimeError(f"{agent.name} is {agent.phase} and has no turn for {command}")
        match command:
            case StartTurn():
                self.after(partial(effects.start, agent, turn))
            case StopTurn(reason):
                agent = self.put_turn(agent, replace(_thawed(turn, self._registry.steady()), stop=reason))
                self.after(partial(effects.stop, turn.id, reason))
            case FreezeTurn():
                agent = self.put_turn(agent, replace(turn, frozen_at=self._registry.steady()))
                self.after(partial(effects.freeze, turn.id))
            case ThawTurn():
                agent = self.put_turn(agent, replace(_thawed(turn, self._registry.steady()), replaced=None))
                self.after(partial(effects.thaw, turn.id))
                self.admits = True  # as it goes on, so does the time of its budget
            case _:
                assert_never(command)
        return agent


def _thawed(turn: Turn, now: float) -> Turn:
    """Return a turn that isn't frozen any more, with the time that it was frozen counted."""
    if turn.frozen_at is None:
        return turn
    frozen = max(0.0, now - turn.frozen_at)  # the steady clock begins anew with the machine
    return replace(turn, paused=turn.paused + frozen, frozen_at=None, heard_at=now)
