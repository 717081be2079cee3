"""Says what follows from a new agent's place: whom it works beside, and what its clone or its checkout is without."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import attrs

from substrat.core.workspaces import overlap
from substrat.daemon.workspaces import git_places
from substrat.daemon.workspaces.git_places import MOST_OBJECTS

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.agents.spawning import CloneRequest
    from substrat.daemon.clones.making import Making
    from substrat.daemon.clones.repository import Repositories
    from substrat.daemon.clones.wishes import CloneWishes, Granted
    from substrat.daemon.kernel.files import Files
    from substrat.daemon.sandboxes.person_git import PersonGitReader
    from substrat.daemon.workspaces.git_places import Borrowing


@attrs.define(eq=False)
class SpawnNotes:
    """Makes the notes of `agent.spawn`, each the end of a sentence that begins with the agent's name."""

    _registry: Registry
    _files: Files
    _repositories: Repositories
    _wishes: CloneWishes
    _making: Making
    _person: PersonGitReader

    async def of(self, agent: Agent, granted: Granted) -> list[str]:
        """Return the notes about an agent that was created just now, where it was granted to work."""
        notes = list(overlap.notes(self._registry.index.shared(agent)))
        if granted.clone is not None:
            notes += await self._of_clone(agent, granted.clone)
        else:
            notes += [*await self._of_others(agent), *await self._of_checkout(agent, granted)]
        notes += granted.notes
        return notes + [f"is without {text}" for text in (await self._person.read(agent)).absent]

    async def _of_others(self, agent: Agent) -> list[str]:
        """Return the notes about other agents in place, in the same directory or in other worktrees of its repository."""
        git, claims = self._git(agent), self._registry.index.claims
        found = [self._registry.find(other) for other in claims.meeting((agent.workspace, git)) if other != agent.id]
        others = [other for other in found if other.clone is None]
        beside = tuple(other.name for other in others if other.workspace == agent.workspace)
        linked = tuple(other.name for other in others if other.workspace != agent.workspace and self._git(other) == git)
        notes = [overlap.beside(beside)] if beside and await self._wishes.is_in_repository(agent.workspace) else []
        return [*notes, overlap.linked(linked)] if linked else notes

    def _git(self, agent: Agent) -> str:
        return next(iter(self._registry.index.git_of(agent.workspace)), f"{agent.workspace}/.git")

    async def _of_checkout(self, agent: Agent, granted: Granted) -> list[str]:
        text = await self._files.run(agent.workspace, git_places.objects_elsewhere, agent.workspace)
        return [f"begins where git doesn't work: {text}"] if text is not None and not granted.notes else []

    async def _of_clone(self, agent: Agent, clone: CloneRequest) -> list[str]:
        borrowing = self._repositories.borrowing
        notes = await self._files.run(clone.repository, _missing_objects, borrowing, clone.repository, clone.git_dir)
        text = await self._making.unfilled(agent) if clone.may_lack else None
        return [*notes, *([text] if text is not None else [])]


def _missing_objects(borrowing: Borrowing, repository: str, git_dir: str) -> list[str]:
    """Say which objects that a repository borrows its new clone is without."""
    repack = f"`git -C {shlex.quote(repository)} repack -a -d` copies those that it needs"
    notes = [
        f"is without the objects in {path}, which {repository} names since an agent works beside it: {repack}"
        for path in git_places.left_out(git_dir, borrowing)
    ]
    if git_places.borrows_too_much(git_dir, borrowing):
        listed = f"{git_dir}/objects/info/alternates"
        notes.append(
            f"is without some objects, because {repository} borrows those of more than {MOST_OBJECTS - 1} "
            f"repositories: {repack}, and after that `rm {shlex.quote(listed)}` ends the borrowing"
        )
    return notes
