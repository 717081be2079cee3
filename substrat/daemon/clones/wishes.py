"""Checks the private clone that is asked for with a new agent, before anything is made."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, NamedTuple

import attrs
import trio

from substrat.core.programs.table import CURSOR
from substrat.core.workspaces.clones import ref_problem
from substrat.daemon.agents.disk_gate import free_bytes
from substrat.daemon.agents.spawning import CloneRequest
from substrat.daemon.workspaces.git_places import NoRepository
from substrat.errors import InvalidParams, Refused, WorkspaceUnusable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from substrat.core.workspaces.clone_lacks import Lacking
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.clones.repository import Repositories, RepositoryFacts


class CloneWish(NamedTuple):
    """A clone that is asked for.

    Args:
        clone: whether one is wanted; None: as configured.
        branch: its branch, which may exist; None: `substrat/NAME`.
        base: the commit that it starts at, as git understands it; None: HEAD.
        wip: whether it starts with the user's uncommitted changes.
        continues_chat: whether the agent takes a chat over, which speaks of the files that it was begun beside.
    """

    clone: bool | None = None
    branch: str | None = None
    base: str | None = None
    wip: bool = False
    continues_chat: bool = False

    @property
    def is_open(self) -> bool:
        """Whether nothing is said about a clone."""
        return self.clone is None and self.branch is None and self.base is None and not self.wip


class Granted(NamedTuple):
    """Where a new agent works.

    Args:
        clone: its clone; None: it works in place.
        lacking: what the clone lacks of the checkout; None: that isn't known.
        notes: sentences for the person, which follow the agent's name.
    """

    clone: CloneRequest | None = None
    lacking: Lacking | None = None
    notes: tuple[str, ...] = ()


@attrs.define(eq=False)
class CloneWishes:
    """Checks wishes for clones."""

    _registry: Registry
    _repositories: Repositories
    _directory: str
    """Where trees lie unless the configuration says otherwise."""
    _check_workspace: Callable[[str], Awaitable[str]]

    async def check(self, workspace: str, wish: CloneWish, name: str) -> Granted:
        """Return where a new agent works.

        Args:
            workspace: its workspace's physical path.
            wish: the clone that is asked for.
            name: the agent's name, empty where one is made up.

        Raises:
            InvalidParams: the wish contradicts itself, or names no branch or commit.
            WorkspaceUnusable: there is no repository that can be cloned, and a clone was asked for.
            Refused: refs of an earlier agent of that name hold work that is nowhere else, or the clone would be large and
                nobody asked for it.
        """
        if wish.is_open and not wish.continues_chat and self._registry.config.agent.workspace == "clone":
            try:
                return await self._check(workspace, wish, name)
            except NoRepository:
                return Granted()
            except WorkspaceUnusable as problem:
                return Granted(notes=(f"works in your checkout, because no clone can be made: {problem.message}",))
        if wish.clone is False or wish.is_open:
            if not wish._replace(clone=None).is_open:
                raise InvalidParams("a branch, a base and uncommitted changes belong to a clone, and none is wanted")
            return Granted()
        return await self._check(workspace, wish, name)

    async def _check(self, workspace: str, wish: CloneWish, name: str) -> Granted:
        branch = wish.branch
        if branch is not None and (problem := ref_problem(branch)) is not None:
            raise InvalidParams(f"{branch!r} can't be a branch: {problem}")
        facts = await self._repositories.inspect(workspace, base=wish.base or "HEAD", branch=branch or "", agent=name)
        top = facts.places.top
        await self._check_workspace(top)
        _check(facts, wish, name)
        base = facts.tip or facts.base
        request = CloneRequest(
            self.directory, top, facts.places.common, branch, branch if facts.tip is not None else facts.branch, base,
            with_wip=wish.wip,
            may_lack=facts.may_lack, is_strange=base is not None and facts.is_strange,
        )  # fmt: skip
        if base is None:
            return Granted(request)
        below = os.path.relpath(workspace, top)
        files = (os.path.normpath(f"{at}/{CURSOR.places.workspace}/worktrees.json") for at in (below, "."))
        lacking = await self._repositories.lacking(facts.places, base, (".worktreeinclude", *files))
        if lacking is None:
            return Granted(request)
        if wish.is_open and lacking.is_too_large(free := await trio.to_thread.run_sync(self._free)):
            raise Refused(
                f"a clone of {top} takes {_gigabytes(lacking.size)}, and {_gigabytes(free)} are free in {self.directory}: "
                f"--in-place works in the checkout itself, --clone makes one all the same"
            )
        return Granted(request, lacking, lacking.notes(with_wip=wish.wip))

    def _free(self) -> int:
        """Return the bytes that are free where trees lie, or will lie."""
        place = self.directory
        while not os.path.exists(place):
            place = os.path.dirname(place)
        return free_bytes(place)

    @property
    def directory(self) -> str:
        """Where new trees lie."""
        trees = self._registry.config.clone.dir
        return os.path.realpath(trees) if trees else self._directory

    async def is_in_repository(self, workspace: str) -> bool:
        """Say whether a directory is in a git repository that can be cloned."""
        try:
            await self._repositories.places(workspace)
        except WorkspaceUnusable:
            return False
        return True


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB"


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
            f"--glob=refs/substrat/{name} --not --branches` shows it; bring it into a branch, choose another name, "
            f"or remove these refs: `substratctl clones prune {name} --refs --unlanded`"
        )
