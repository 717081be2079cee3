"""Git on the host: it moves a branch in the checkout that has it checked out, and adds a working copy, nothing else.

Before either it is asked what it is configured to do there, which runs no program: no copy of a configuration elsewhere
gives the same answer, because conditions (`includeIf`) ask for places.

A branch that is checked out moves with `git merge --ff-only` in that checkout, as the user would do it, but under the
settings of `tame_git.PERSONS`, and wholly or not at all (`inside/branch`).
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, NamedTuple

import trio

from substrat.core.workspaces import branch_holders, drivers, landing_outcome
from substrat.daemon.clones import persons_git
from substrat.daemon.clones.repository import NOTHING, RefMoved
from substrat.daemon.kernel import descriptors, helper
from substrat.daemon.sandboxes import build_spec, tame_git
from substrat.daemon.workspaces import git_written
from substrat.errors import Conflict
from substrat.inside.branch.job import Job
from substrat.paths import is_within

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from subprocess import CompletedProcess

    from substrat.core.workspaces.branch_holders import Holder
    from substrat.core.workspaces.clones import Clone
    from substrat.core.workspaces.drivers import GitSettings, Programs
    from substrat.core.workspaces.landing import Landing
    from substrat.daemon.clones.moving import BranchMover, Ready
    from substrat.daemon.clones.persons_git import PersonsGit
    from substrat.daemon.clones.repository import Repositories
    from substrat.daemon.workspaces.git_places import GitPlaces
    from substrat.inside.branch.job import Answer

_QUIET = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
"""git on the host asks nothing, writes no index for a look, and says what it says in English."""
_CHECKOUT_SECONDS = 120.0
"""`git reset --hard` writes some gigabytes of files in that time."""
_BEING_MADE = "substratd makes it: the same `substratctl checkout` again goes on"
"""Why a linked worktree is locked (git-worktree(1)) that hasn't all its files yet."""


class Move(NamedTuple):
    """A move of a branch.

    Args:
        commit: the new commit.
        tip: the old one; None: there is no such branch yet.
        programs: judges the programs that git may run in it.
    """

    commit: str
    tip: str | None
    programs: Programs


class HostGit:
    """Runs git on the host."""

    def __init__(self, repositories: Repositories, environ: Mapping[str, str], mover: BranchMover) -> None:
        self._repositories = repositories
        wanted = {"PATH", "HOME", "XDG_CONFIG_HOME", "LANG"}
        self._environ = {name: value for name, value in environ.items() if name in wanted}
        self.mover = mover

    async def checkout(self, clone: Clone, branch: str, holders: Iterable[Holder]) -> GitPlaces | None:
        """Return where a branch is checked out, None when it is nowhere; raises `Conflict` if it can't be moved there.

        A working tree that is gone holds nothing, unless it is locked, because its disk may come back.
        """
        # The main one of the git directory is the one that `.git` lies in.
        placed = (one._replace(path=clone.repository) if one.path == clone.git_dir else one for one in holders)
        files = self._repositories.sandbox.files
        there = [one for one in placed if one.is_locked or await files.run(one.path, os.path.lexists, one.path)]
        if not there:
            return None
        top, how, _ = there[0]
        status = f"`git -C {shlex.quote(top)} status` shows how to end it"
        if how != branch_holders.CHECKED_OUT:
            raise Conflict(f"{how} of {branch} is under way in {top}, and would lose a landing: {status}")
        if len(there) > 1:
            raise Conflict(f"{branch} is held by two working trees, {top} and {there[1].path}: leave it in one of them")
        if not await files.run(top, os.path.lexists, top):
            raise Conflict(f"{branch} is checked out in {top}, which is locked and isn't there: bring its disk back first")
        found = await self._repositories.places(top)
        if (found.top, found.common) != (top, clone.git_dir):
            raise Conflict(
                f"{top} has {branch} checked out and is no checkout of {clone.git_dir}: `git worktree list` there"
            )
        return found

    async def move(
        self, clone: Clone, landing: Landing, move: Move, places: GitPlaces | None, ready: Ready | None = None
    ) -> str | None:
        """Move a branch from one commit to another, also where it is checked out, if no sandbox can write there.

        Returns:
            None, or a sentence for the person: the branch has moved, and the index couldn't follow.

        Raises:
            RefMoved: it has another value by now.
            Conflict: git refuses in the checkout that has it; the message is git's own.
        """
        if places is None:
            wanted = {f"refs/heads/{landing.target}": (move.commit, move.tip or NOTHING)}
            await self._repositories.update_refs(clone.git_dir, wanted)
            return None
        checkout = places.top
        try:
            files, look = self._repositories.sandbox.files, git_written.obstacle
            obstacle = await files.run(checkout, look, places.own, places.common, landing.target)
        except OSError as problem:
            raise Conflict(f"{landing.target} isn't moved in {checkout}: {problem.filename}: {problem.strerror}") from None
        if obstacle is not None:
            raise Conflict(f"{landing.target} isn't moved in {checkout}: {obstacle}")
        answer = await self._run_mover("move", landing, move, places, ready)
        if answer.elsewhere:
            raise RefMoved(f"{checkout} has another branch, commit or index by now")
        if answer.moved:
            return _behind(landing.target, checkout, answer)
        again = ""
        if answer.left:
            again = (
                f"; {landing_outcome.listed(answer.left)} can't be taken back, because of changes there: "
                f"`git -C {shlex.quote(checkout)} status` shows them"
            )
        elif landing.intended is not None:
            again = (
                f"; substratd was stopped while it landed this before, so some files there may be the landing's "
                f"already: `git -C {shlex.quote(checkout)} status` shows them"
            )
        reason = answer.reason or "git was killed"
        raise Conflict(f"git refuses to move {landing.target} in {checkout}: {reason}{again}")

    async def settle(self, landing: Landing, move: Move, places: GitPlaces) -> None:
        """End a move that was begun and didn't end: its files stay where the branch has moved, and go back where it hasn't.

        Raises:
            Conflict: it can't be ended now.
        """
        answer = await self._run_mover("settle", landing, move, places)
        if answer.reason and not answer.moved:
            raise Conflict(f"{places.top} isn't as it was before the landing that was interrupted: {answer.reason}")

    async def _run_mover(
        self, how: str, landing: Landing, move: Move, places: GitPlaces, ready: Ready | None = None
    ) -> Answer:
        settings = {**await self._quiet(places.top, move.programs), f"branch.{landing.target}.mergeOptions": ""}
        job = Job(-1, str(landing.id), places.top, places.own, landing.target, move.tip or "", move.commit)
        return await self.mover.run(how, job, self._environment(places.top, settings), ready)

    async def persons_git(self, directory: str, names: Collection[str]) -> PersonsGit:
        """Return the person's git configuration in a checkout; raises `Conflict` where git can't read it."""
        environ = {**self._environ, "PATH": self._path_for(directory)}
        return persons_git.found_in(directory, await self._settings(directory), names, environ)

    async def _settings(self, directory: str) -> GitSettings:
        done = await self._run_on_host(directory, ("config", "--list", "-z", "--show-scope", "--includes"))
        if done.returncode:
            words = " ".join(done.stderr.decode("utf-8", "replace").split())
            raise Conflict(f"git can't read its configuration in {directory}: {words}")
        return drivers.read(done.stdout)

    async def _quiet(self, directory: str, programs: Programs) -> dict[str, str]:
        """Return the settings under which git runs no filter but those that may run, and those without a network."""
        settings = await self._settings(directory)
        return {**drivers.quiet_filters(settings, programs), **drivers.lfs_offline(settings)}

    async def has_begun(self, clone: Clone, path: str, commit: str) -> bool:
        """Say whether a daemon that was killed has begun to make a linked worktree there, of the same commit."""
        listed = await self._repositories.ask(clone.git_dir, "git", "worktree", "list", "--porcelain", "-z")
        return os.fsencode(f"worktree {path}\0HEAD {commit}\0detached\0locked {_BEING_MADE}\0") in listed

    async def add_worktree(self, clone: Clone, programs: Programs, path: str, commit: str, *, has_begun: bool) -> None:
        """Make a linked worktree of the user's repository at a commit, on no branch; raises `Conflict` if git refuses.

        It is locked with a reason until all files are there, so that one which was begun is known.
        """
        how = ("--quiet", "--no-checkout", "--detach", "--lock", "--reason", _BEING_MADE)
        if not has_begun:
            await self._make(path, clone.repository, ("worktree", "add", *how, "--", path, commit))
        problem = None
        try:
            # Only there git says what it is configured to do there.
            await self._make(path, path, ("reset", "--quiet", "--hard"), await self._quiet(path, programs))
        except Conflict as found:
            problem = found
        if problem is not None:
            if not has_begun:
                await self._run_on_host(clone.repository, ("worktree", "remove", "-ff", "--", path))
            raise problem
        await self._make(path, clone.repository, ("worktree", "unlock", "--", path))

    async def _make(
        self, path: str, directory: str, line: tuple[str, ...], settings: Mapping[str, str] | None = None
    ) -> None:
        done = await self._run_on_host(directory, line, settings)
        if done.returncode:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise Conflict(f"git can't make {path}: {' '.join(line.strip() for line in lines[-3:])}")

    def _path_for(self, directory: str) -> str:
        """Return the directories in which programs are looked for: none that files of a checkout decide about."""
        entries = self._environ.get("PATH", build_spec.PATH).split(":")
        return ":".join(one for one in entries if os.path.isabs(one) and not is_within(os.path.realpath(one), directory))

    def _environment(self, directory: str, settings: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a git in a checkout."""
        tame = tame_git.variables({**tame_git.PERSONS, **settings})
        return {**self._environ, "PATH": self._path_for(directory), **_QUIET, **drivers.LFS_OFFLINE, **tame}

    async def _run_on_host(
        self, directory: str, arguments: tuple[str, ...], settings: Mapping[str, str] | None = None
    ) -> CompletedProcess[bytes]:
        descriptors.keep_private()
        try:
            environment = self._environment(directory, settings or {})
            return await helper.run(("git", "-C", directory, *arguments), environment, seconds=_CHECKOUT_SECONDS)
        except trio.TooSlowError:
            raise Conflict(f"git took more than {_CHECKOUT_SECONDS:g} s in {directory}: `git status` shows why") from None
        except OSError as problem:
            raise Conflict(f"git can't be started: {problem.strerror}: install git") from None


def _behind(branch: str, top: str, answer: Answer) -> str | None:
    if not answer.reason:
        return None
    mend = f"`git -C {shlex.quote(top)} reset` mends it, and unstages what you have staged"
    return f"{branch} has moved, and git's index in {top} couldn't follow ({answer.reason}): {mend}"
