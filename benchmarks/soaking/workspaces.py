"""Makes the workspaces of the soak's agents, finds leftovers in them, and plays a person who uses git there."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import trio

from sandbox import protect

if TYPE_CHECKING:
    import random

OURS = "soak-"
"""The prefix of all files that the soak's agents and person make; every other new file is a leftover."""
FILES = 20
"""How many different files each of them makes in a workspace: a bound, so that walking it costs the same to the end."""
GIT_SECONDS = 60.0
"""How long one git command of a person's may take on a machine that is shared by all agents."""
CONFIG = """\
[user]
    name = Soak
    email = soak@example.invalid
[gc]
    auto = 60
    autoDetach = false
[protocol "file"]
    allow = always
[init]
    defaultBranch = main
[advice]
    detachedHead = false
"""
"""The person's `~/.gitconfig`; collection happens often, and in the command itself so that it leaves no process."""


class Workspace(NamedTuple):
    """A directory in which agents work.

    Args:
        path: the directory.
        home: the person's home, whose git configuration holds here.
        network: the network of the agents in it.
        repositories: the working trees in it, its own and nested ones.
        git_directories: the git directories of these, where placeholders could be left.
        before: its entries when it was made.
    """

    path: str
    home: str
    network: str
    repositories: tuple[str, ...]
    git_directories: tuple[str, ...]
    before: frozenset[str]

    @property
    def name(self) -> str:
        """Its last name, for reports."""
        return os.path.basename(self.path)

    def leftovers(self) -> list[str]:
        """Return the entries that neither an agent nor the person made, as paths, and those that `git status` shows."""
        found = sorted(_entries(self.path, self.git_directories) - self.before)
        unknown = [path for path in found if not os.path.basename(path).startswith(OURS)]
        left = [f"{self.name}: {os.path.relpath(path, self.path)}" for path in unknown]
        for repository in self.repositories:
            done = subprocess.run(
                ["git", "-C", repository, "status", "--porcelain", "--untracked-files=all", "--ignored"],
                env=environment(self.home), capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode:
                left.append(f"{self.name}: git status fails: {done.stderr.strip()}")
            for line in done.stdout.splitlines():
                if not os.path.basename(line[3:].strip('"/')).startswith(OURS):
                    left.append(f"{self.name}: git status: {line}")  # noqa: PERF401 - one line of it would be too long
        return left


def _entries(path: str, git_directories: tuple[str, ...]) -> set[str]:
    """List a workspace, but of its git directories only the names that Substrat protects."""
    found: set[str] = set()
    for top, directories, files in os.walk(path):
        found.update(os.path.join(top, name) for name in (*directories, *files) if name != ".git")
        directories[:] = [name for name in directories if name != ".git"]
    for git in git_directories:
        found.update(path for entry in protect.GIT if os.path.lexists(path := f"{git}/{entry.name}"))
    return found


def environment(home: str) -> dict[str, str]:
    """Return the environment of a person's commands."""
    return {"PATH": os.environ["PATH"], "HOME": home, "LANG": "C.UTF-8", "GIT_CONFIG_NOSYSTEM": "1", "GIT_EDITOR": "true"}


def make(root: str) -> list[Workspace]:
    """Make directories and repositories of every kind that agents work in, each repository with a bare one to push to.

    Args:
        root: the soak's directory.
    """
    home = f"{root}/person"
    os.makedirs(home)
    with open(f"{home}/.gitconfig", "w", encoding="utf-8") as file:
        file.write(CONFIG)

    def git(path: str, *words: str) -> str:
        done = subprocess.run(
            ["git", "-C", path, *words], env=environment(home), check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def repository(path: str) -> str:
        os.makedirs(path)
        git(path, "init", "-q")
        for number in range(3):
            with open(f"{path}/README.md", "a", encoding="utf-8") as file:
                file.write(f"line {number}\n")
            git(path, "add", ".")
            git(path, "commit", "-qm", f"commit {number}")
        bare = f"{root}/bare/{os.path.basename(path)}.git"
        git(path, "clone", "-q", "--bare", path, bare)
        git(path, "remote", "add", "origin", bare)
        return path

    base = f"{root}/workspaces"
    for name in ("plain", "plain-none"):
        os.makedirs(f"{base}/{name}")
    for name in ("history", "history-none", "history-host", "nested"):
        repository(f"{base}/{name}")
    repository(f"{base}/nested/{OURS}inner")
    outer = repository(f"{root}/outer/main")
    git(outer, "worktree", "add", "-q", "-b", "linked", f"{base}/linked")
    library = repository(f"{root}/outer/library")
    # An agent's workspace is the submodule's working tree, whose git directory lies in the outer repository.
    above = repository(f"{base}/above")
    git(above, "submodule", "--quiet", "add", library, "submodule")
    git(above, "commit", "-qm", "submodule")
    git(f"{above}/submodule", "checkout", "-q", "-B", "main")

    def workspace(name: str, network: str, *inner: str) -> Workspace:
        path = f"{base}/{name}"
        trees = tuple(os.path.join(path, tree) for tree in ("", *inner)) if os.path.lexists(f"{path}/.git") else ()
        trees = tuple(tree.rstrip("/") for tree in trees)
        directories = tuple(git(tree, "rev-parse", "--path-format=absolute", "--git-common-dir") for tree in trees)
        return Workspace(path, home, network, trees, directories, frozenset(_entries(path, directories)))

    return [
        workspace("history", "filtered"), workspace("plain", "filtered"), workspace("linked", "filtered"),
        workspace("above/submodule", "filtered"), workspace("nested", "filtered", f"{OURS}inner"),
        workspace("history-none", "none"), workspace("history-host", "host"), workspace("plain-none", "none"),
    ]  # fmt: skip


class Person:
    """A person who works with git in the agents' repositories while the agents work there too.

    Args:
        root: the soak's directory.
        workspaces: the agents' workspaces.
        chance: the source of randomness.
    """

    def __init__(self, root: str, workspaces: list[Workspace], chance: random.Random) -> None:
        self._root = root
        self._home = f"{root}/person"
        self._repositories = [path for workspace in workspaces for path in workspace.repositories]
        # Those that a linked worktree and a submodule belong to; no agent works in them.
        self._repositories += [f"{root}/outer/main", f"{root}/workspaces/above"]
        self._directories = {git for workspace in workspaces for git in workspace.git_directories}
        self._random = chance
        self._number = 0
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()

    async def work(self, resting: trio.Event) -> None:
        """Do one thing after the other until it is time to rest."""
        kinds = [self._status, self._commit, self._branch, self._config, self._remote, self._push, self._stash,
                 self._worktree, self._collect]  # fmt: skip
        while not resting.is_set():
            self._number += 1
            act = self._random.choice(kinds)
            name = act.__name__.strip("_")
            good = await act(self._random.choice(self._repositories), str(self._number % FILES))
            (self.done if good else self.refused)[name] += 1
            with trio.move_on_after(self._random.uniform(0.0, 0.2)):
                await resting.wait()

    def tidy(self) -> None:
        """Remove the locks and half-made stashes and worktrees of git processes that were killed with their sandbox."""
        for git in self._directories:
            for top, _, files in os.walk(git):
                for name in files:
                    if name.endswith(".lock"):
                        os.unlink(os.path.join(top, name))
        shutil.rmtree(f"{self._root}/worktrees", ignore_errors=True)
        for repository in self._repositories:
            for words in (("worktree", "prune"), ("stash", "clear")):
                subprocess.run(
                    ["git", "-C", repository, *words], env=environment(self._home), check=True, capture_output=True
                )

    async def _git(self, path: str, *words: str) -> bool:
        done = None
        with trio.move_on_after(GIT_SECONDS):
            done = await trio.run_process(
                ["git", "-C", path, *words], env=environment(self._home), check=False, capture_stdout=True,
                capture_stderr=True,
            )  # fmt: skip
        if done is not None and done.returncode == 0:
            return True
        said = done.stderr.decode("utf-8", "replace").strip().splitlines() if done is not None else ["it took too long"]
        self.reasons[f"git {words[0]}: {said[-1] if said else 'no reason'}"[:100].replace(self._root, "")] += 1
        if any(".lock" in line for line in said):
            self._remove_stale_locks()
        return False

    def _remove_stale_locks(self) -> None:
        """Remove locks whose git was killed: a living git holds its locks for less time than a person's command may take."""
        for git in self._directories:
            for name in ("index.lock", "HEAD.lock", "config.lock", "packed-refs.lock"):
                with suppress(OSError):
                    path = f"{git}/{name}"
                    # Wall-clock, as in a file's times.
                    if os.stat(path).st_mtime + 2 < os.stat(_touched(self._home)).st_mtime:
                        os.unlink(path)

    async def _status(self, path: str, _: str) -> bool:
        return await self._git(path, "status", "--short")

    async def _commit(self, path: str, number: str) -> bool:
        name = f"{OURS}person-{number}"
        with open(f"{path}/{name}", "w", encoding="utf-8") as file:
            file.write(f"{self._number}\n")
        return await self._git(path, "add", name) and await self._git(path, "commit", "-qm", name, "--", name)

    async def _branch(self, path: str, number: str) -> bool:
        branch = f"{OURS}person-{number}"
        if not await self._git(path, "checkout", "-q", "-b", branch):
            return False
        return await self._git(path, "checkout", "-q", "-") and await self._git(path, "branch", "-qD", branch)

    async def _config(self, path: str, number: str) -> bool:
        return await self._git(path, "config", f"branch.{OURS}{number}.description", str(self._number))

    async def _remote(self, path: str, number: str) -> bool:
        remote = f"{OURS}{number}"
        added = await self._git(path, "remote", "add", remote, f"{self._root}/bare/history.git")
        return await self._git(path, "remote", "remove", remote) and added

    async def _push(self, path: str, number: str) -> bool:
        return await self._git(path, "push", "-q", "-f", "-u", "origin", f"HEAD:refs/heads/{OURS}{number}")

    async def _stash(self, path: str, number: str) -> bool:
        with open(f"{path}/{OURS}stashed-{number}", "w", encoding="utf-8") as file:
            file.write(f"{self._number}\n")
        stashed = await self._git(path, "stash", "push", "-q", "-u", "--", f"{OURS}stashed-{number}")
        return stashed and await self._git(path, "stash", "pop", "-q")

    async def _worktree(self, path: str, _: str) -> bool:
        place = f"{self._root}/worktrees/{self._number}"
        if not await self._git(path, "worktree", "add", "-q", "--detach", place):
            return False
        return await self._git(path, "worktree", "remove", "--force", place)

    async def _collect(self, path: str, _: str) -> bool:
        return await self._git(path, "gc", "--auto", "-q")


def _touched(home: str) -> str:
    path = f"{home}/now"
    with open(path, "w", encoding="utf-8"):
        pass
    os.utime(path)
    return path
