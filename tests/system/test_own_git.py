"""A person's own git and disk beside agents: linked worktrees, and another disk in a workspace's place."""

import os
import re
import subprocess
from contextlib import contextmanager

import pytest

from tests.system.obedient import Agent

READ_ONLY = "OSError Read-only file system"


@contextmanager
def renamed(work):
    """Another directory in the workspace's place, for a user who may not mount."""
    aside = work.with_name("aside")
    work.rename(aside)
    work.mkdir()
    yield
    for left in sorted(work.rglob("*"), reverse=True):
        left.unlink() if left.is_file() else left.rmdir()
    work.rmdir()
    aside.rename(work)


@contextmanager
def covered(work):
    """A disk in the workspace's place, as where the workspace's own isn't mounted."""
    if os.getuid():
        pytest.skip("only root mounts")
    subprocess.run(["mount", "-t", "tmpfs", "none", work], check=True)
    yield
    subprocess.run(["umount", work], check=True)


@pytest.mark.parametrize("elsewhere", [renamed, covered])
def test_a_turn_starts_in_the_directory_of_the_last_one_or_not_at_all(running, elsewhere):
    work = running.workspace()
    running.spawn("agent", work, "/shell touch one")
    with elsewhere(work):
        for verb in (("send", "agent", "/shell touch two"), ("resume", "agent")):
            running.ok(*verb)
            failed = running.wait("agent", "failed")
            assert f"{work} is another directory than in its last turn" in failed["turn"]["error"]
        assert os.listdir(work) == []
        running.stop()
        running.start()
        running.ok("resume", "agent")
        running.wait("agent", "failed")
        assert os.listdir(work) == []
    running.ok("resume", "agent")
    running.wait("agent")
    assert {"one", "two"} <= set(os.listdir(work)), "the work goes on where it was"


def test_a_workspace_that_was_made_anew_is_used_once_a_person_has_accepted_it(running):
    work = running.workspace()
    running.spawn("agent", work, "/shell touch one")
    with renamed(work):
        running.ok("send", "agent", "/shell touch two")
        told = running.wait("agent", "failed")["turn"]["error"]
        commands = re.findall("`substratctl (.*?)`", told)
        for command in commands:
            running.ok(*command.split())
        running.wait("agent")
        assert os.path.exists(work / "two")
        running.ok("send", "agent", "/shell touch three", "--wait")
        assert os.path.exists(work / "three")
    running.ok("send", "agent", "/shell touch four")
    assert "another directory" in running.wait("agent", "failed")["turn"]["error"], "that one is the last turn's now"


def test_worktrees_are_made_and_removed_one_after_the_other_beside_a_running_agent(agent):
    """git removes an empty `.git/worktrees`, and with it a placeholder."""
    agent.start()
    tree = agent.daemon.directory / "tree"
    for _ in range(3):
        agent.git("worktree", "add", "-q", "--detach", tree)
        agent.git("worktree", "remove", tree)
        agent.git("worktree", "prune")
        agent.git("gc", "-q")
    agent.git("worktree", "add", "-q", "--detach", tree)
    assert agent.git("worktree", "list").count("\n") == 2
    assert agent.tries((".git/worktrees/x", "x"), (".git/worktrees/substrat/gitdir", "x")) == [READ_ONLY] * 2
    agent.finish()
    agent.daemon.git(tree, "status")
    agent.git("worktree", "remove", tree)
    assert not (agent.work / ".git/worktrees").exists()
    assert agent.told("agent:frozen") == []


def test_the_last_worktree_is_removed_and_one_made_while_another_agent_starts(agent):
    tree = agent.daemon.directory / "tree"
    agent.git("worktree", "add", "-q", "--detach", tree)
    agent.start()
    (agent.work / "ready").unlink()
    second = Agent(agent.daemon, "second").start()
    agent.git("worktree", "remove", tree)
    agent.git("worktree", "add", "-q", "--detach", tree)
    assert READ_ONLY in second.tries((".git/worktrees/substrat/locked", "x"))
    agent.daemon.ok("end", "second")
    agent.daemon.ok("end", "agent")
    agent.daemon.git(tree, "status")
    assert os.listdir(agent.work / ".git/worktrees") == ["tree"]
