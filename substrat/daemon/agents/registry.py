"""Holds the agents in memory and changes them: decide, commit, then act.

A change runs without an await. It asks `core`, commits one transaction, replaces the records in memory, and only then
has its effects: a turn starts or is stopped, waiters wake. If the commit fails, nothing has changed. An example:

    with registry.change("status reported") as change:
        change.put(replace(agent, status="running the tests"))
        change.record(DaemonEvent(agent.id, None, "agent:status", "running the tests"))
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import structlog
import trio

from substrat.core.agents import turn_check
from substrat.core.agents.attention import is_at_rest
from substrat.core.agents.lifecycle import LIVE_PHASES, RUNNING_PHASES
from substrat.core.agents.records import abridged
from substrat.core.netfilter.names import NoName
from substrat.core.programs.table import PROGRAMS
from substrat.core.workspaces import work
from substrat.daemon.agents.change import Change
from substrat.daemon.agents.closures import Closures
from substrat.daemon.agents.follow_ups import FollowUps
from substrat.daemon.agents.holds import Holds
from substrat.daemon.agents.index import Index
from substrat.daemon.failpoints import URGENT
from substrat.daemon.kernel.process import is_running
from substrat.daemon.state.storing import Patience
from substrat.errors import InvalidParams, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from substrat.config import Config
    from substrat.core.agents.prices import Prices
    from substrat.core.agents.records import Agent
    from substrat.core.agents.rights import Policy
    from substrat.core.families.waits import Wait
    from substrat.core.workspaces.clones import Clone
    from substrat.daemon.agents.change import Effects
    from substrat.daemon.failpoints import Failpoints
    from substrat.daemon.state.events import Journal
    from substrat.daemon.state.store import Store

log = structlog.get_logger("substrat.registry")


class Registry:
    """All agents of one daemon.

    Args:
        store: the state.
        journal: the events.
        config: the configuration in force; assign a new one to reconfigure.
        now: the clock, in seconds since the epoch.
        steady: the steady clock (`kernel/clocks.py`).
        points: the failpoints.
        wake_at: wakes the daemon at a time.
        effects: carries out the effects of committed changes on turns.

    `follow_ups` are given to it when the daemon is composed.
    """

    def __init__(
        self,
        store: Store,
        journal: Journal,
        config: Config,
        now: Callable[[], float],
        steady: Callable[[], float],
        points: Failpoints,
        wake_at: Callable[[float], None],
        effects: Effects,
    ) -> None:
        self.store = store
        self.journal = journal
        self.config = config
        self.now = now
        self.steady = steady
        self.points = points
        self.wake_at = wake_at
        self.effects = effects
        self.prices: Prices = {}
        """The list prices of models, which are given to it when the daemon is composed."""
        self.ended_before: set[str] = set()
        """The turns whose processes had ended before this daemon began."""
        self.follow_ups = FollowUps()
        self.index = Index(store.agents())
        self._observers: list[Callable[[Iterable[str]], None]] = []
        self._change: Change | None = None
        self._changed: dict[str, trio.Event] = {}
        self.holds = Holds()
        self.closures = Closures(self)

    # Reading

    @property
    def agents(self) -> Collection[Agent]:
        """Every agent as last committed, oldest first, without its turn's result and usage, which only the store holds."""
        return self.index.agents.values()

    def page(self, after: str | None, limit: int | None, among: Collection[str] | None = None) -> list[Agent]:
        """Return agents as last committed, oldest first.

        Args:
            after: the name or id of the one before the first; None: it begins with the oldest.
            limit: how many at most; None: all.
            among: the ids of those that may be in it; None: all.

        Raises:
            NotFound: there is no agent `after`.
        """
        rest = iter(self.index.agents.values())
        if after is not None:
            last = self.find(after).id
            next(agent for agent in rest if agent.id == last)
        return list(islice((agent for agent in rest if among is None or agent.id in among), limit))

    @property
    def running(self) -> int:
        """How many turns are running, as last committed."""
        return len(self.index.in_phases(RUNNING_PHASES))

    def children(self, agent_id: str) -> list[Agent]:
        """Return an agent's children as last committed, oldest first."""
        return self.index.children(agent_id)

    def family(self, head: Agent) -> list[Agent]:
        """Return an agent and all that descend from it, each after its parent; the descendants as last committed."""
        found = [head]
        for member in found:  # it grows while it is walked
            found += self.children(member.id)
        return found

    def lineage(self, agent: Agent) -> list[str]:
        """Return the ids of an agent and its ancestors, its own first, its root's last."""
        found = [agent.id]
        while (above := self.get(agent.parent)) is not None:
            found.append(above.id)
            agent = above
        return found

    def root_of(self, agent: Agent) -> Agent:
        """Return the agent at the top of an agent's family; one that a person spawned is its own."""
        while (above := self.get(agent.parent)) is not None:
            agent = above
        return agent

    def shared_of(self, agent: Agent) -> str:
        """Return the name of the directory that an agent's family shares; it stays the same when the root is removed."""
        return agent.shared or self.root_of(agent).id

    def ssh_agent_of(self, agent_id: str) -> str | None:
        """Return the socket of the person's ssh-agent that an agent may use; None: it may use none, or is gone."""
        agent = self.index.agents.get(agent_id)
        return agent.settings.ssh_agent if agent is not None else None

    def most_of_child(self, parent: Agent, program: str) -> Policy:
        """Return the most that a child may have: its parent's rights, and its program's hosts where that is another one.

        Raises:
            InvalidParams: no list can hold both.
        """
        if program == parent.settings.program:
            return parent.policy
        try:
            return parent.policy.besides(self.config.program(program).allow or PROGRAMS[program].hosts)
        except NoName as problem:
            raise InvalidParams(f"the hosts of {program} beside those of {parent.name}: {problem}") from None

    def note_git(self, workspace: str, found: tuple[str, ...], agent_id: str | None = None) -> None:
        """Note the git directories elsewhere that a workspace's repository is in.

        Directories that the running sandbox of another agent there may show count as well.

        Args:
            workspace: its physical path.
            found: the directories.
            agent_id: the agent whose sandbox is about to be made, if it is for one.
        """
        before = self.index.git_of(workspace)
        is_shown = any(
            agent.workspace == workspace and agent.clone is None and agent.id != agent_id
            for agent in self.index.in_phases(LIVE_PHASES)
        )
        self.index.note_git(workspace, tuple(dict.fromkeys((*found, *before))) if is_shown else found)

    def find(self, name: str) -> Agent:
        """Return the agent with a name or an id, as the change under way has left it.

        Raises:
            NotFound: there is none.
        """
        agent = self.named(name)
        if agent is None:
            raise NotFound(f"there is no agent {name!r}: `substratctl ls` shows those there are")
        return agent

    def named(self, name: str) -> Agent | None:
        """Return the agent with a name or an id, as the change under way has left it; None: there is none."""
        return self.get(self._id_of(name) or name)

    def get(self, agent_id: str | None) -> Agent | None:
        """Return the agent with an id, as the change under way has left it, or None."""
        if agent_id is None:
            return None
        if self._change is not None:
            if agent_id in self._change.removed:
                return None
            if agent_id in self._change.agents:
                return self._change.agents[agent_id]
        return self.index.agents.get(agent_id)

    def agent_of_turn(self, turn_id: str) -> Agent | None:
        """Return the agent of a turn that hasn't ended, as the change under way has left it, or None."""
        return self.get(self.index.of_turn(turn_id))

    @property
    def changed_agents(self) -> Collection[Agent]:
        """The agents that the change under way has put."""
        return self._change.agents.values() if self._change is not None else ()

    @property
    def changed_waits(self) -> Mapping[int, Wait | None]:
        """The waits that the change under way has put, by number; None is a wait that it has ended."""
        return self._change.waits if self._change is not None else {}

    def clone_of(self, agent_id: str) -> Clone | None:
        """Return an agent's clone, as the change under way has left it, also if the agent is removed; None without one."""
        agent = self.get(agent_id)
        return agent.clone if agent is not None else self.store.clone(agent_id)

    def has_name(self, name: str) -> bool:
        """Say whether an agent has a name."""
        return self._id_of(name) is not None

    def _id_of(self, name: str) -> str | None:
        changed = self._change.agents if self._change is not None else {}
        if (found := next((agent.id for agent in changed.values() if agent.name == name), None)) is not None:
            return found
        known = self.index.called(name)
        return None if known in changed else known  # it is called otherwise by now

    def name_of(self, agent_id: str | None) -> str | None:
        """Return an agent's name as last committed, None when it is gone."""
        agent = self.index.agents.get(agent_id or "")
        return agent.name if agent else None

    def holder_of(self, agent: Agent) -> str | None:
        """Return the name of the ancestor that has the commits in an agent's clone (`Clone.holder`), None if none has."""
        return self.name_of(agent.clone.holder) if agent.clone is not None else None

    def untaken(self, lead: Agent) -> list[Clone]:
        """Return the clones of an agent's descendants whose commits no ancestor has, and no branch of the user's.

        Those of descendants whose turn runs or waits don't count yet.
        """
        return [
            one.clone
            for one in self.family(lead)[1:]
            if one.clone is not None and one.clone.is_unlanded and self.holder_of(one) is None and is_at_rest(one)
        ]

    def work_of(self, agent: Agent) -> str:
        """Return the record of the work in an agent's clone, empty if there is none."""
        return work.describe(agent.clone, self.holder_of(agent), turn_check.said_of(agent.checked, agent.clone))

    async def next_change(self, agent_id: str) -> None:
        """Wait until an agent changes."""
        await self.change_of(agent_id).wait()

    def observe(self, observer: Callable[[Iterable[str]], None]) -> None:
        """Tell someone after each commit which agents it has changed or removed, by their ids."""
        self._observers.append(observer)

    def change_of(self, agent_id: str) -> trio.Event:
        """Return the event that is set when an agent changes next."""
        return self._changed.setdefault(agent_id, trio.Event())

    # Changing

    @contextmanager
    def change(self, name: str, patience: Patience = Patience.WAITS, turn: str | None = None) -> Iterator[Change]:
        """Make one change; inside another one it is part of that one.

        Args:
            name: one of `failpoints.CHANGES` or `WITHIN_A_TOOL`; those in `failpoints.URGENT` are urgent in any case.
            patience: how long it waits for room on a full disk.
            turn: the turn whose end waits for it, with `Patience.TURNS_END`.

        Raises:
            StorageFailed: it couldn't be committed; nothing has changed.
        """
        if self._change is not None:
            yield self._change
            return
        change = self._change = Change(self)
        ends = patience is Patience.TURNS_END and turn is not None and self.is_being_stopped(turn)
        is_urgent = ends or patience is Patience.URGENT
        try:
            with self.journal.transaction(urgent=is_urgent or name in URGENT):
                yield change
                for settle in self.follow_ups.settle:
                    settle(change)
                self.points.committing(name)
        finally:
            self._change = None
        self.points.committed(name)
        self._apply(change)
        for action in change.actions:
            try:
                action()
            except Exception:
                # The change is committed, so the others must be carried out, and who asked is told that it is done.
                log.exception("an effect broke", change=name)
        if change.admits:
            self.admit()

    def is_being_stopped(self, turn: str) -> bool:
        """Say whether a turn that hasn't ended is to be stopped."""
        agent = self.agent_of_turn(turn)
        return agent is not None and agent.turn is not None and agent.turn.stop is not None

    def _apply(self, change: Change) -> None:
        for agent in change.agents.values():
            self.index.put(replace(agent, turn=abridged(agent.turn)) if agent.turn is not None else agent)
        for agent_id in change.removed:
            self.index.drop(agent_id)
        for apply in self.follow_ups.apply:
            apply(change)
        for agent_id in (*change.agents, *change.removed):
            self._changed.pop(agent_id, trio.Event()).set()
        for observer in self._observers:
            observer((*change.agents, *change.removed))
        self.closures.look()

    def admit(self) -> None:
        """Start the turns of agents that wait, as many as may run."""
        for admit in self.follow_ups.admit:
            admit()

    def take_up(self) -> None:
        """Take up the turns that an earlier daemon left."""
        for agent in list(self.agents):
            if agent.phase in LIVE_PHASES and agent.turn is not None:
                if agent.turn.process is not None and not is_running(agent.turn.process):
                    self.ended_before.add(agent.turn.id)
                self.effects.start(agent, agent.turn)
                if agent.turn.stop is not None:
                    self.effects.stop(agent.turn.id, agent.turn.stop)
