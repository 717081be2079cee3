"""Checks the private clone that is asked for with a new agent, before anything is made."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, NamedTuple

import trio

from substrat.core.workspaces.clones import ref_problem
from substrat.daemon.agents.spawning import CloneRequest
from substrat.errors import InvalidParams, Refused, WorkspaceUnusable

if TYPE_CHECKING:
    from collections.abc import Callable

    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.clones.repository import Repositories, RepositoryFacts


class CloneWish(NamedTuple):
    """A clone that is asked for.

    Args:
        clone: whether one is wanted; None: as configured.
        branch: its branch, which may exist; None: `substrat/NAME`.
        base: the commit that it starts at, as git understands it; None: HEAD.
        wip: whether it starts with the user's uncommitted changes.
    """

    clone: bool | None = None
    branch: str | None = None
    base: str | None = None
    wip: bool = False


class CloneWishes:
    """Checks wishes for clones.

    Args:
        registry: the agents, with the configuration.
        repositories: the users' repositories.
        directory: where trees lie unless the configuration says otherwise.
        check_workspace: checks that a directory may be a workspace, and returns its physical path.
    """

    def __init__(
        self, registry: Registry, repositories: Repositories, directory: str, check_workspace: Callable[[str], str]
    ) -> None:
        self._registry = registry
        self._repositories = repositories
        self._directory = directory
        self._check_workspace = check_workspace

    async def check(self, workspace: str, wish: CloneWish, name: str) -> CloneRequest | None:
        """Return the clone that a new agent gets, None for one that works in place.

        Args:
            workspace: its workspace's physical path.
            wish: the clone that is asked for.
            name: the agent's name, empty where one is made up.

        Raises:
            InvalidParams: the wish contradicts itself, or names no branch or commit.
            WorkspaceUnusable: there is no repository that can be cloned.
            Refused: refs of an earlier agent of that name hold work that is nowhere else.
        """
        wants = wish.clone
        if wants is None and self._registry.config.agent.workspace == "clone":
            wants = await self.is_in_repository(workspace)
        branch, base = wish.branch, wish.base
        if not wants:
            if base is not None or branch is not None or wish.wip:
                raise InvalidParams("a branch, a base and uncommitted changes belong to a clone: ask for one with --clone")
            return None
        if branch is not None and (problem := ref_problem(branch)) is not None:
            raise InvalidParams(f"{branch!r} can't be a branch: {problem}")
        facts = await self._repositories.inspect(workspace, base=base or "HEAD", branch=branch or "", agent=name)
        self._check_workspace(facts.places.top)
        _check(facts, wish, name)
        return CloneRequest(
            self.directory, facts.places.top, facts.places.common, branch,
            branch if facts.tip is not None else facts.branch, facts.tip or facts.base, with_wip=wish.wip,
        )  # fmt: skip

    @property
    def directory(self) -> str:
        """Where new trees lie."""
        trees = self._registry.config.clone.dir
        return os.path.realpath(trees) if trees else self._directory

    async def is_in_repository(self, workspace: str) -> bool:
        """Say whether a directory is in a git repository that can be cloned."""
        try:
            await trio.to_thread.run_sync(self._repositories.places, workspace)
        except WorkspaceUnusable:
            return False
        return True


def _check(facts: RepositoryFacts, wish: CloneWish, name: str) -> None:
    top, base = facts.places.top, wish.base
    if facts.promisor is not None:
        key, _, value = facts.promisor.partition(" ")
        remote = value if key == "extensions.partialclone" else key.removeprefix("remote.").removesuffix(".promisor")
        git = ("git", "-C", top)
        raise WorkspaceUnusable(
            f"{top} is a partial clone, whose missing files git would fetch one by one without a network: "
            f"`{shlex.join(git)} fetch --refetch --no-filter {shlex.quote(remote)}` completes it, then "
            f"`{shlex.join(git)} config --unset-all {shlex.quote(key)}` says so"
        )
    if base is not None and facts.base is None:
        raise InvalidParams(f"{base!r} is no commit in {top}: `git log` there shows which there are")
    if facts.tip is not None and base is not None:
        raise InvalidParams(
            f"the branch {wish.branch} exists, and the clone starts at its tip: leave out --base, or the branch"
        )
    if wish.wip and (facts.tip or facts.base) != facts.head:
        raise InvalidParams("your uncommitted changes belong to HEAD: leave out --wip, or let the clone start at HEAD")
    if facts.has_unlanded:
        raise Refused(
            f"refs/substrat/{name} in {top} holds work of an earlier {name} that is in no branch: `git log "
            f"refs/substrat/{name}/head` shows it; bring it into a branch, or choose another name"
        )
