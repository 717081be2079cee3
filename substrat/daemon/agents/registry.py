"""The agents in memory and the one way to change them: decide, commit, act; what changes mean is decided elsewhere.

A change runs without an await: it asks `core`, commits one transaction, replaces the records in memory, and only then
does what has to be done (start a task, stop a turn, wake whoever waits). If the commit fails nothing has changed.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import trio

from substrat.core.agents.lifecycle import LIVE_PHASES, RUNNING_PHASES, Command, Event, Phase, step
from substrat.core.agents.records import OPERATOR, SUSPENDED, Agent, Item, ItemKind, Turn, abridged
from substrat.core.workspaces.overlap import Claim
from substrat.daemon.failpoints import URGENT
from substrat.errors import LimitReached, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from substrat.config import Config
    from substrat.daemon.agents.disk_gate import DiskGate
    from substrat.daemon.failpoints import Failpoints
    from substrat.daemon.state.events import Journal
    from substrat.daemon.state.store import Store

STOP_REASONS = {Phase.SUSPENDING: SUSPENDED, Phase.INTERRUPTING: "interrupted", Phase.ENDING: "ended"}
"""Why a turn is being stopped, by its agent's phase."""


class Runner(Protocol):
    """What is needed of whoever runs turns; `runner.py` does it with processes."""

    def start(self, agent: Agent, turn: Turn) -> None:
        """Start a task for a turn; it may already have a process."""

    def stop(self, turn_id: str, reason: str) -> None:
        """Ask for a running turn to be stopped."""

    def freeze(self, turn_id: str) -> None:
        """Stop a running turn in memory."""

    def thaw(self, turn_id: str) -> None:
        """Let a frozen turn go on."""

    def session_stored(self, agent: Agent) -> bool:
        """Say whether an agent's session is on disk."""

    def check_resumable(self, agent: Agent) -> None:
        """Raise if the agent's session can't be continued."""

    def leave_out(self, option: str) -> bool:
        """Start the agent program without an option from now on; return whether that is news."""

    def forget(self, agent: Agent) -> None:
        """Delete an agent's files."""


class _Change:
    """What a change under way will have changed once it is committed."""

    def __init__(self) -> None:
        self.agents: dict[str, Agent] = {}
        self.removed: set[str] = set()
        self.after: list[Callable[[], None]] = []
        self.admit = False


class Registry:
    """All agents of one daemon.

    Args:
        store: the state.
        journal: the events.
        config: the configuration in force; assign a new one to reconfigure.
        now: the clock, in seconds since the epoch.
        points: where the daemon may be told to die.
        wake_at: rings the daemon's alarm at a time.
    """

    def __init__(
        self,
        store: Store,
        journal: Journal,
        config: Config,
        now: Callable[[], float],
        points: Failpoints,
        wake_at: Callable[[float], None],
    ) -> None:
        self.store = store
        self.journal = journal
        self.config = config
        self.now = now
        self.points = points
        self.wake_at = wake_at
        self.runner: Runner | None = None
        self.admit: Callable[[], None] | None = None
        self.gate: DiskGate | None = None
        self._agents: dict[str, Agent] = {agent.id: agent for agent in store.agents()}
        self._ids: dict[str, str] = {agent.name: agent.id for agent in self._agents.values()}
        self._change: _Change | None = None
        self._changed: dict[str, trio.Event] = {}
        self._git: dict[str, tuple[str, ...]] = {}

    # Reading

    @property
    def agents(self) -> Collection[Agent]:
        """Every agent, oldest first; what its turn's result and usage are, only the store knows."""
        return self._agents.values()

    @property
    def running(self) -> int:
        """How many turns are running."""
        return sum(agent.phase in RUNNING_PHASES for agent in self._agents.values())

    def claims(self, *without: str) -> tuple[Claim, ...]:
        """Return the directories and rights of all agents that haven't ended.

        Args:
            without: the ids of those that are left out.
        """
        return tuple(
            self.claim(agent) for agent in self._agents.values() if agent.phase != Phase.ENDED and agent.id not in without
        )

    def claim(self, agent: Agent) -> Claim:
        """Return the directories and rights of one agent."""
        return Claim.of(agent, self.git_of(agent.workspace))

    def git_of(self, workspace: str) -> tuple[str, ...]:
        """Return the git directories elsewhere that agents of a workspace may write to, as far as was found."""
        return self._git.get(workspace, ())

    def note_git(self, workspace: str, found: tuple[str, ...], agent_id: str | None = None) -> None:
        """Note the git directories elsewhere that a workspace's repository is in.

        What the sandbox of another agent there may show since its start counts as well.

        Args:
            workspace: its physical path.
            found: the directories.
            agent_id: the agent whose sandbox is about to be made, if it is for one.
        """
        before = self.git_of(workspace)
        # All agents are only looked through where something would be forgotten: there may be thousands.
        is_shown = not set(before) <= set(found) and any(
            agent.workspace == workspace and agent.id != agent_id and agent.phase in LIVE_PHASES
            for agent in self._agents.values()
        )
        self._git[workspace] = tuple(dict.fromkeys((*found, *before))) if is_shown else found

    def find(self, name: str) -> Agent:
        """Return the agent with a name or an id, as the change under way has left it.

        Raises:
            NotFound: there is none.
        """
        agent = self.get(self._id_of(name) or name)
        if agent is None:
            raise NotFound(f"there is no agent {name!r}: `substratctl ls` shows those there are")
        return agent

    def get(self, agent_id: str | None) -> Agent | None:
        """Return the agent with an id, as the change under way has left it, or None."""
        if agent_id is None:
            return None
        if self._change is not None:
            if agent_id in self._change.removed:
                return None
            if agent_id in self._change.agents:
                return self._change.agents[agent_id]
        return self._agents.get(agent_id)

    def has_name(self, name: str) -> bool:
        """Say whether an agent has a name."""
        return self._id_of(name) is not None

    def _id_of(self, name: str) -> str | None:
        changed = self._change.agents.values() if self._change is not None else ()
        return next((agent.id for agent in changed if agent.name == name), None) or self._ids.get(name)

    def name_of(self, agent_id: str | None) -> str | None:
        """Return an agent's name, None when it is gone."""
        agent = self._agents.get(agent_id or "")
        return agent.name if agent else None

    async def next_change(self, agent_id: str) -> None:
        """Wait until an agent changes."""
        await self._changed.setdefault(agent_id, trio.Event()).wait()

    # Changing

    @contextmanager
    def change(self, what: str, *, urgent: bool = False) -> Iterator[None]:
        """One change; inside another one it is part of that one.

        Args:
            what: its name, one of `points.CHANGES`; those in `points.URGENT` are urgent in any case.
            urgent: whether it may use the room that is kept for a full disk, because a turn can't be stopped without it.

        Raises:
            StorageFailed: it couldn't be committed; nothing has changed.
        """
        if self._change is not None:
            yield
            return
        change = self._change = _Change()
        try:
            with self.journal.transaction(urgent=urgent or what in URGENT):
                yield
                self.points.committing(what)
        finally:
            self._change = None
        self.points.committed(what)
        self._apply(change)
        for action in change.after:
            action()
        if change.admit and self.admit is not None:
            self.admit()

    def _apply(self, change: _Change) -> None:
        for agent in change.agents.values():
            self._agents[agent.id] = replace(agent, turn=abridged(agent.turn)) if agent.turn is not None else agent
            self._ids[agent.name] = agent.id
        for agent_id in change.removed:
            del self._ids[self._agents.pop(agent_id).name]
        for agent_id in (*change.agents, *change.removed):
            self._changed.pop(agent_id, trio.Event()).set()

    def put(self, agent: Agent) -> Agent:
        """Store an agent's new record as part of the change under way."""
        assert self._change is not None
        self.store.save_agent(agent)
        self._change.agents[agent.id] = agent
        return agent

    def put_turn(self, agent: Agent, turn: Turn) -> Agent:
        """Store an agent's newest turn as part of the change under way."""
        self.store.save_turn(turn)
        return self.put(replace(agent, turn=turn))

    def remove(self, agent: Agent) -> None:
        """Delete an agent as part of the change under way."""
        assert self._change is not None
        self.store.forget_agent(agent.id)
        for child in [other for other in self._agents.values() if other.parent == agent.id]:
            self.put(replace(child, parent=None))
        self._change.removed.add(agent.id)
        self._change.agents.pop(agent.id, None)
        self.after(lambda: self.journal.forget(agent.id))

    def after(self, action: Callable[[], None]) -> None:
        """Do something once the change under way is committed."""
        assert self._change is not None
        self._change.after.append(action)

    def step(self, agent: Agent, event: Event) -> Agent:
        """Take a lifecycle step as part of the change under way, and do what it commands after the commit.

        Raises:
            Refused: the agent's phase doesn't allow the event.
        """
        assert self._change is not None
        phase, commands = step(agent.phase, event, waiting=agent.waiting > 0, name=agent.name)
        since = agent.since if phase == agent.phase else self.now()
        agent = self.put(replace(agent, phase=phase, since=since))
        turn, runner = agent.turn, self.runner
        for command in commands:
            match command:
                case Command.ADMIT:
                    self._change.admit = True
                case Command.STOP_TURN if turn is not None and runner is not None:
                    reason = STOP_REASONS[phase]
                    agent = self.put_turn(agent, replace(_thawed(turn, self.now()), stop=reason))
                    self.after(partial(runner.stop, turn.id, reason))
                case Command.START_TURN if turn is not None and runner is not None:
                    self.after(partial(runner.start, agent, turn))
                case Command.FREEZE_TURN if turn is not None and runner is not None:
                    agent = self.put_turn(agent, replace(turn, frozen_at=self.now()))
                    self.after(partial(runner.freeze, turn.id))
                case Command.THAW_TURN if turn is not None and runner is not None:
                    agent = self.put_turn(agent, _thawed(turn, self.now()))
                    self.after(partial(runner.thaw, turn.id))
        return agent

    def check_mail(self, sender: Agent, addressee: Agent | None) -> None:
        """Find out whether an agent may write to another, or to the operator (None).

        Raises:
            LimitReached: too much of what it wrote waits there already, or the addressee was woken too often.
        """
        limits = self.config.limits
        whom, where = (addressee.name, addressee.id) if addressee is not None else ("the operator", None)
        if (count := self.store.waiting_from(sender.id, where)) >= limits.waiting_from_one:
            raise LimitReached(f"{count} messages of {sender.name} wait for {whom} already: write again when they are read")
        if addressee is None and self.store.waiting_from(None, None) >= limits.waiting_items:
            raise LimitReached(f"{limits.waiting_items} questions and messages wait for the operator already")
        if addressee is not None and (until := self.asleep_until(addressee)) is not None:
            raise LimitReached(
                f"messages alone have started the last {limits.wakes} turns of {addressee.name}: it takes none for "
                f"{max(1.0, until - self.now()):.0f} s, unless the operator prompts it"
            )

    def asleep_until(self, agent: Agent) -> float | None:
        """Return until when messages start no turn of an agent, in seconds since the epoch; None: they may now."""
        limits = self.config.limits
        if not limits.wakes or agent.turn is None or agent.turn.number < limits.wakes:
            return None
        first = self.store.woken_by_mail(agent.id, limits.wakes, OPERATOR)
        if first is None or first + limits.wake_window <= self.now():
            return None
        return None if self.store.waits_from_a_person(agent.id, OPERATOR) else first + limits.wake_window

    def add_item(self, agent: Agent, kind: ItemKind, text: str, sender: Agent | None, event: Event) -> int:
        """Put something into an agent's inbox and let its lifecycle know, as part of the change under way.

        Args:
            agent: the addressee.
            kind: what it is.
            text: its words.
            sender: the agent it is from, or None for the operator.
            event: how the lifecycle takes it.

        Returns:
            The item's number.
        """
        who = (sender.id, sender.name) if sender else (OPERATOR, OPERATOR)
        number = self.store.add_item(Item(0, agent.id, kind, *who, text, self.now()))
        self.step(replace(agent, waiting=agent.waiting + 1), event)
        return number


def _thawed(turn: Turn, now: float) -> Turn:
    """Return a turn that isn't frozen any more, with the time it was counted."""
    if turn.frozen_at is None:
        return turn
    return replace(turn, paused=turn.paused + now - turn.frozen_at, frozen_at=None, thawed_at=now)
