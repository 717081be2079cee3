"""Protects agents' workspaces: scans them, creates placeholders, and finds unprotected paths after a turn."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import trio

from substrat.core.agents.lifecycle import Phase
from substrat.core.programs.table import CURSOR
from substrat.core.workspaces import git_leftovers, overlap
from substrat.daemon.agents.findings import WORDS, Found, found_at, found_in, roots_of
from substrat.daemon.kernel.files import NoAnswer
from substrat.daemon.kernel.fingerprint import Budget
from substrat.daemon.workspaces import checking, git_programs, leftovers, protected_paths, workspace_scan
from substrat.daemon.workspaces.borrowed import Borrowed, borrowed_in
from substrat.daemon.workspaces.git_places import Borrowing
from substrat.daemon.workspaces.lost_mounts import content, inode
from substrat.daemon.workspaces.placeholders import Placeholders
from substrat.daemon.workspaces.protected_paths import ProtectedPaths
from substrat.errors import SubstratError, WorkspaceUnusable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.kernel.files import Files
    from substrat.daemon.state.layout import Layout
    from substrat.daemon.workspaces.user import User

_LOCK_SECONDS = 1.0
"""How long a turn's end waits for a git that may hold a lock, for example one that works elsewhere and is about to end."""
_LOCK_PAUSE = 0.05
"""Seconds between two looks at such a lock."""
_GIT_SECONDS = 5.0
"""How long a daemon's start or a spawn waits for the scan of a workspace's `.git`; each turn's start looks again."""


class Search(NamedTuple):
    """Where the protected paths of an agent's workspace are searched for.

    Args:
        roots: the workspace, unless it is a clone, and the further directories.
        shared: the git directories elsewhere that its repository is in.
        own: those of them that it may write although they lie in a read-only directory.
        configs: the person's git configuration files.
        private: what lies below these is of no sandbox; links may lead there.
    """

    roots: tuple[str, ...]
    shared: tuple[str, ...]
    own: tuple[str, ...]
    configs: tuple[str, ...]
    private: tuple[str, ...]

    def scan(self) -> ProtectedPaths:
        """Return the protected paths; raises `WorkspaceUnusable`."""
        if not self.roots:
            return ProtectedPaths()
        # An agent's `~/.cache`, `~/.cursor` and chat lie there, and it learns their paths from its own mount table.
        private = tuple(map(os.path.realpath, self.private))
        return workspace_scan.scan(
            self.roots[0], self.shared, self.own, self.roots[1:], user_configs=self.configs, private=private
        )


class WorkspaceProtector:
    """Finds and prepares the protected paths of one daemon's agents."""

    def __init__(self, registry: Registry, files: Files, layout: Layout, user: User, environ: dict[str, str]) -> None:
        self._registry = registry
        self._files = files
        self._layout = layout
        self._user = user
        self._environ = environ
        self.placeholders = Placeholders(registry, files)
        self._borrowed = Borrowed(registry)

    @property
    def own_places(self) -> tuple[str, ...]:
        """The daemon's own directories, which no agent may work in or see: they hold every agent's files."""
        trees = self._registry.config.clone.dir
        return (self._layout.state, self._layout.runtime, *((os.path.realpath(trees),) if trees else ()))

    @property
    def closed(self) -> tuple[str, ...]:
        """The directories that no agent may see, the logins and other agents' chats among them."""
        return checking.closed_places(self._user, self.own_places)

    @property
    def borrowing(self) -> Borrowing:
        """The objects that repositories may borrow of others."""
        return Borrowing(self.closed, self._borrowed.known)

    async def note_borrowed_anew(self, agent: Agent) -> None:
        """Let all count that repositories in an agent's workspace borrow now, if a person has accepted all findings there.

        While a sandbox runs there its agent may have made a list just now.
        """
        shared, own, _ = await self.shared_with(agent)
        roots = _roots(agent, shared)
        waiting = (other for other in self._registry.index.meeting(roots) if other.findings)
        if any(overlap.writes_in(self._registry.index.claim(other), roots) for other in waiting):
            return
        if not self._borrowed.are_known(roots):
            return
        with suppress(WorkspaceUnusable):  # a directory that is gone borrows nothing
            found = await self.scan(agent, shared, own)
            borrowed = await self._files.run(agent.workspace, borrowed_in, found, Borrowing(self.closed))
            if not self._registry.closures.users(roots):
                self._borrowed.note(roots, borrowed, anew=True)

    async def find_git(self, directory: str) -> None:
        """Note which git directory elsewhere a workspace's repository is in; a slow disk isn't waited for long."""
        with suppress(SubstratError), trio.move_on_after(_GIT_SECONDS):
            shared, _, _ = await self._files.run(directory, protected_paths.shared_with, directory, self.closed)
            self._registry.note_git(directory, shared)

    async def find_all_git(self) -> None:
        """Do that for all agents that haven't ended, as a daemon starts; a slow disk leaves some to their turns' starts."""
        agents = self._registry.agents
        directories = {agent.workspace for agent in agents if agent.clone is None and agent.phase != Phase.ENDED}
        async with trio.open_nursery() as nursery:
            for directory in directories:
                nursery.start_soon(self.find_git, directory)

    async def protect(self, agent: Agent, holder: str) -> tuple[ProtectedPaths, tuple[Found, ...]]:
        """Scan a workspace, create placeholders for the missing paths, and take fingerprints of all.

        Returns:
            The protected paths, and the findings about unprotected ones.
        """
        shared, own, refused = await self.shared_with(agent)
        if agent.clone is None:
            self._registry.note_git(agent.workspace, shared, agent.id)
        self.placeholders.keep(holder, (agent.host_directory, *shared, *writable(agent)))
        await self.placeholders.settle(holder)
        place = agent.workspace
        found, noted = await self._files.run(place, _scanned, agent, self._search(agent, shared, own))
        roots = _roots(agent, shared)
        if not self._borrowed.are_known(roots):
            self._borrowed.note(roots, await self._files.run(place, borrowed_in, found, self.borrowing))
        made = await self.placeholders.make(place, (*found.missing, *found.keepers))
        missing = tuple(path for path in made if path not in found.keepers)
        found = msgspec.structs.replace(found, missing=missing, noted={})
        inodes, contents = await self._files.run(place, _as_at_start, agent, found)
        found = msgspec.structs.replace(found, inodes={**found.inodes, **inodes})
        untold = [Found(agent.workspace, refused)] if refused is not None else []
        settings = (Found(name, text, digest=WORDS) for name, text in found.unprotectable)
        return msgspec.structs.replace(found, contents=contents), (*noted, *untold, *settings)

    async def scan(self, agent: Agent, shared: tuple[str, ...], own: tuple[str, ...]) -> ProtectedPaths:
        """Return the protected paths of an agent's workspace; raises `WorkspaceUnusable`."""
        return await self._files.run(agent.workspace, Search.scan, self._search(agent, shared, own))

    def _search(self, agent: Agent, shared: tuple[str, ...], own: tuple[str, ...]) -> Search:
        configs = git_programs.user_configs(self._user.home, self._environ.get("XDG_CONFIG_HOME"))
        private = (self._layout.state, self._user.place(CURSOR.places.chats))
        # In a clone nothing is protected: nothing of the host's runs there, and commits are looked at before they land.
        roots = (*((agent.workspace,) if agent.clone is None else ()), *self._further(agent))
        return Search(roots, shared, own, configs, private)

    def _further(self, agent: Agent) -> tuple[str, ...]:
        """Return further directories to scan: the agent's writable binds, and other agents' workspaces in its reach.

        Those agents take the files at the top of their workspaces for their own rules.
        """
        claim = self._registry.index.claim(agent)
        others = overlap.roots(claim, self._registry.index.claims.beside(claim, agent.id))
        return tuple(dict.fromkeys((*writable(agent), *others)))

    async def shared_with(self, agent: Agent) -> tuple[tuple[str, ...], tuple[str, ...], str | None]:
        """Return the git directories elsewhere of an agent's workspace (`protected_paths.shared_with`)."""
        if agent.clone is not None:
            return (), (), None
        return await self._files.run(agent.workspace, protected_paths.shared_with, agent.workspace, self.closed)

    async def unfinished(self, agent: Agent) -> dict[str, int]:
        """Return the inodes of the files that tell of git's unfinished work, by path; none of a slow disk."""
        with suppress(NoAnswer), trio.move_on_after(_GIT_SECONDS):
            shared, own, _ = await self.shared_with(agent)
            directories = own or shared or (f"{agent.host_directory}/.git",)
            return await self._files.run(agent.host_directory, leftovers.read, directories)
        return {}

    async def remove_locks(self, agent: Agent, before: Mapping[str, int] | None) -> list[str]:
        """Remove the locks of git's that were made since a turn's start, once its processes are gone, and return them.

        Args:
            agent: the agent.
            before: what `unfinished` returned at the turn's start; None: that isn't known, so nothing is removed.
        """
        after = await self.unfinished(agent) if before is not None else {}
        removed: list[str] = []
        for lock in git_leftovers.new_locks(before or {}, after):
            place = agent.host_directory
            # A lock that stays is told as unfinished work.
            with suppress(OSError, NoAnswer), trio.move_on_after(_LOCK_SECONDS):
                self._registry.points.before("lock removed")
                # A git doesn't say when it ends.
                while not await self._files.run(place, leftovers.remove, lock, after[lock], place):  # noqa: ASYNC110
                    await trio.sleep(_LOCK_PAUSE)
                self._registry.points.after("lock removed")
                removed.append(lock)
        return removed

    async def find_changes(self, agent: Agent, before: ProtectedPaths) -> tuple[list[Found], list[Found]]:
        """Look through a workspace at a sandbox's end.

        Returns:
            A finding about all obeyed paths that were changed, and findings about paths that can't be protected.
        """
        search = self._search(agent, before.git_dirs, before.own_git_dirs)
        try:
            return await self._files.run(agent.workspace, _changes, agent, before, search)
        except WorkspaceUnusable as problem:
            return [Found(agent.workspace, problem.message)], []


def _scanned(agent: Agent, search: Search) -> tuple[ProtectedPaths, list[Found]]:
    """Return the protected paths of a workspace, and the findings about those that can't be protected."""
    found = search.scan()
    return found, [_noted(agent, found, text, Budget()) for text in found.notes]


def _changes(agent: Agent, before: ProtectedPaths, search: Search) -> tuple[list[Found], list[Found]]:
    """Return a finding about all obeyed paths that were changed, and findings about paths that can't be protected."""
    after = search.scan()
    paths = protected_paths.changes(before, after)
    paths += (one for one in _written_since(agent, before, after) if one not in paths)
    changed = [_changed(agent, before, after, paths)] if paths else []
    told = set(paths)
    # The agent may have written to what can't be protected, whatever a person has accepted before.
    noted = [
        _noted(agent, after, text, Budget())
        for text, files in after.noted.items()
        if not all(one in told or protected_paths.is_below(one, told) for one in files)
    ]
    return changed, noted


def _written_since(agent: Agent, before: ProtectedPaths, after: ProtectedPaths) -> list[str]:
    """Return the paths that were mounted anew and are written to since: their inodes show nothing of it."""
    paths, roots = {protected_paths.printable(path): path for path in (*after.inodes, *after.missing)}, roots_of(agent)
    found = []
    for name, mounted in before.mounted_anew.items():
        path = paths.get(name, name)
        usual = {mounted, (before.contents or {}).get(name, mounted)}
        if os.path.lexists(path) and content(before, path, roots) not in usual:
            found.append(path)
    return found


def _changed(agent: Agent, before: ProtectedPaths, after: ProtectedPaths, paths: list[str]) -> Found:
    """Return the one finding about all obeyed paths that a turn has changed."""
    text = protected_paths.describe_changes(paths)
    files = dict.fromkeys(file for path in paths for file in protected_paths.files_in(after, path))
    found = found_at(agent, text, [*map(protected_paths.printable, paths)], tuple(files))
    return found._replace(was=before.hashes_of(found.files))


def _noted(agent: Agent, protected: ProtectedPaths, text: str, budget: Budget) -> Found:
    """Return the finding of a note; one about files is accepted with their content, another one never for good."""
    if text not in protected.noted:
        return Found(agent.workspace, text)
    return found_in(agent.workspace, text, protected.noted[text], roots_of(agent), budget)


def _as_at_start(agent: Agent, protected: ProtectedPaths) -> tuple[dict[str, int], dict[str, str]]:
    """Return the inodes of the placeholders, and fingerprints of all that is read-only, as far as it can be compared."""
    roots = roots_of(agent)
    inodes = {path: number for path in protected.missing if (number := inode(path)) is not None}
    paths = (*protected.read_only, *protected.missing)
    return inodes, {path: found for path in paths if (found := content(protected, path, roots)) is not None}


def _roots(agent: Agent, shared: tuple[str, ...]) -> tuple[str, ...]:
    """Return where an agent can write that is no clone of its own."""
    return (*((agent.workspace, *shared) if agent.clone is None else ()), *writable(agent))


def writable(agent: Agent) -> tuple[str, ...]:
    """Return where an agent may write besides its workspace."""
    return tuple(bind.path for bind in agent.policy.binds if bind.writable)
