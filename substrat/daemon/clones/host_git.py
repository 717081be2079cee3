"""Git on the host: it moves a branch in the checkout that has it checked out, and adds a working copy, nothing else.

Before either it is asked what it is configured to do there, which runs no program: no copy of a configuration elsewhere
gives the same answer, because conditions (`includeIf`) ask for places.

A branch that is checked out moves with `git merge --ff-only` in that checkout, as the user would do it, but under the
settings of `tame_git.PERSONS`.
"""

from __future__ import annotations

import fcntl
import os
import shlex
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import trio

from substrat.core.workspaces import branch_holders, drivers
from substrat.daemon.clones.git_sandbox import said
from substrat.daemon.clones.repository import NOTHING, RefMoved
from substrat.daemon.kernel import descriptors, helper, sandbox_process
from substrat.daemon.sandboxes import build_spec, tame_git
from substrat.daemon.workspaces import git_written
from substrat.errors import Conflict
from substrat.paths import is_within

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from subprocess import CompletedProcess

    from substrat.core.workspaces.clones import Clone
    from substrat.core.workspaces.drivers import GitSettings, Programs
    from substrat.core.workspaces.landing import Landing
    from substrat.daemon.clones.git_sandbox import GitSandbox
    from substrat.daemon.clones.repository import Repositories
    from substrat.daemon.workspaces.git_places import GitPlaces

_QUIET = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
"""git on the host asks nothing, writes no index for a look, and says what it says in English."""
_CHECKOUT_SECONDS = 120.0
"""`git merge --ff-only` writes some gigabytes of files in that time."""
# Prints what `branch_holders.parse` reads; $1 is the branch.
_HOLDERS = f"""\
for place in "$GIT_DIR" "$GIT_DIR"/worktrees/*
do for name in {" ".join(branch_holders.STATES)}
    do
        [ -f "$place/$name" ] && grep -qxF -e "refs/heads/$1" -e "$1" "$place/$name" || continue
        printf '%s\\0' "$name"; [ "$place" = "$GIT_DIR" ] || cat "$place/gitdir"; printf '\\0'
    done
done
printf '{branch_holders.END}\\0'
git worktree list --porcelain -z
"""
_LOOK_AGAIN = 0.05
"""Seconds between two looks whether a killed daemon's git has ended, which takes as long as it writes files."""
_FAST_FORWARD = (
    "merge", "--ff-only", "--quiet", "--commit", "--no-squash", "--no-autostash", "--no-verify-signatures", "--no-edit",
    "--no-overwrite-ignore",
)  # fmt: skip
"""A move to the commit that was previewed, also where the user's settings (`merge.*`) say otherwise (git-merge(1)). By
default git takes an ignored file, such as `.env`, for one that it may overwrite."""


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
    """Runs git on the host.

    Args:
        sandbox: runs the git that only looks.
        repositories: the users' repositories.
        environ: the daemon's own environment.
        directory: where the locks of its moves lie.
    """

    def __init__(self, sandbox: GitSandbox, repositories: Repositories, environ: Mapping[str, str], directory: str) -> None:
        self._sandbox = sandbox
        self._repositories = repositories
        wanted = {"PATH", "HOME", "XDG_CONFIG_HOME", "LANG"}
        self._environ = {name: value for name, value in environ.items() if name in wanted}
        self._directory = directory

    async def checkout(self, clone: Clone, branch: str) -> GitPlaces | None:
        """Return where a branch is checked out, None when it is nowhere; raises `Conflict` if it can't be moved there.

        A working tree that is gone holds nothing, unless it is locked, because its disk may come back.
        """
        done = await self._sandbox.run(
            ("/bin/sh", "-c", _HOLDERS, "sh", branch), self._repositories.reading(clone.git_dir),
            variables={"GIT_DIR": clone.git_dir},
        )  # fmt: skip
        if done.status:
            raise Conflict(f"git can't list the working trees of {clone.git_dir}: {said(done)}")
        holders = branch_holders.parse(done.output, branch, clone.git_dir)
        # The main one of the git directory is the one that `.git` lies in.
        placed = (one._replace(path=clone.repository) if one.path == clone.git_dir else one for one in holders)
        there = [one for one in placed if one.is_locked or await trio.to_thread.run_sync(os.path.lexists, one.path)]
        if not there:
            return None
        top, how, _ = there[0]
        status = f"`git -C {shlex.quote(top)} status` shows how to end it"
        if how != branch_holders.CHECKED_OUT:
            raise Conflict(f"{how} of {branch} is under way in {top}, and would lose a landing: {status}")
        if len(there) > 1:
            raise Conflict(f"{branch} is held by two working trees, {top} and {there[1].path}: leave it in one of them")
        if not await trio.to_thread.run_sync(os.path.lexists, top):
            raise Conflict(f"{branch} is checked out in {top}, which is locked and isn't there: bring its disk back first")
        found = await trio.to_thread.run_sync(self._repositories.places, top)
        if (found.top, found.common) != (top, clone.git_dir):
            raise Conflict(
                f"{top} has {branch} checked out and is no checkout of {clone.git_dir}: `git worktree list` there"
            )
        return found

    async def move(self, clone: Clone, landing: Landing, move: Move, places: GitPlaces | None) -> None:
        """Move a branch from one commit to another.

        Args:
            clone: the clone.
            landing: the landing.
            move: what moves.
            places: where the branch is checked out, in which no sandbox can write; None: it is nowhere.

        Raises:
            RefMoved: it has another value by now.
            Conflict: git refuses in the checkout that has it; the message is git's own.
        """
        ref = f"refs/heads/{landing.target}"
        if places is None:
            await self._repositories.update_refs(clone.git_dir, {ref: (move.commit, move.tip or NOTHING)})
            return
        checkout = places.top
        try:
            look = partial(git_written.obstacle, places.own, places.common, landing.target)
            obstacle = await trio.to_thread.run_sync(look)
        except OSError as problem:
            raise Conflict(f"{landing.target} isn't moved in {checkout}: {problem.filename}: {problem.strerror}") from None
        if obstacle is not None:
            raise Conflict(f"{landing.target} isn't moved in {checkout}: {obstacle}")
        # A branch without a commit has a name only.
        question = (
            ("rev-parse", "HEAD", "--symbolic-full-name", "HEAD") if move.tip is not None else ("symbolic-ref", "HEAD")
        )
        asked = await self._run_on_host(checkout, question)
        if asked.returncode:
            words = " ".join(asked.stderr.decode("utf-8", "replace").split())
            raise Conflict(f"git refuses to work in {checkout} for this user: {words}")
        if asked.stdout.decode("utf-8", "replace").split() != [*filter(None, (move.tip,)), ref]:
            raise RefMoved(f"{checkout} has another branch or commit checked out by now")
        with self._lasting(landing.id) as lock:
            line = (*_FAST_FORWARD, move.commit)
            own = {**await self._quiet(checkout, move.programs), f"branch.{landing.target}.mergeOptions": ""}
            done = await self._run_on_host(checkout, line, own, (lock,))
        if done.returncode:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
            words = " ".join(line.strip() for line in lines[:6])
            again = ""
            if landing.intended is not None:
                again = (
                    f"; substratd was stopped while it landed this before, so some files there may be the landing's "
                    f"already: `git -C {shlex.quote(checkout)} status` shows them"
                )
            raise Conflict(f"git refuses to move {landing.target} in {checkout}: {words}{again}")

    @contextmanager
    def _lasting(self, landing: int) -> Iterator[int]:
        """Lock a file that git inherits, by which the next daemon sees whether a killed one's git goes on."""
        path = self._lock_of(landing)
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield lock
        finally:  # git has ended, also where the caller was cancelled
            os.unlink(path)
            os.close(lock)

    async def end_of_earlier_move(self, landing: int) -> None:
        """Wait until the git has ended that a killed daemon started to move the branch; one that hangs is killed."""
        try:
            lock = os.open(self._lock_of(landing), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        deadline = trio.current_time() + _CHECKOUT_SECONDS
        try:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if trio.current_time() > deadline:
                        await trio.to_thread.run_sync(sandbox_process.kill_all_with, self._lock_of(landing))
                    await trio.sleep(_LOOK_AGAIN)  # no event tells that a lock is free
                else:
                    os.unlink(self._lock_of(landing))
                    return
        finally:
            os.close(lock)

    def _lock_of(self, landing: int) -> str:
        return os.path.join(self._directory, f"landing-{landing}.lock")

    async def settings(self, directory: str) -> GitSettings:
        """Return what the person's git is configured to do in a checkout; raises `Conflict` where git can't say."""
        done = await self._run_on_host(directory, ("config", "--list", "-z", "--show-scope", "--includes"))
        if done.returncode:
            words = " ".join(done.stderr.decode("utf-8", "replace").split())
            raise Conflict(f"git can't read its configuration in {directory}: {words}")
        return drivers.read(done.stdout)

    async def _quiet(self, directory: str, programs: Programs) -> dict[str, str]:
        """Return the settings under which git runs no filter but those that may run, as it is configured now."""
        return drivers.quiet_filters(await self.settings(directory), programs)

    async def add_worktree(self, clone: Clone, programs: Programs, path: str, commit: str) -> None:
        """Make a linked worktree of the user's repository at a commit, on no branch; raises `Conflict` if git refuses."""
        line = ("worktree", "add", "--quiet", "--no-checkout", "--detach", "--", path, commit)
        done = await self._run_on_host(clone.repository, line)
        if done.returncode == 0:
            # Only there git says what it is configured to do there.
            done = await self._run_on_host(path, ("reset", "--quiet", "--hard"), await self._quiet(path, programs))
        if done.returncode:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise Conflict(f"git can't make {path}: {' '.join(line.strip() for line in lines[-3:])}")

    def path_for(self, directory: str) -> str:
        """Return the directories in which programs are looked for: none that files of a checkout decide about."""
        entries = self._environ.get("PATH", build_spec.PATH).split(":")
        return ":".join(one for one in entries if os.path.isabs(one) and not is_within(os.path.realpath(one), directory))

    async def _run_on_host(
        self,
        directory: str,
        arguments: tuple[str, ...],
        settings: Mapping[str, str] | None = None,
        files: tuple[int, ...] = (),
    ) -> CompletedProcess[bytes]:
        descriptors.keep_private()
        try:
            with trio.fail_after(_CHECKOUT_SECONDS):
                tame = tame_git.variables({**tame_git.PERSONS, **(settings or {})})
                environment = {**self._environ, "PATH": self.path_for(directory), **_QUIET, **tame}
                return await helper.run(("git", "-C", directory, *arguments), environment, files)
        except trio.TooSlowError:
            raise Conflict(f"git took more than {_CHECKOUT_SECONDS:g} s in {directory}: `git status` shows why") from None
        except OSError as problem:
            raise Conflict(f"git can't be started: {problem.strerror}: install git") from None
