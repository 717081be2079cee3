"""Notes after each keep which agents' commits an ancestor has merged: these are the ancestor's to land."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from substrat.core.workspaces import holders
from substrat.daemon.state.storing import until_stored

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from substrat.core.workspaces.clones import Clone
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.clones.repository import Repositories


async def note(registry: Registry, repositories: Repositories, clone: Clone) -> None:
    """Note who has the commits of a clone that was kept, and of which descendants its agent has the commits.

    Args:
        registry: the agents.
        repositories: the users' repositories.
        clone: the clone.

    Raises:
        SandboxFailed: git can't be asked.
    """
    agent = registry.get(clone.agent)
    if agent is None:
        return
    above = _clones(registry, registry.lineage(agent)[1:])
    below = _clones(registry, [one.id for one in registry.family(agent)[1:]])
    asked = holders.pairs(clone, above, below)
    if not asked:
        return
    heads = [(str(lower.kept.head), str(upper.kept.head)) for lower, upper in asked]
    answers = await repositories.contained(clone.git_dir, heads)
    await until_stored(partial(_record, registry, holders.settled(asked, answers)))


def _clones(registry: Registry, agents: Iterable[str]) -> list[Clone]:
    return [clone for one in agents if (clone := registry.clone_of(one)) is not None]


def _record(registry: Registry, found: Sequence[Clone]) -> None:
    """Record the holders that have changed; of a head that has moved on meanwhile it counts for nothing."""
    now = [(registry.clone_of(one.agent), one) for one in found]
    after = [(old, replace(old, held_by=one.held_by, held_head=one.held_head)) for old, one in now if old is not None]
    changed = [new for old, new in after if new.holder != old.holder]
    if changed:
        with registry.change("clone kept") as change:
            for clone in changed:
                change.put_any_clone(clone)
