"""The look at a workspace at a turn's start and end, where there is more than can be protected."""

import os
import subprocess
from pathlib import Path

import pytest

from substrat.daemon.agents.findings import INCOMPARABLE, Findings, roots_of
from substrat.daemon.state.layout import Layout
from substrat.daemon.turns.exec_sandbox import WatchedExec
from substrat.daemon.workspaces import leftovers, workspace_scan
from substrat.daemon.workspaces.lost_mounts import ProtectedSandbox, look, replaced
from substrat.daemon.workspaces.protector import WorkspaceProtector
from substrat.daemon.workspaces.scan_record import Bounds
from substrat.daemon.workspaces.user import User
from tests.daemon.workspaces.repositories import git
from tests.support.waiting import wait_until


class Turns:
    """The looks of an agent's turns, and what a person is asked."""

    def __init__(self, agents, files, directory):
        self.agents, self.findings = agents, Findings(agents.registry, files)
        agents.spawn("anna", "go", workspace=str(directory / "work"))
        layout = Layout(str(directory / "state"), str(directory / "run"))
        user = User("me", os.geteuid(), os.getegid(), str(directory / "home"))
        self.protector = WorkspaceProtector(agents.registry, files, layout, user, {})

    @property
    def agent(self):
        return self.agents.agent("anna")

    async def turn(self, work):
        """Do some work between the looks; returns the texts of the findings that wait then."""
        before, found = await self.protector.protect(self.agent, "a turn")
        self.findings.record(self.agent.id, None, found)
        work()
        changed, noted = await self.protector.find_changes(self.agent, before)
        self.findings.record(self.agent.id, None, (*changed, *noted))
        await self.protector.placeholders.release("a turn")
        return [finding.text for finding in self.agent.findings]

    async def accept(self):
        await self.findings.accept("anna", (), "ctl")


@pytest.fixture
def turns(agents, files, work, tmp_path, monkeypatch):
    """In a workspace with six repositories more than are protected."""
    git(work, "init", "-q")
    for number in range(9):
        git(work, "init", "-q", work / f"r{number}")
    monkeypatch.setattr(workspace_scan, "Bounds", lambda: Bounds(writable=1, git_mounts=4, seconds=60.0))
    return Turns(agents, files, tmp_path)


def write_hooks(work):
    for number in range(9):
        (work / f"r{number}/.git/hooks/post-merge").write_text("touch stolen\n")


def nothing():
    pass


async def test_what_a_turn_writes_where_nothing_is_protected_is_told_whatever_was_accepted(turns, work):
    (told,) = await turns.turn(nothing)
    assert "nothing is protected in" in told
    await turns.accept()
    assert await turns.turn(nothing) == [], "accepted, and as it was"
    (again,) = await turns.turn(lambda: (work / "r8/.git/hooks/post-merge").write_text("x") and write_hooks(work))
    assert again == told
    await turns.accept()
    assert await turns.turn(nothing) == []


async def test_what_cannot_be_compared_asks_at_each_turn(turns, work):
    for number in range(9):
        os.mkfifo(work / f"r{number}/.git/hooks/pipe")
    for _ in range(2):
        (told,) = await turns.turn(nothing)
        assert told.endswith(INCOMPARABLE)
        await turns.accept()


async def test_a_commit_changes_nothing_that_was_accepted(turns, work):
    await turns.turn(nothing)
    await turns.accept()
    committed = [Path(work / f"r{number}") for number in range(9)]
    assert await turns.turn(lambda: [git(one, "commit", "-q", "--allow-empty", "-m", "x") for one in committed]) == []


@pytest.mark.parametrize("name", [".git/config", ".git/packed-refs", ".git/info/exclude"])
async def test_a_finding_closes_when_its_file_is_as_at_the_turns_start_again(turns, work, name):
    git(work, "commit", "-q", "--allow-empty", "-m", "x")
    git(work, "pack-refs", "--all")
    path = work / name
    before = path.read_bytes()
    await turns.turn(nothing)
    await turns.accept()
    path.with_name("new").write_bytes(before + b"# refs/replace/\n")
    (told,) = await turns.turn(lambda: path.with_name("new").replace(path))
    assert name in told
    turns.agents.finish("anna")
    await turns.findings.look_again()
    assert turns.agent.findings
    path.write_bytes(before)
    await turns.findings.look_again()
    assert not turns.agent.findings


@pytest.fixture
def waiting_git(turns, work):
    """A git in the workspace that ends when its input does."""
    with subprocess.Popen(("git", "cat-file", "--batch"), cwd=work, stdin=subprocess.PIPE) as process:
        wait_until(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "git\n", "its start")
        yield process


async def test_a_git_that_may_hold_a_lock_for_a_moment_does_not_keep_it(turns, waiting_git, work, monkeypatch):
    remove, looks = leftovers.remove, []
    before = await turns.protector.unfinished(turns.agent)
    lock = work / ".git/index.lock"
    lock.touch()

    def remove_and_end_the_git(*where):
        looks.append(remove(*where))
        if waiting_git.poll() is None:
            waiting_git.communicate()
        return looks[-1]

    monkeypatch.setattr(leftovers, "remove", remove_and_end_the_git)
    assert await turns.protector.remove_locks(turns.agent, before) == [str(lock)]
    assert not looks[0], "the control"
    assert not lock.exists()


async def test_a_sandbox_has_a_placeholder_within_its_reach_that_is_newer_than_its_start(turns, work, monkeypatch):
    before, _ = await turns.protector.protect(turns.agent, "a turn")
    assert replaced(before) == []
    place = work / ".idea"
    place.rename(work / "kept")  # so that its inode isn't given out again
    place.mkdir()
    (path,) = replaced(before)
    monkeypatch.chdir(place)
    sandbox = ProtectedSandbox("", "", None, before, roots_of(turns.agent), WatchedExec(), lambda *_: None)
    assert look(before, sandbox.roots, [path], os.getpid()) == (
        [], True, {path: before.contents[path]}, {path: os.lstat(path).st_ino},
    )  # fmt: skip


async def test_one_file_that_is_too_large_keeps_no_other_from_being_compared(turns, work):
    for name in (".envrc", ".vscode"):
        (work / name).mkdir()
    large = work / ".envrc" / "large"
    large.touch()
    os.truncate(large, 17 << 20)
    before, _ = await turns.protector.protect(turns.agent, "a turn")
    await turns.protector.placeholders.release("a turn")
    assert {*before.read_only, *before.missing} - before.contents.keys() == {str(work / ".envrc")}
