"""Lets agents begin when those that they need have succeeded, and tells that they don't run when one has not.

Both are decided at the end of each change, in its transaction, as with `waits`: the end of the turn that is needed and the
beginning that it allows are committed together.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from substrat.core.agents.lifecycle import Event, Phase
from substrat.core.agents.records import SYSTEM
from substrat.core.families import needs
from substrat.core.families.tasks import NEEDED
from substrat.daemon.families.agent_lists import unknown
from substrat.daemon.state.events import DaemonEvent
from substrat.errors import InvalidParams, NotFound, PolicyDenied, Refused, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.change import Change
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.families.waits import Waits

log = structlog.get_logger("substrat.needs")


class Needs:
    """The needs of one daemon's agents.

    Args:
        registry: the agents, which are loaded already.
        waits: their waits.
    """

    def __init__(self, registry: Registry, waits: Waits) -> None:
        self._registry = registry
        self._waits = waits
        self._needing = {agent.id for agent in registry.agents if agent.needs}

    def names(self, agent: Agent) -> tuple[str, ...]:
        """Return the names of the agents that one still needs."""
        return tuple(self._name_of(one) for one in agent.needs)

    def _name_of(self, agent_id: str) -> str:
        found = self._registry.get(agent_id)
        return found.name if found is not None else "an agent that is gone"

    # Spawning

    def checked(self, parent: Agent, names: Sequence[str]) -> tuple[str, ...]:
        """Return the ids of the agents that a new child is to need.

        Args:
            parent: the child's parent.
            names: their names.

        Raises:
            NotFound: there is no such agent.
            InvalidParams: it is no agent's name, or there are too many.
            PolicyDenied: it belongs to another family.
            Refused: the child descends from it.
        """
        if len(set(names)) > needs.MOST:
            raise InvalidParams(f"a child can need {needs.MOST} agents: let it need one that waits for the others")
        return tuple(dict.fromkeys(self._checked(parent, name) for name in names))

    def _checked(self, parent: Agent, name: str) -> str:
        registry = self._registry
        if name.startswith(NEEDED):
            raise InvalidParams(f"{name}: a child can need agents only: name the agent that does that work")
        try:
            found = registry.find(name)
        except NotFound:
            raise unknown(registry, parent, name) from None
        if found.id in registry.lineage(parent):
            raise Refused(f"a child of yours can't need {name}, because it descends from it: start it without that")
        if registry.root_of(found).id != registry.root_of(parent).id:
            raise PolicyDenied(f"{name} isn't of your family: a child can need your descendants, or siblings and theirs")
        return found.id

    # Changes

    def settle(self, change: Change) -> None:
        """Decide the needs that a change has decided, as a part of it."""
        needing = self._needing | {agent.id for agent in change.agents.values() if agent.needs}
        if not needing:
            return
        changed = [*change.agents, *change.removed]
        for agent_id in changed:  # it grows: one that doesn't run may be needed itself
            for one in needing:
                agent = self._registry.get(one)
                if agent is None or agent.phase != Phase.QUEUED or not (one == agent_id or agent_id in agent.needs):
                    continue
                if self._look(change, agent):
                    changed.append(one)

    def _look(self, change: Change, agent: Agent) -> bool:
        """Look at all that an agent needs, and say whether that has made it fail."""
        if not agent.needs:
            return False
        found = [(one, self._state_of(one)) for one in agent.needs]
        if failed := [(self._name_of(one), need.why) for one, need in found if need.met is False]:
            self._fail(change, agent, needs.unmet(failed))
            return True
        left = tuple(one for one, need in found if need.met is None)
        if left != agent.needs:
            change.put(replace(agent, needs=left))
        if not left:
            change.admits = True
            names = ", ".join(self.names(agent))
            change.record(DaemonEvent(agent.id, None, "need:met", f"{names} {_has(agent.needs)} succeeded", {"by": SYSTEM}))
        return False

    def _state_of(self, agent_id: str) -> needs.Need:
        agent = self._registry.get(agent_id)
        turn = self._registry.store.turn(agent.turn.id) if agent is not None and agent.turn is not None else None
        has_finished = bool(self._waits.finished([agent_id]))
        return needs.state_of(agent, turn, has_finished=has_finished)

    def _fail(self, change: Change, agent: Agent, why: str) -> None:
        """Let an agent fail that will never begin, and tell its parent, unless that waits for it and is told so."""
        agent = change.step(replace(agent, needs=(), unmet=why), Event.UNMET)
        text = f"{why}; `substratctl resume {agent.name}` lets it run all the same"
        told = change.record(DaemonEvent(agent.id, None, "need:failed", text, {"by": SYSTEM}))
        parent = self._registry.get(agent.parent)
        if parent is None or parent.phase in {Phase.ENDING, Phase.ENDED}:
            return
        if self._waits.awaits(parent, agent):
            return
        change.tell(parent, f"Your child agent {agent.name} has done nothing: {why}.", SYSTEM, *told, gathers=True)

    def apply(self, change: Change) -> None:
        """Take a committed change over into memory."""
        self._needing -= change.removed
        for agent in change.agents.values():
            (self._needing.add if agent.needs else self._needing.discard)(agent.id)

    def look_at_all(self) -> None:
        """Decide the needs for agents that are gone without a change, because their records couldn't be read."""
        for one in list(self._needing):
            agent = self._registry.get(one)
            if agent is None or agent.phase != Phase.QUEUED or all(map(self._registry.get, agent.needs)):
                continue
            try:
                with self._registry.change("wait over") as change:
                    self._look(change, agent)
            except StorageFailed as problem:
                log.error("need not told", agent=agent.name, reason=problem.message)  # noqa: TRY400 - it says it all


def _has(those: Sequence[str]) -> str:
    return "have" if len(those) > 1 else "has"
