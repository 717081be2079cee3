"""Freezes running turns, and answers questions about them, for the methods of the operator's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from substrat.core.agents.lifecycle import Phase
from substrat.errors import Refused

if TYPE_CHECKING:
    from substrat.core.agents.cgroup_limits import CgroupUse
    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.requests import AgentRequests
    from substrat.daemon.kernel.cgroups import Cgroups
    from substrat.daemon.turns.running_turns import RunningTurns

_FREEZE_PATIENCE = 5.0
"""Seconds that a client waits for a freeze: stopping all processes takes milliseconds, unless the agent makes more."""


class TurnQuestions:
    """Freezes the running turns of one daemon, and answers questions about them."""

    def __init__(self, requests: AgentRequests, turns: RunningTurns, groups: Cgroups) -> None:
        self._requests = requests
        self._turns = turns
        self._groups = groups

    async def freeze(self, name: str, by: str, *, together: bool) -> Agent:
        """Freeze an agent's turn, and return the agent when all of the turn is stopped (`AgentRequests.freeze`).

        Raises:
            Refused: the agent's phase doesn't allow it, or the turn can't be frozen and goes on.
        """
        agent = self._requests.freeze(name, by, together=together)
        running, turn = self._turns.of(agent), agent.turn
        if agent.phase != Phase.FROZEN or turn is None:
            return agent
        with trio.move_on_after(_FREEZE_PATIENCE):
            if running is not None:
                await running.frozen.wait()
                return agent
        now = self._requests.find(agent.id)
        if now.phase != Phase.FROZEN or now.turn is None or now.turn.frozen_at != turn.frozen_at:
            return now  # another request came meanwhile, and stands
        self._requests.resume(agent.id, None, by)
        if running is None or not running.has_begun:
            raise Refused(f"{agent.name}'s sandbox has no process yet that could be frozen: suspend it without freezing")
        raise Refused(f"{agent.name} makes processes faster than they can be stopped: suspend it without freezing")

    def first_process(self, agent: Agent) -> int | None:
        """Return the pid of the first process in the sandbox of an agent's running turn, None while there is none."""
        running = self._turns.of(agent)
        return running.first_process() if running is not None else None

    def use(self, agent: Agent) -> CgroupUse | None:
        """Return the use of the sandbox of an agent's running turn, None where that isn't counted."""
        running = self._turns.of(agent)
        group = self._groups.group(running.turn) if running is not None else None
        return group.use() if group is not None and group.is_there else None
