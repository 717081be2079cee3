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
    from collections.abc import Iterable, Sequence

    from substrat.core.agents.records import Agent
    from substrat.core.workspaces.clones import Clone
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.families.waits import Waits

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
        self._families: dict[str, tuple[list[str], bool]] = {}
        """The members of each family that was looked at, and whether all their records rest, by its root's id."""
        self._roots: dict[str, str] = {}
        """The root's id of each of these members."""
        self._kept: dict[Members, dict[str, bytes]] = {}
        registry.observe(self._forget)

    def found(self, agents: Sequence[Agent], members: Members) -> list[bytes | None]:
        """Return agents' objects with some members; None: one isn't kept, its family doesn't rest, or it has changed."""
        kept, roots, get, restless = self._of(members), self._roots.get, self._registry.get, self._restless()
        return [kept.get(one.id) if roots(one.id) not in restless and get(one.id) is one else None for one in agents]

    def keep(self, agents: Sequence[Agent], members: Members, encoded: Sequence[bytes]) -> None:
        """Keep agents' objects, which have been made just now, where they tell of records alone."""
        kept, restless = self._of(members), self._restless()
        for agent, one in zip(agents, encoded, strict=True):
            if self._registry.get(agent.id) is agent and self._root_at_rest(agent) not in restless:
                kept[agent.id] = one

    def _of(self, members: Members) -> dict[str, bytes]:
        if members not in self._kept and len(self._kept) >= _MOST_KINDS:
            del self._kept[next(iter(self._kept))]
        return self._kept.setdefault(members, {})

    def _restless(self) -> set[str | None]:
        """Return None, and the roots' ids of the families in which an agent asks or waits for others."""
        found = map(self._registry.get, self._registry.store.asking() | self._waits.waiting())
        return {None, *(self._registry.root_of(agent).id for agent in found if agent is not None)}

    def _root_at_rest(self, agent: Agent) -> str | None:
        """Return the root's id of an agent's family; None if one of its records doesn't rest."""
        root = self._registry.root_of(agent)
        if root.id not in self._families:
            family = self._registry.family(root)
            self._families[root.id] = [one.id for one in family], all(map(self._rests, family))
            self._roots.update((one.id, root.id) for one in family)
        return root.id if self._families[root.id][1] else None

    def _forget(self, changed: Iterable[str]) -> None:
        """Drop the objects that tell of agents which have changed, in the families that they were and are of."""
        for one in changed:
            agent = self._registry.get(one)
            for root in {self._roots.get(one, one), self._registry.root_of(agent).id if agent is not None else one}:
                for member in self._families.pop(root, ((), False))[0]:
                    self._roots.pop(member, None)
                    for kept in self._kept.values():
                        kept.pop(member, None)

    def _rests(self, agent: Agent) -> bool:
        return (
            agent.phase in _RESTING
            and not turn_check.is_pending(agent.checked)
            and (agent.clone is None or self._clone_rests(agent, agent.clone))
        )

    def _clone_rests(self, agent: Agent, clone: Clone) -> bool:
        """Say whether an agent's object tells of no target branch, and of no holder but an ancestor."""
        return not clone.is_unlanded and clone.holder in {None, *self._registry.lineage(agent)}
