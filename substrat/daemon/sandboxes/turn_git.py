"""Runs git in a workspace after a turn, in a sandbox: to find what was committed unfiltered, and to freshen its index."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import structlog

from substrat.core.programs.table import CURSOR
from substrat.daemon.sandboxes import git, unfiltered
from substrat.errors import SubstratError

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.findings import Found
    from substrat.daemon.kernel.files import Files
    from substrat.daemon.sandboxes.prepare import SandboxPreparer
    from substrat.daemon.state.layout import Layout
    from substrat.daemon.workspaces.protected_paths import ProtectedPaths

log = structlog.get_logger("substrat.turn_git")


class TurnGit:
    """Runs git in the workspaces of one daemon's agents after their turns."""

    def __init__(self, preparer: SandboxPreparer, files: Files, layout: Layout) -> None:
        self._preparer = preparer
        self._files = files
        self._layout = layout

    async def find_unfiltered(self, agent: Agent, before: ProtectedPaths) -> list[Found]:
        """Return findings about files that a turn has committed without a filter of the person's; a failure is logged."""
        try:
            return await self._find_unfiltered(agent, before)
        except (SubstratError, OSError) as problem:
            log.info("git wasn't asked about filters", agent=agent.name, reason=str(problem))
            return []

    async def _find_unfiltered(self, agent: Agent, before: ProtectedPaths) -> list[Found]:
        filters = (await self._preparer.person.read(agent)).filters
        bubblewrap = self._preparer.machine.known_bubblewrap
        if not filters or bubblewrap is None:
            return []
        since, git_dirs = before.head, before.git_dirs
        if agent.clone is not None:
            since, git_dirs = agent.clone.kept.head or agent.clone.base, ()
        elif before.compared is None or not (git_dirs or await self._has_repository(agent.workspace)):
            return []
        lent = await self._preparer.lent_to(agent)
        system = await self._preparer.unreadable.system_mounts()
        return await unfiltered.find(
            self._files, bubblewrap, agent, since, filters, git_dirs=git_dirs, lent=lent, system=system
        )

    async def _has_repository(self, workspace: str) -> bool:
        is_directory: bool = await self._files.run(workspace, os.path.isdir, f"{workspace}/.git")
        return is_directory

    async def freshen_index(self, agent: Agent, left: ProtectedPaths) -> None:
        """Let the workspace's git forget the size of the file that was mounted over `.cursor/mcp.json` (`git.forget_size`).

        A failure is only logged, so that the turn ends: `git status` then shows an unchanged file as changed.
        """
        bubblewrap = self._preparer.machine.known_bubblewrap
        if bubblewrap is not None:
            mcp = os.path.join(CURSOR.places.workspace, CURSOR.places.mcp)
            try:
                await git.forget_size(
                    self._files, bubblewrap, agent.workspace, mcp, left, await self._preparer.unreadable.system_mounts()
                )
            except (SubstratError, OSError) as problem:
                log.info("git's index stays as it is", agent=agent.name, reason=str(problem))
