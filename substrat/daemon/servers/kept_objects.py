"""Keeps the encoded objects of agents that rest, until a record that they tell of changes.

An object tells of its agent's record and of those of its family: a child is led, a lead has commits to take. Where one of
them runs, waits, asks or has work to land, its object tells also of the clock, the queue or a repository, and none of that
family is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.core.agents import turn_check
from substrat.core.agents.lifecycle import Phase

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent
    from substrat.core.workspaces.clones import Clone
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.families.waits import Waits

    Records = tuple[Agent, ...]
    Members = tuple[str, ...]

_RESTING = frozenset({Phase.IDLE, Phase.SUSPENDED, Phase.FAILED, Phase.ENDED})
_MOST_KINDS = 4
"""Choices of members whose objects are kept: those of `ls` with and without NAMEs, of `ls --json`, and of a program."""


class KeptObjects:
    """The objects that are kept.

    Args:
        registry: the agents.
        waits: their waits for others.
    """

    def __init__(self, registry: Registry, waits: Waits) -> None:
        self._registry = registry
        self._waits = waits
        self._families: dict[str, Records] = {}
        """The records of families when they were last looked at, by their roots' ids."""
        self._kept: dict[Members, dict[str, tuple[Records, bytes]]] = {}

    def look(self, members: Members) -> Look:
        """Begin a look at objects with some members; it holds until the next checkpoint."""
        if members not in self._kept and len(self._kept) >= _MOST_KINDS:
            del self._kept[next(iter(self._kept))]
        kept = self._kept.setdefault(members, {})
        most = 2 * len(self._registry.agents)
        if max(len(self._families), len(kept)) > most:  # many of them are of removed agents
            self._families.clear()
            self._kept = {members: kept}
            kept.clear()
        return Look(self._registry, self._waits, self._families, kept)


class Look:
    """A look at the objects that are kept; made by `KeptObjects.look`."""

    def __init__(
        self, registry: Registry, waits: Waits, families: dict[str, Records], kept: dict[str, tuple[Records, bytes]]
    ) -> None:
        self._registry = registry
        self._waits = waits
        self._families = families
        self._kept = kept
        self._asking = registry.store.asking()
        self._resting: dict[str, Records | None] = {}

    def get(self, agent: Agent) -> bytes | None:
        """Return an agent's object; None: it isn't kept, or tells of records that have changed."""
        found = self._kept.get(agent.id)
        if found is None or self._registry.get(agent.id) is not agent:
            return None
        return found[1] if found[0] is self._records(agent) else None

    def keep(self, agent: Agent, encoded: bytes) -> bytes:
        """Keep an agent's object, which has been made just now, if it tells of records alone, and return it."""
        records = self._records(agent) if self._registry.get(agent.id) is agent else None
        if records is not None:
            self._kept[agent.id] = records, encoded
        return encoded

    def _records(self, agent: Agent) -> Records | None:
        """Return the records of an agent's family, the same tuple while none changes; None: one doesn't rest."""
        root = self._registry.root_of(agent)
        if root.id not in self._resting:
            now = tuple(self._registry.family(root))
            before = self._families.get(root.id, ())
            if len(before) != len(now) or any(one is not other for one, other in zip(before, now, strict=True)):
                before = self._families[root.id] = now
            self._resting[root.id] = before if all(map(self._rests, now)) else None
        return self._resting[root.id]

    def _rests(self, agent: Agent) -> bool:
        return (
            agent.phase in _RESTING
            and agent.id not in self._asking
            and not turn_check.is_pending(agent.checked)
            and not self._waits.open_of(agent.id)
            and (agent.clone is None or self._clone_rests(agent, agent.clone))
        )

    def _clone_rests(self, agent: Agent, clone: Clone) -> bool:
        """Say whether an agent's object tells of no target branch, and of no holder but an ancestor."""
        return not clone.is_unlanded and clone.holder in {None, *self._registry.lineage(agent)}
