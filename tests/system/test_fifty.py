"""A person's ordinary commands in a random order beside an agent that tries to write to protected files all the while.

The same commands run in a twin of the repository that has no agent, and each must leave both repositories alike. Some of
them freeze the turn first, which the person then resumes. `make fuzz` takes other orders than the gate.
"""

import contextlib
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.waiting import wait_until

MARK = b"[alias]\n\tagent = !false\n"
"""The agent writes this to each file that it can; git never runs such an alias."""
END = b" = !false\n"
"""This end of it stays where git writes to the same file at the same time."""

TRIED = (
    ".git/config .git/config.worktree .git/hooks/post-checkout .git/info/attributes .git/commondir .git/worktrees/x"
    " .git/worktrees/tree-a/gitdir .vscode/settings.json .vscode/tasks.json .idea/workspace.xml .idea/x .envrc"
    " .husky/_/pre-commit"
)
WORK = (
    "/shell umask 077; touch agent-ready; n=0; while [ ! -e agent-enough ]; do n=$((n+1)); echo $n > agent-part; "
    "mv agent-part agent-begun; "
    f"for f in {TRIED}; do printf '[alias]\\n\\tagent = !false\\n' >> $f; done 2> /dev/null; "
    "echo $n > agent-part; mv agent-part agent-round; sleep 0.05; done"
)

LFS = (
    "git config filter.lfs.smudge 'git-lfs smudge -- %f'; git config filter.lfs.clean 'git-lfs clean -- %f'; "
    "git config filter.lfs.process 'git-lfs filter-process'; git config filter.lfs.required true; "
    "for h in pre-push post-commit post-merge; do echo exit 0 > .git/hooks/$h; chmod +x .git/hooks/$h; done"
)
ALWAYS = frozenset({
    LFS,
    "git config gpg.format ssh; git config merge.tool meld; git config core.fsmonitor false",
    "git config core.hooksPath .husky/_",
    "git config branch.main.gk-last-accessed 2026-01-01T00:00:00Z",
    "git config branch.feature.vscode-merge-base main; git config branch.feature.gk-merge-base main",
    "git config user.name Bert; git remote add other ../other",
})  # fmt: skip
"""These commands put another `.git/config` in the place of that of the turn's start, so they freeze the turn."""
FREEZE = ("git config ", "git checkout ", "git stash", "git reset ", "git clean ")
FREEZE_TOO = ("sparse-checkout", ".idea", "git stash", "git rebase")
"""Beginnings and parts of commands that may freeze the turn: the branch, or the stash, has other protected files."""


def may_freeze(command):
    return command == LFS or command.startswith(FREEZE) or any(words in command for words in FREEZE_TOO)


COMMANDS = (
    # Linked worktrees
    "git worktree add --detach ../tree-a",
    "git worktree add -b side ../tree-b",
    "git worktree add --detach ../tree-d tooled",
    "git worktree remove --force ../tree-a",
    "git worktree remove --force ../tree-b",
    "git worktree prune",
    "rm -rf ../tree-d; git worktree prune",
    "git worktree move ../tree-a ../tree-c",
    "git worktree lock ../tree-b",
    "git worktree unlock ../tree-b",
    # Tidying
    "git gc --quiet --prune=now",
    "git repack -adq",
    "git pack-refs --all",
    "git clean -fdq",
    # Sparse checkouts
    "git status; git sparse-checkout set --cone docs",
    "git status; git sparse-checkout add src",
    "git status; git sparse-checkout set --no-cone '/*' '!/docs/'",
    "git sparse-checkout disable",
    # Settings
    LFS,
    "git config --remove-section filter.lfs; rm .git/hooks/pre-push .git/hooks/post-*",
    "git config core.hooksPath .husky/_",
    "git config --unset core.hooksPath",
    "git config branch.main.gk-last-accessed 2026-01-01T00:00:00Z",
    "git config branch.feature.vscode-merge-base main; git config branch.feature.gk-merge-base main",
    "git config gpg.format ssh; git config merge.tool meld; git config core.fsmonitor false",
    "git config user.name Bert; git remote add other ../other",
    # Stashes
    "echo more >> README.md; git stash",
    "echo more > new; git stash -u",
    "git stash pop",
    "git stash drop",
    "[ ! -e .vscode/settings.json ] || { echo mine > .vscode/settings.json; git stash; }",
    # Rebases, merges
    "git rebase main feature",
    "git rebase main clashing",
    "git rebase --abort",
    "git checkout --theirs .",
    "git add -A",
    "git rebase --continue",
    "GIT_SEQUENCE_EDITOR='sed -i s/pick/edit/' git rebase -i HEAD~1",
    "git merge feature",
    "git commit -q --allow-empty -m more",
    "git reset -q --hard",
    # Branches with and without `.vscode` and `.envrc`
    "git checkout main",
    "git checkout tooled",
    "git checkout -",
    "git checkout -b new-$(git rev-parse --short HEAD)",
    "git checkout main; git checkout tooled; git checkout main; git checkout tooled",
    # An editor's directory
    "mkdir -p .idea; echo old > .idea/workspace.xml",
    "rm -rf .idea",
    "rm -rf .idea; mkdir .idea; echo new > .idea/workspace.xml",
    "mkdir -p .idea; echo newer > .idea/part; mv .idea/part .idea/workspace.xml",
)


class Repository:
    """A person's repository and its linked worktrees, in a directory of their own."""

    def __init__(self, base, home):
        self.base, self.work = base, base / "work"
        self.environment = {
            "HOME": str(home), "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "GIT_EDITOR": "true",
            "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "A",
            "GIT_COMMITTER_EMAIL": "a@b",
        }  # fmt: skip

    def run(self, command, time=0):
        dates = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), f"{1_700_000_000 + time} +0000")
        return subprocess.run(
            ["sh", "-c", command], cwd=self.work, env=self.environment | dates, capture_output=True, text=True, check=False
        )

    def asked(self, *arguments):
        environment = self.environment | {"GIT_OPTIONAL_LOCKS": "0"}
        done = subprocess.run(["git", *arguments], cwd=self.work, env=environment, capture_output=True, check=False)
        return done.stdout.replace(str(self.base).encode(), b"BASE").decode()

    def state(self):
        """The person's files, refs and settings, without the agent's files and without placeholders, which are empty."""
        git = self.work / ".git"
        settings = [git / name for name in ("config", "config.worktree", "info/attributes", "info/sparse-checkout")]
        unfinished = ("rebase-merge", "rebase-apply", "MERGE_HEAD", "index.lock", "config.lock")
        return {
            "head": (git / "HEAD").read_text(),
            "stashes": self.asked("stash", "list", "-p", "--format=%s"),
            "refs": self.asked("for-each-ref"),
            "index": self.asked("ls-files", "-s", "-t"),
            "status": self.asked("status", "--porcelain"),
            "worktrees": self.asked("worktree", "list", "--porcelain"),
            "settings": [path.read_text() if path.exists() else "" for path in settings],
            "hooks": sorted(path.name for path in (git / "hooks").glob("*") if path.suffix != ".sample"),
            "unfinished": [name for name in unfinished if (git / name).exists()],
            "files": dict(self._files()),
        }

    def _files(self):
        for top, directories, names in os.walk(self.base):
            directories[:] = [name for name in directories if name != ".git"]
            for name in names:
                path = Path(top, name)
                if name != ".git" and not name.startswith("agent-"):
                    yield str(path.relative_to(self.base)), path.read_bytes()


def prepare(work, run):
    work.mkdir(parents=True)
    for command in (
        "git init -q -b main; mkdir docs src; echo '/agent-*' > .gitignore; echo hello | tee README.md docs/a > src/a",
        "git add .; git commit -qm first; git checkout -qb feature; echo b > src/b; git add .; git commit -qm feature",
        "git checkout -qb clashing main; echo other > README.md; git commit -qam clashing",
        "git checkout -qb tooled main; mkdir .vscode; echo '{}' > .vscode/settings.json; echo 'export A=1' > .envrc",
        "git add -f .; git commit -qm tools; git checkout -q main; echo hi > README.md; git commit -qam second",
    ):
        assert run(command).returncode == 0


class Walk:
    """The person's repository with the agent, and the twin."""

    def __init__(self, daemon, wire):
        self.daemon = daemon
        self.mine, self.twin = (Repository(daemon.directory / name, daemon.home) for name in ("mine", "twin"))
        for one in (self.mine, self.twin):
            prepare(one.work, one.run)
        self.wire = wire

    def start(self, *verb):
        (self.mine.work / "agent-ready").unlink(missing_ok=True)
        self.daemon.ok(*verb, stdin=WORK.encode())
        wait_until((self.mine.work / "agent-ready").exists, "the start of the turn")

    def state(self):
        """Whether the turn is `over`, `frozen`, or neither."""
        shown = self.wire.call("agent.show", agent="agent")
        return "over" if shown["state"] == "failed" else "frozen" if "frozen" in shown["attention"] else None

    def _number(self, name):
        path = self.mine.work / name
        return int(path.read_text() or 0) if path.exists() else 0

    def settle(self):
        """Wait until the turn has stopped, or the agent has tried all again and all is as in the twin; says if it did."""
        begun = self._number("agent-begun")

        def has_tried():
            written = any(is_agents(file) for name in TRIED.split() for file in files(self.mine.work / name))
            return not written and self._number("agent-round") > begun

        wait_until(lambda: self.state() or has_tried(), "the agent's next round")
        with contextlib.suppress(AssertionError):  # `compare` says more
            return wait_until(lambda: self.state() or self.mine.state() == self.twin.state())
        return False

    def accept(self):
        """Accept the finding as it is at last: beside other work the last placeholders go only after the turn is over."""
        wait_until(lambda: self.daemon.ctl("accept", "agent").code == 0, "an acceptance")

    def clean(self):
        """Take the agent's lines out of protected files, as a person does; says whether there were any."""
        found = [file for name in TRIED.split() for file in files(self.mine.work / name) if is_agents(file)]
        for file in found:
            file.write_bytes(data := file.read_bytes().replace(MARK, b""))
            file.chmod(0o644)
            if not data or END in data:
                file.unlink()
                self.mine.run(f"git checkout -- {file}")
        return bool(found)

    def compare(self, command):
        mine, twin = self.mine.state(), self.twin.state()
        for part, expected in twin.items():
            assert mine[part] == expected, f"{part} after: {command}"

    def begin_anew(self):
        """Copy the repository to the twin: the agent was faster than the daemon, and a command has met its file."""
        shutil.rmtree(self.twin.base)
        agents = shutil.ignore_patterns("agent-*")  # which come and go meanwhile
        shutil.copytree(self.mine.base, self.twin.base, symlinks=True, ignore=agents)
        for link in (*self.twin.base.glob("tree-*/.git"), *self.twin.work.glob(".git/worktrees/*/gitdir")):
            link.write_text(link.read_text().replace(str(self.mine.base), str(self.twin.base)))
        self.twin.run("for tree in . ../tree-*; do git -C $tree update-index -q --refresh; done")

    def step(self, number, command):
        done = self.mine.run(command, number), self.twin.run(command, number)
        is_settled, states, was_there = self.settle(), [], False
        while state := self.state():
            states.append(state)
            was_there = self.clean() or was_there
            if state == "over":
                self.accept()
                self.start("send", "agent", "--prompt-file", "-")
            else:
                self.daemon.ok("resume", "agent")
            is_settled = self.settle()
        if was_there:
            self.begin_anew()
        else:
            assert done[0].returncode == done[1].returncode, f"{command}: {done}"
        assert not states or may_freeze(command), f"{states} after: {command}"
        assert states or command not in ALWAYS, f"nothing froze after: {command}"
        if states or not is_settled:
            self.compare(command)


def files(path):
    return [one for one in (path.rglob("*") if path.is_dir() else [path]) if one.is_file()]


def is_agents(file):
    """Whether the agent has written to a file, or has made it: its files alone are closed to others."""
    with contextlib.suppress(FileNotFoundError):  # a placeholder goes with its turn
        return END in file.read_bytes() or not file.stat().st_mode & 0o077
    return False


@pytest.mark.hypothesis
@pytest.mark.parametrize("count", [15, pytest.param(len(COMMANDS), marks=pytest.mark.slow)])
def test_fifty_commands_of_a_person_beside_an_agent_leave_what_they_leave_without_it(running, request, count):
    """`make test` takes the first of them."""
    order = list(COMMANDS)
    random.Random(request.config.getoption("hypothesis_seed") or 26).shuffle(order)
    with running.wire() as wire:
        walk = Walk(running, wire)
        walk.start("spawn", "agent", "-w", walk.mine.work, "--prompt-file", "-")
        for number, command in enumerate(order[:count]):
            walk.step(number, command)
    (walk.mine.work / "agent-enough").touch()
    running.wait("agent", "idle")
    walk.compare("the turn's end")
    assert not (walk.mine.work / ".cursor").exists(), "the placeholders"
