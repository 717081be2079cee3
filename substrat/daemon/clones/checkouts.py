"""Gives a person a working copy of an agent's kept commits, as a linked worktree of his own repository.

It comes from the objects in the user's repository, which git has checked; git on the host never reads a clone. Files that
the host would obey, and that differ from the user's own branch, are shown first, as before a landing.
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, NamedTuple

import attrs

from substrat.core.workspaces import drivers, landing_outcome
from substrat.core.workspaces import landing as decisions
from substrat.daemon.clones import lfs_objects
from substrat.errors import InvalidParams, Refused
from substrat.paths import is_within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from substrat.core.agents.records import Agent
    from substrat.core.workspaces.clones import Clone
    from substrat.core.workspaces.landing import Suspect
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.clones.host_git import HostGit
    from substrat.daemon.clones.landing_git import LandingGit
    from substrat.daemon.clones.repository import Repositories

MADE, HELD = "made", "held"


class Checkout(NamedTuple):
    """The outcome of a wish for a working copy.

    Args:
        outcome: `made`, or `held` when files must be looked at first.
        path: the directory.
        commit: the commit.
        files: the files that must be looked at.
        text: one sentence.
    """

    outcome: str
    path: str
    commit: str
    files: tuple[str, ...]
    text: str


@attrs.define(eq=False)
class Checkouts:
    """Makes working copies."""

    _registry: Registry
    _repositories: Repositories
    _git: LandingGit
    _host: HostGit
    _own_places: Callable[[], tuple[str, ...]]

    async def make(self, clone: Clone, directory: str, accepted: Iterable[str]) -> Checkout:
        """Make a working copy of an agent's last kept commit.

        Args:
            clone: the agent's clone.
            directory: where; an absolute path at which nothing is but, perhaps, an empty directory, or what an earlier
                daemon has begun of the same commit.
            accepted: files that a person has looked at.

        Raises:
            Refused: nothing is kept, the directory can't be used, or a sandbox runs that can write where git must.
            Conflict: git refuses; the sentence is its own.
        """
        if clone.kept.head is None:
            raise Refused(f"{clone.name} has no kept commit yet: that happens at the end of a turn")
        files, head = self._repositories.sandbox.files, clone.kept.head
        path = await self._checked(directory)
        has_begun = not await files.run(path, _is_free, path)
        if has_begun and not await self._host.has_begun(clone, path, head):
            raise Refused(
                f"{path} is there already, and isn't an empty directory, nor a copy of {head[:12]} that was begun: choose "
                f"another"
            )
        own = await self._repositories.commit(clone.git_dir, f"refs/heads/{clone.target}") if clone.target else None
        own = own or await self._repositories.commit(clone.git_dir, "HEAD")
        persons = await self._host.persons_git(clone.repository, await self._git.names(clone, (head,)))
        preview = await self._git.changes(clone, persons, own, head)
        if (refusal := await self._git.refusal(clone, persons, head, preview.selected)) is not None:
            raise Refused(f"no working copy of {clone.name}'s work is made: {refusal}")
        found = decisions.suspects(preview.files, preview.around)
        if held := decisions.unaccepted(found, tuple(accepted)):
            return Checkout(HELD, path, head, tuple(one.path for one in held), _held_text(clone.name, path, held))
        places, closures = (clone.git_dir, path), self._registry.closures
        if users := closures.users(places):
            names = [user.name for user in users]
            raise Refused(
                f"sandboxes of {landing_outcome.listed(names)} run that can write in {clone.git_dir} or {path}: try again "
                f"when they have ended"
            )
        with closures.closing(places, f"a working copy of {clone.name}'s work is made"):
            await self._host.add_worktree(clone, persons.programs, path, head, has_begun=has_begun)
        lacking = await lfs_objects.pointers(files, (path, drivers.lfs_files(preview.selected, persons.settings)))
        return Checkout(
            MADE, path, head, (),
            f"{path} has {clone.name}'s work at {head[:12]}, on no branch; `git -C {shlex.quote(clone.repository)} "
            f"worktree remove {shlex.quote(path)}` removes it" + (f"; {lacking}" if lacking else ""),
        )  # fmt: skip

    async def _checked(self, directory: str) -> str:
        """Return a directory's physical path; raises if no working copy can be made there, or an agent could write it."""
        if not os.path.isabs(directory) or "\0" in directory:
            raise InvalidParams(f"{directory!r} is no absolute path")
        parent, name = os.path.split(os.path.abspath(directory))
        real = await self._repositories.sandbox.files.run(parent, _real_directory, parent)
        if real is None:
            raise Refused(f"{parent} is no directory: make it first, or choose another")
        path = os.path.join(real, name)
        if place := next((place for place in self._own_places() if is_within(path, place)), None):
            raise Refused(f"{path} lies in {place}, which is the daemon's own: choose another directory")
        if writer := next((agent for agent in self._registry.agents if _writes(agent, path)), None):
            raise Refused(f"{path} is where {writer.name} may write: choose a directory outside of agents' workspaces")
        return path


def _real_directory(path: str) -> str | None:
    return os.path.realpath(path) if os.path.isdir(path) else None


def _is_free(path: str) -> bool:
    return not os.path.lexists(path) or (not os.path.islink(path) and os.path.isdir(path) and not os.listdir(path))


def _writes(agent: Agent, path: str) -> bool:
    """Say whether an agent may write in a directory."""
    shared = (bind.path for bind in agent.policy.binds if bind.writable)
    return any(is_within(path, place) for place in (agent.host_directory, *shared))


def _held_text(name: str, path: str, held: tuple[Suspect, ...]) -> str:
    listed, options = decisions.listed(held)
    return (
        f"{name}'s work has files that you must look at before they are in {path}: {listed}; `substratctl diff {name}` "
        f"shows them, `substratctl checkout {name} {shlex.quote(path)} {options}` makes the copy"
    )
