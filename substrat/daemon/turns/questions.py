"""Answers questions about running turns, for the methods of the operator's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from substrat.core.agents.cgroup_limits import CgroupUse
    from substrat.core.agents.records import Agent
    from substrat.daemon.kernel.cgroups import Cgroups
    from substrat.daemon.turns.running_turns import RunningTurns

_FREEZE_PATIENCE = 5.0
"""Seconds that a client waits for a freeze: stopping all processes takes milliseconds, unless the agent makes more."""


class TurnQuestions:
    """Answers questions about the running turns of one daemon.

    Args:
        turns: the turns that run.
        groups: the sandboxes' cgroups.
    """

    def __init__(self, turns: RunningTurns, groups: Cgroups) -> None:
        self._turns = turns
        self._groups = groups

    async def frozen(self, agent: Agent) -> bool:
        """Wait until all of an agent's turn, which is to be frozen, is stopped; returns whether it came to that."""
        running = self._turns.of(agent)
        with trio.move_on_after(_FREEZE_PATIENCE):
            if running is not None:
                await running.frozen.wait()
                return True
        return False

    def has_begun(self, agent: Agent) -> bool:
        """Say whether the sandbox of an agent's turn has reported its first process."""
        running = self._turns.of(agent)
        return running is not None and running.has_begun

    def first_process(self, agent: Agent) -> int | None:
        """Return the pid of the first process in the sandbox of an agent's running turn, None while there is none."""
        running = self._turns.of(agent)
        return running.first_process() if running is not None else None

    def use(self, agent: Agent) -> CgroupUse | None:
        """Return the use of the sandbox of an agent's running turn, None where that isn't counted."""
        running = self._turns.of(agent)
        group = self._groups.group(running.turn) if running is not None else None
        return group.use() if group is not None and group.is_there else None
