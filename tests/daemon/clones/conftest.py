"""A person's repository with an agent's commits in it, and the parts that land them, with real git and no daemon."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from substrat.core.workspaces.clones import Clone, Kept
from substrat.core.workspaces.landing import Landing, LandingMode
from substrat.daemon.clones.host_git import HostGit
from substrat.daemon.clones.landing_git import LandingGit
from substrat.daemon.clones.moving import BranchMover
from substrat.daemon.clones.repository import Repositories
from substrat.daemon.workspaces.git_places import Borrowing
from tests.daemon.clones.direct_git import DirectGit

if TYPE_CHECKING:
    from pathlib import Path

    from substrat.core.workspaces.standing import Standing
    from substrat.daemon.clones.landing_git import Preview
    from substrat.daemon.clones.persons_git import PersonsGit
    from substrat.daemon.workspaces.git_places import GitPlaces


class Room:
    """A repository whose branch `main` is checked out, and an agent's branch that begins at its first commit.

    Args:
        directory: where all of it lies.
    """

    def __init__(self, directory: Path) -> None:
        self.top, home = directory / "app", directory / "home"
        self.environ = {"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C"}
        for made in (home, directory / "tmp"):
            made.mkdir()
        (home / ".gitconfig").write_text(
            "[user]\n\tname = Me\n\temail = me@example.invalid\n[init]\n\tdefaultBranch = main\n"
        )
        self.home = home
        self.sandbox = DirectGit(directory / "tmp")
        self.trees = str(directory / "trees")
        self.again()
        subprocess.run(["git", "init", "-q", self.top], env=self.environ, check=True)
        self.commit({"README": "one\n"})
        self.clone = Clone(
            "id", "fix", str(directory / "trees" / "id"), str(self.top), str(self.top / ".git"), str(self.top),
            "substrat/fix", "main", self.git("rev-parse", "HEAD"),
        )  # fmt: skip

    def again(self) -> Room:
        """Make the parts anew, with the environment as it is now."""
        self.repositories = Repositories(self.sandbox, lambda: Borrowing(()))
        self.mover = BranchMover(self.trees)
        self.host_git = HostGit(self.repositories, self.environ, self.mover)
        self.landing_git = LandingGit(self.repositories, self.host_git, self.environ)
        return self

    def git(self, *words: str, given: bytes = b"", at: Path | None = None) -> str:
        """Run the person's git in the checkout, or elsewhere."""
        line = ("git", "-C", str(at or self.top), *words)
        done = subprocess.run(line, env=self.environ, input=given, capture_output=True, check=False)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout.decode("utf-8", "surrogateescape").strip()

    def printed(self, *words: str) -> bytes:
        """Return what the person's git prints in the checkout."""
        return subprocess.run(
            ("git", "-C", str(self.top), *words), env=self.environ, capture_output=True, check=True
        ).stdout

    def refuses(self, *words: str) -> bool:
        """Say whether the person's git fails in the checkout."""
        line = ("git", "-C", str(self.top), *words)
        return subprocess.run(line, env=self.environ, capture_output=True, check=False).returncode != 0

    def git_is(self, script: str, verb: str = "merge") -> None:
        """Let a script run one of git's verbs on the host from now on; `{git}` in it is git."""
        directory, real = self.top.parent / "bin", shutil.which("git")
        directory.mkdir(exist_ok=True)
        case = f'case " $* " in *" {verb} "*) {script.format(git=real)};; esac'
        (directory / "git").write_text(f'#!/bin/bash\n{case}\nexec {real} "$@"\n')
        (directory / "git").chmod(0o755)
        self.environ["PATH"] = f"{directory}:{os.environ['PATH']}"
        self.again()

    def git_is_well(self) -> None:
        """Let git run as it is again."""
        self.environ["PATH"] = os.environ["PATH"]
        self.again()

    def commit(self, files: dict[str, str | bytes | None], subject: str = "x", at: Path | None = None) -> str:
        """Write files in the checkout, or elsewhere, delete those that are None, commit them, and return the commit."""
        top = at or self.top
        for name, content in files.items():
            path = top / name
            if content is None:
                path.unlink()
                if not any(path.parent.iterdir()):
                    path.parent.rmdir()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content if isinstance(content, bytes) else content.encode())
            self.git("add", "-f", "--", name, at=at)
        self.git("commit", "-q", "--allow-empty", "-m", subject, at=at)
        return self.git("rev-parse", "HEAD", at=at)

    def agent_commits(self, *changes: dict[str, str | bytes | None]) -> str:
        """Commit for the agent, after what it has committed before, and return its head."""
        work = self.top.parent / "work"
        if not work.exists():
            self.git("clone", "-q", str(self.top), str(work))
            self.git("checkout", "-q", "--detach", str(self.clone.base), at=work)
        for files in changes:
            self.commit(files, f"add {', '.join(files)}", at=work)
        self.git("fetch", "-q", str(work), "HEAD")
        return self.is_kept(self.git("rev-parse", "FETCH_HEAD"))

    def clone_of(self, git_dir: Path) -> None:
        """Note that the repository's git directory lies elsewhere."""
        self.clone = replace(self.clone, git_dir=str(git_dir))

    def branch_again(self) -> None:
        """Let the agent begin anew at the branch's tip."""
        self.clone = replace(self.clone, base=self.tip())

    def is_kept(self, head: str) -> str:
        """Take a commit as the agent's kept head, and return it."""
        self.git("update-ref", "refs/substrat/fix/head", head)
        self.git(
            "update-ref", "refs/substrat/fix/wip", self.git("commit-tree", "-p", head, "-m", "wip", f"{head}^{{tree}}")
        )
        self.clone = replace(self.clone, kept=Kept(head=head))
        return head

    def tip(self, branch: str = "main") -> str:
        """Return a branch's commit."""
        return self.git("rev-parse", f"refs/heads/{branch}")

    @property
    def head(self) -> str:
        """The agent's kept head."""
        return str(self.clone.kept.head)

    async def standing(self, branch: str = "main") -> Standing:
        """Return how the agent's head stands to a branch."""
        return await self.landing_git.standing(self.clone, replace(self.landing(), target=branch), self.head)

    async def checkout(self, branch: str = "main") -> GitPlaces | None:
        """Return where a branch is checked out."""
        return await self.host_git.checkout(self.clone, branch, (await self.standing(branch)).holders)

    async def persons_git(self, checkout: GitPlaces | None = None) -> PersonsGit:
        """Return the person's configuration, for the branch's tip and the agent's head."""
        top = checkout.top if checkout is not None else self.clone.repository
        return await self.host_git.persons_git(top, (await self.standing()).names)

    async def preview(self, mode: LandingMode = LandingMode.MERGE) -> Preview:
        """Return the move that lands the agent's work."""
        persons, found = await self.persons_git(), await self.standing()
        return await self.landing_git.preview(self.clone, self.landing(mode), persons, found, self.head)

    async def changes(self) -> Preview:
        """Return the move of the branch to the agent's head as it is."""
        return await self.landing_git.changes(self.clone, await self.persons_git(), self.tip(), self.head)

    def landing(self, mode: LandingMode = LandingMode.MERGE) -> Landing:
        """Return a landing of the agent's work."""
        return Landing(1, "id", "main", mode)


@pytest.fixture
def room(tmp_path):
    return Room(tmp_path)
