"""Has agents in clones go on where their repository has been moved to."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import attrs

from substrat.daemon.clones.renaming import check_between_turns
from substrat.daemon.state.events import DaemonEvent
from substrat.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from substrat.core.agents.records import Agent
    from substrat.core.workspaces.clones import Clone
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.chats.sessions import Sessions
    from substrat.daemon.clones.keeping import Keeping
    from substrat.daemon.clones.repository import Repositories


@attrs.define(eq=False)
class Relocating:
    """Gives one daemon's agents other workspaces."""

    _registry: Registry
    _repositories: Repositories
    _keeping: Keeping
    _sessions: Sessions
    _check_workspace: Callable[[str], Awaitable[str]]
    _check_unused: Callable[[Agent], None]

    async def relocate(self, name: str, directory: str, by: str) -> Agent:
        """Have an agent go on in a repository that has its work, such as the one that it is of, elsewhere.

        Raises:
            Refused: it works in no clone, it can't be done now, or the repository lacks its work.
            WorkspaceUnusable: no clone can be of the directory.
        """
        agent = self._registry.find(name)
        self._check(agent)
        try:
            with self._registry.holds.holding(agent.id, f"the workspace of {agent.name} is being changed"):
                async with self._keeping.held(agent.id):
                    clone = self._check(agent)
                    moved = await self._moved(clone, await self._check_workspace(directory))
                    self._check(agent)
                    await self._sessions.follow(agent, moved.workspace)
                    self._commit(agent, moved, by)
        finally:
            self._registry.admit()
        return self._registry.find(agent.id)

    def _check(self, agent: Agent) -> Clone:
        now = self._registry.find(agent.id)
        if now.clone is None:
            raise Refused(
                f"{now.name} works in {now.workspace} itself, not in a clone: spawn another agent where it is to work"
            )
        check_between_turns(self._registry, now, "whose workspace stays", self._check_unused)
        return now.clone

    async def _moved(self, clone: Clone, directory: str) -> Clone:
        """Return a clone as of the repository that a directory is in; raises `SubstratError`."""
        places = await self._repositories.places(directory)
        await self._check_workspace(places.top)  # the clone stands there
        # A clone of the repository may have the objects, but not the refs that keep them from `git gc`.
        work, ref = (clone.kept.wip, clone.ref("wip")) if clone.kept.wip is not None else (clone.base, clone.base)
        if ref is not None and await self._repositories.commit(places.common, ref) != work:
            raise Refused(
                f"{places.top} isn't the repository of {clone.name}'s work, because {ref} isn't {str(work)[:12]} there: "
                f"name the directory that {clone.repository} has become"
            )
        below = os.path.relpath(clone.workspace, clone.repository)
        workspace = await self._check_workspace(os.path.normpath(os.path.join(places.top, below)))
        return replace(clone, repository=places.top, git_dir=places.common, workspace=workspace)

    def _commit(self, agent: Agent, moved: Clone, by: str) -> None:
        now = self._registry.find(agent.id)
        with self._registry.change("agent relocated") as change:
            change.put_clone(change.put(replace(now, workspace=moved.workspace)), moved)
            text = f"workspace {now.workspace} is {moved.workspace} now"
            data = {"by": by, "key": "workspace", "old": now.workspace, "new": moved.workspace}
            change.record(DaemonEvent(agent.id, None, "agent:changed", text, data))
