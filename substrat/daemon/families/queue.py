"""The queue of the agents that wait for their turns: who can't begin and why, and the order of those who can.

A check, of a landing or of a turn's work, counts as a running turn. It begins before all turns that wait, because nothing
else of its landing or its agent goes on meanwhile; at most one a branch and one an agent waits.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from sandbox import host
from substrat.core.agents.lifecycle import Phase
from substrat.core.families import scheduling
from substrat.core.families.scheduling import Facts, Running, Waiting
from substrat.daemon.agents import mail

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from substrat.core.agents.records import Agent
    from substrat.core.families.scheduling import Place
    from substrat.daemon.agents.change import Change
    from substrat.daemon.agents.disk_gate import DiskGate
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.families.account_gates import AccountGates
    from substrat.daemon.families.budgets import Budgets
    from substrat.daemon.families.needs import Needs


class Queue:
    """The queue of one daemon.

    Which family's turn began last is remembered by a count of the turns begun, which a clock that is set back doesn't
    touch; at the start it is told from the times that are stored.

    Args:
        registry: the agents, which are loaded already.
        gates: the gates of their logins.
        needs: their needs.
        budgets: their budgets.
        disk_gate: holds turns back while the disk is nearly full.
    """

    def __init__(
        self, registry: Registry, gates: AccountGates, needs: Needs, budgets: Budgets, disk_gate: DiskGate
    ) -> None:
        self._registry = registry
        self._gates = gates
        self._needs = needs
        self._budgets = budgets
        self._disk_gate = disk_gate
        turns = [agent.turn for agent in registry.agents if agent.turn is not None]
        before = sorted(turns, key=lambda turn: turn.started_at)
        self._begun = {turn.agent: number for number, turn in enumerate(before, 1)}
        self._count = len(before)
        self.waiting_checks: list[object] = []
        self._running_checks: list[object] = []
        self._looked = trio.Event()

    @property
    def closed(self) -> str | None:
        """Why turns that could start don't, as a sentence; None when none is held back."""
        return self._disk_gate.reason

    @property
    def most_running(self) -> int:
        """How many turns may run at once."""
        return scheduling.most_running(self._registry.config.turns.max_running, host.machine_memory())

    @property
    def room(self) -> int:
        """How many turns or checks may begin; less than 1: none."""
        return self.most_running - sum(self._running)

    @property
    def _running(self) -> Running:
        return Running(self._registry.running, len(self._running_checks))

    @asynccontextmanager
    async def checking(self, tell: Callable[[str], None]) -> AsyncIterator[None]:
        """Wait until a check may begin, and count it as a running turn.

        Args:
            tell: is given why it waits, as a sentence, at each change of any agent; it may raise an error.
        """
        check = object()
        self.waiting_checks.append(check)
        try:
            self._registry.admit()
            while check in self.waiting_checks:
                tell(scheduling.check_waits(self._running, self.closed))
                await self._looked.wait()
            yield
        finally:
            (self.waiting_checks if check in self.waiting_checks else self._running_checks).remove(check)
            # The next one is admitted by the timer, which a daemon that is stopping has ended, so it starts no turn.
            self._registry.wake_at(self._registry.now())

    def begin_checks(self, room: int) -> int:
        """Begin checks that wait, the first one first, as many as there is room for; returns how many."""
        begun, self.waiting_checks = self.waiting_checks[: max(room, 0)], self.waiting_checks[max(room, 0) :]
        self._running_checks += begun
        self._look()
        return len(begun)

    def _look(self) -> None:
        """Have the checks that wait look at how they stand."""
        self._looked.set()
        self._looked = trio.Event()

    def waiting(self) -> list[Waiting]:
        """Return every agent that waits for a turn, with what keeps it from beginning."""
        registry = self._registry
        first = registry.store.first_waiting()
        gates = self._gates.known()
        now, held_up = registry.now(), self._budgets.obstacles()
        found = []
        for agent in registry.index.in_phases((Phase.QUEUED,)):
            if agent.id in first:
                account, trial = self._gates.standing(agent, gates)
                asleep_until = mail.asleep_until(registry, agent)
                held = registry.holds.reason(agent.id) or registry.closures.obstacle(agent)
                facts = Facts(held, self._needs.names(agent), asleep_until, held_up(agent), account)
                obstacle = scheduling.obstacle(agent, facts, now)
                family = registry.root_of(agent).id
                is_blamed = trial is not None and gates[trial].blamed == agent.id
                found.append(
                    Waiting(
                        agent.id, family, agent.settings.priority, first[agent.id], obstacle, trial, is_blamed=is_blamed
                    )
                )
        return found

    def starts(self, waiting: Sequence[Waiting], room: int) -> list[str]:
        """Return the ids of the agents that begin, as many as there is room for, in order."""
        if room <= 0:
            return []
        return scheduling.starts(waiting, self._served(waiting), room)

    def places(self) -> list[Place]:
        """Return every agent that waits with its place and the reason, the next to begin first."""
        waiting = self.waiting()
        return scheduling.places(waiting, self._served(waiting), self._running, self.most_running, self.closed)

    def began(self, agent: Agent) -> None:
        """Note that a turn of an agent begins."""
        self._count += 1
        self._begun[agent.id] = self._count

    def apply(self, change: Change) -> None:
        """Forget the agents that a committed change has removed."""
        for agent_id in change.removed:
            self._begun.pop(agent_id, None)
        self._look()

    def _served(self, waiting: Sequence[Waiting]) -> dict[str, int]:
        """Return for each family of which an agent waits when its last turn began, by the count of turns."""
        registry = self._registry
        families = [registry.find(root) for root in {one.family for one in waiting}] if len(waiting) > 1 else []
        begun = {root.id: [self._begun.get(one.id, 0) for one in registry.family(root)] for root in families}
        return {family: last for family, numbers in begun.items() if (last := max(numbers))}
