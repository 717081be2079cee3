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
    from substrat.daemon.agents.requests import AgentRequests
    from substrat.daemon.clones.making import Making
    from substrat.daemon.clones.repository import Repositories
    from substrat.daemon.clones.wishes import CloneWishes, Granted
    from substrat.daemon.kernel.files import Files
    from substrat.daemon.sandboxes.person_git import PersonGitReader
    from substrat.daemon.workspaces.git_places import Borrowing


@attrs.define(eq=False)
class SpawnNotes:
    """Makes the notes of `agent.spawn`, each the end of a sentence that begins with the agent's name."""

    _files: Files
    _repositories: Repositories
    _wishes: CloneWishes
    _making: Making
    _person: PersonGitReader

    async def of(self, agent: Agent, granted: Granted, requests: AgentRequests) -> list[str]:
        """Return the notes about an agent that was created just now.

        Args:
            agent: the agent.
            granted: where it works.
            requests: know the agents that it shares directories with.
        """
        notes = list(overlap.notes(requests.shared(agent)))
        if (beside := requests.beside(agent)) and await self._wishes.is_in_repository(agent.workspace):
            notes.append(overlap.beside(beside))
        if linked := requests.linked(agent):
            notes.append(overlap.linked(linked))
        notes += await (self._of_checkout(agent, granted) if granted.clone is None else self._of_clone(agent, granted))
        notes += granted.notes
        return notes + [f"is without {text}" for text in (await self._person.read(agent)).absent]

    async def _of_checkout(self, agent: Agent, granted: Granted) -> list[str]:
        text = await self._files.run(agent.workspace, git_places.objects_elsewhere, agent.workspace)
        return [f"begins where git doesn't work: {text}"] if text is not None and not granted.notes else []

    async def _of_clone(self, agent: Agent, granted: Granted) -> list[str]:
        clone = granted.clone
        assert clone is not None
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
