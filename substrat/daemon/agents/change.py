"""Defines `Change`, through which all writes to agents go, and the effects that follow its commit."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, assert_never

from substrat.core.agents.lifecycle import Admit, Event, FreezeTurn, StartTurn, StopTurn, ThawTurn, step
from substrat.core.agents.records import Agent, Item, ItemKind, Turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from substrat.core.agents.lifecycle import LifecycleCommand
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.state.events import DaemonEvent


class Effects(Protocol):
    """Carries out the effects of committed changes on turns and files, at once; `turns.running_turns` does."""

    def start(self, agent: Agent, turn: Turn) -> None:
        """Start a task for a turn, which may already have a process."""

    def stop(self, turn_id: str, reason: str) -> None:
        """Stop a running turn."""

    def freeze(self, turn_id: str) -> None:
        """Freeze a running turn in memory."""

    def thaw(self, turn_id: str) -> None:
        """Let a frozen turn go on."""

    def forget(self, agent: Agent) -> None:
        """Delete an agent's files."""


class Change:
    """A change that `Registry.change` has begun and not yet committed; only it can change agents.

    Args:
        registry: the agents.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store
        self.agents: dict[str, Agent] = {}
        self.removed: set[str] = set()
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

    def remove(self, agent: Agent) -> None:
        """Delete an agent with its events, and its files after the commit."""
        self._store.forget_agent(agent.id)
        for child in [other for other in self._registry.agents if other.parent == agent.id]:
            self.put(replace(child, parent=None))
        self.removed.add(agent.id)
        self.agents.pop(agent.id, None)
        self.after(partial(self._registry.journal.forget, agent.id))
        self.after(partial(self._registry.effects.forget, agent))

    def record(self, *events: DaemonEvent) -> None:
        """Record events of the daemon's own."""
        self._registry.journal.record(*events)

    def after(self, action: Callable[[], None]) -> None:
        """Call a function once the change is committed."""
        self.actions.append(action)

    def add_item(self, agent: Agent, kind: ItemKind, text: str, sender: tuple[str, str], event: Event) -> int:
        """Put an item into an agent's inbox, and let its lifecycle take the event that this is.

        Args:
            agent: the addressee.
            kind: the item's kind.
            text: its words.
            sender: the sender's id and name, for example `("operator", "operator")`.
            event: the event for the lifecycle.

        Returns:
            The item's number.
        """
        number = self._store.add_item(Item(0, agent.id, kind, *sender, text, self._registry.now()))
        self.step(replace(agent, waiting=agent.waiting + 1), event)
        return number

    def add_operator_item(self, kind: ItemKind, text: str, sender: Agent) -> int:
        """Put an agent's message or question into the operator's inbox, and return the item's number."""
        return self._store.add_item(Item(0, None, kind, sender.id, sender.name, text, self._registry.now()))

    def step(self, agent: Agent, event: Event) -> Agent:
        """Take a lifecycle step, and carry out its commands after the commit.

        Raises:
            Refused: the agent's phase doesn't allow the event.
        """
        phase, commands = step(agent.phase, event, waiting=agent.waiting > 0, name=agent.name)
        since = agent.since if phase == agent.phase else self._registry.now()
        agent = self.put(replace(agent, phase=phase, since=since))
        for command in commands:
            agent = self._perform(agent, command)
        return agent

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
                agent = self.put_turn(agent, replace(_thawed(turn, self._registry.now()), stop=reason))
                self.after(partial(effects.stop, turn.id, reason))
            case FreezeTurn():
                agent = self.put_turn(agent, replace(turn, frozen_at=self._registry.now()))
                self.after(partial(effects.freeze, turn.id))
            case ThawTurn():
                agent = self.put_turn(agent, _thawed(turn, self._registry.now()))
                self.after(partial(effects.thaw, turn.id))
            case _:
                assert_never(command)
        return agent


def _thawed(turn: Turn, now: float) -> Turn:
    """Return a turn that isn't frozen any more, with the time that it was frozen counted."""
    if turn.frozen_at is None:
        return turn
    return replace(turn, paused=turn.paused + now - turn.frozen_at, frozen_at=None, thawed_at=now)
