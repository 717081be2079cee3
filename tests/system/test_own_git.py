"""A person's own git, editor and disk beside agents: nothing breaks in the middle, and what is undone is told."""

import os
import re
import subprocess
from contextlib import contextmanager

import pytest

from tests.support.waiting import wait_until
from tests.system.obedient import OBEDIENT, Agent, prepare

READ_ONLY = "OSError Read-only file system"


def test_a_setting_that_runs_the_workspace_is_told_with_its_change_and_the_command_that_puts_it_back(agent):
    """As husky's set-up writes it; the agent may write what it names."""
    house = agent.house
    agent.start()
    agent.git("config", "core.hooksPath", ".husky/_")
    house.wait("agent", "failed")
    (told,) = agent.told("workspace:touched")
    assert "git would obey 'core.hookspath=.husky/_';" in told
    assert "+\thooksPath = .husky/_" in told
    (command,) = re.findall("`(.*?)`", told)
    assert command in house.show("agent")["findings"][0]["text"]
    wait_until(lambda: "hooksPath" not in (agent.work / ".git/config").read_text(), "the copy that was kept")
    subprocess.run(["sh", "-c", command], check=True)
    assert agent.git("config", "core.hooksPath").strip() == ".husky/_"
    (agent.work / ".husky/_").mkdir(parents=True)
    # What is back there may have been looked at before: then it is refused once, and told anew.
    wait_until(lambda: house.ctl("accept", "agent").code == 0, "the acceptance")
    (agent.work / "ready").unlink()
    house.ok("resume", "agent")
    wait_until((agent.work / "ready").exists, "the next turn")
    assert agent.tries((".husky/_/pre-commit", "x")) == [READ_ONLY]
    agent.finish()
    assert agent.git("config", "core.hooksPath").strip() == ".husky/_"


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
def test_a_turn_starts_in_the_directory_of_the_last_one_or_not_at_all(daemon, elsewhere):
    work = daemon.workspace()
    daemon.spawn("agent", work, "/shell touch one")
    with elsewhere(work):
        for verb in (("send", "agent", "/shell touch two"), ("resume", "agent")):
            daemon.ok(*verb)
            failed = daemon.wait("agent", "failed")
            assert f"{work} is another directory than in its last turn" in failed["turn"]["error"]
        assert os.listdir(work) == []
        daemon.stop()
        daemon.start()
        daemon.ok("resume", "agent")
        daemon.wait("agent", "failed")
        assert os.listdir(work) == []
    daemon.ok("resume", "agent")
    daemon.wait("agent")
    assert {"one", "two"} <= set(os.listdir(work)), "the work goes on where it was"


def test_a_workspace_that_was_made_anew_is_used_once_a_person_has_accepted_it(daemon):
    work = daemon.workspace()
    daemon.spawn("agent", work, "/shell touch one")
    with renamed(work):
        daemon.ok("send", "agent", "/shell touch two")
        told = daemon.wait("agent", "failed")["turn"]["error"]
        commands = re.findall("`substratctl (.*?)`", told)
        for command in commands:
            daemon.ok(*command.split())
        daemon.wait("agent")
        assert os.path.exists(work / "two")
        daemon.ok("send", "agent", "/shell touch three", "--wait")
        assert os.path.exists(work / "three")
    daemon.ok("send", "agent", "/shell touch four")
    assert "another directory" in daemon.wait("agent", "failed")["turn"]["error"], "that one is the last turn's now"


def test_worktrees_are_made_and_removed_one_after_the_other_beside_a_running_agent(agent):
    """git removes an empty `.git/worktrees`, and with it a placeholder."""
    agent.start()
    tree = agent.house.directory / "tree"
    for _ in range(3):
        agent.git("worktree", "add", "-q", "--detach", tree)
        agent.git("worktree", "remove", tree)
        agent.git("worktree", "prune")
        agent.git("gc", "-q")
    agent.git("worktree", "add", "-q", "--detach", tree)
    assert agent.git("worktree", "list").count("\n") == 2
    assert agent.tries((".git/worktrees/x", "x"), (".git/worktrees/substrat/gitdir", "x")) == [READ_ONLY] * 2
    agent.finish()
    agent.house.git(tree, "status")
    agent.git("worktree", "remove", tree)
    assert not (agent.work / ".git/worktrees").exists()
    assert agent.told("workspace:touched") == []


def test_the_last_worktree_is_removed_and_one_made_while_another_agent_starts(agent):
    tree = agent.house.directory / "tree"
    agent.git("worktree", "add", "-q", "--detach", tree)
    agent.start()
    (agent.work / "ready").unlink()
    second = Agent(agent.house, "second").start()
    agent.git("worktree", "remove", tree)
    agent.git("worktree", "add", "-q", "--detach", tree)
    assert READ_ONLY in second.tries((".git/worktrees/substrat/locked", "x"))
    agent.house.ok("end", "second")
    agent.house.ok("end", "agent")
    agent.house.git(tree, "status")
    assert os.listdir(agent.work / ".git/worktrees") == ["tree"]


def test_no_setting_is_lost_while_the_file_is_put_back(agent):
    agent.start()
    keys = [f"branch.b{number}.description" for number in range(60)]
    script = "".join(f"git config {key} x\n" for key in keys)
    subprocess.run(["sh", "-e", "-c", script], cwd=agent.work, env=agent.house.environment(), check=True)
    wait_until(lambda: agent.tries((".git/config", "x")) == [READ_ONLY], "the protection of the file")
    assert set(keys) <= {line.split("=")[0] for line in agent.git("config", "--local", "--list").splitlines()}
    agent.finish()


def publish(house):
    """Make a commit that no agent's repository has yet, with an editor's file and one that takes long to check out."""
    origin = house.directory / "origin"
    house.git(origin, "checkout", "-q", "-b", "slow")
    (origin / ".envrc").write_text("export A=2\n")
    (origin / ".gitattributes").write_text("slow filter=slow\n")
    (origin / "slow").write_text("slow\n")
    house.git(origin, "add", "-f", ".")
    house.git(origin, "commit", "-q", "-m", "slow")


def check_out_slowly(agent):
    """Begin a checkout that stays in its middle until there is a file `enough`."""
    enough = agent.house.directory / "enough"
    agent.git("fetch", "-q")
    wait = f"filter.slow.smudge=while [ ! -e {enough} ]; do sleep 0.02; done; cat"
    command = ["git", "-c", wait, "checkout", "-q", "origin/slow"]
    return enough, subprocess.Popen(command, cwd=agent.work, env=agent.house.environment())


def test_a_checkout_is_not_broken_in_its_middle_by_what_is_set_aside(agent):
    publish(agent.house)
    agent.start()
    enough, checkout = check_out_slowly(agent)
    wait_until(lambda: "waiting for git" in agent.house.log, "the look at the new file")
    assert (agent.work / ".envrc").is_file()
    enough.touch()
    assert checkout.wait(20) == 0
    agent.house.wait("agent", "failed")
    (command,) = re.findall("`(.*?)`", agent.told("workspace:touched")[0])
    wait_until(lambda: not (agent.work / ".envrc").exists(), "the file to be set aside")
    subprocess.run(["sh", "-c", command], check=True)
    assert agent.git("status", "--porcelain", "--untracked-files=no") == ""


def test_a_file_is_not_replaced_while_a_persons_git_works(house):
    """git has looked at the file, and would take the new one for a change of the person's."""
    work = prepare(house)
    publish(house)
    house.git(work, "fetch", "-q")
    house.start(agent=house.program(OBEDIENT))
    agent = Agent(house).start()
    enough, checkout = check_out_slowly(agent)
    wait_until(lambda: "waiting for git" in house.log, "the look at the new file")
    inode = os.stat(work / ".envrc").st_ino
    assert agent.told("workspace:protected-again") == []
    enough.touch()
    assert checkout.wait(20) == 0
    agent.wait_told("workspace:protected-again")
    assert os.stat(work / ".envrc").st_ino != inode
    assert agent.tries((".envrc", "x")) == [READ_ONLY]
    agent.finish()


def test_files_that_a_person_has_checked_out_stay_theirs_though_git_writes_their_objects_anew(agent):
    """A `gc` makes packs that are younger than the agent, so that nothing shows the age of what is in them."""
    agent.start()
    agent.git("checkout", "-q", "tooled")
    agent.wait_told("workspace:protected-again")
    agent.git("gc", "-q", "--prune=now")
    for number, branch in enumerate(("main", "tooled"), 2):
        agent.git("checkout", "-q", branch)
        agent.wait_told("workspace:protected-again", number)
    assert agent.tries((".envrc", "x"), (".vscode/settings.json", "x")) == [READ_ONLY] * 2
    agent.finish()
    assert agent.told("workspace:touched") == []


@pytest.mark.parametrize(
    "rewrite",
    [
        ("gc", "-q", "--prune=now"),
        ("stash", "-q", "-a"),
        pytest.param(("repack", "-adq"), marks=pytest.mark.slow),
        pytest.param(("add", "-f", ".envrc", ".vscode"), marks=pytest.mark.slow),
    ],
)
def test_the_first_checkout_of_a_file_in_a_later_turn_is_a_persons_though_its_objects_were_written_anew(agent, rewrite):
    """The branch was there before the agent, but no object shows its age any more."""
    agent.start()
    agent.finish()
    if rewrite[0] in {"stash", "add"}:
        agent.git("restore", "--source", "tooled", "--worktree", ".envrc", ".vscode")
    agent.git(*rewrite)
    agent.git("reset", "-q", "--hard")
    agent.house.stop()
    agent.house.start()
    agent.start_again()
    agent.git("checkout", "-q", "tooled")
    agent.wait_told("workspace:protected-again")
    assert agent.tries((".envrc", "x"), (".vscode/settings.json", "x")) == [READ_ONLY] * 2
    assert agent.git("status", "--porcelain", "--untracked-files=no") == ""
    agent.finish()
    assert agent.told("workspace:touched") == []


def plant(agent):
    """Commit a file as an agent may do it by git's plumbing, and have git hide when."""
    agent.git("checkout", "-q", "-b", "planted")
    (agent.work / ".envrc").write_text("evil\n")
    agent.git("add", "-f", ".envrc")
    agent.git("commit", "-q", "-m", "planted")
    agent.git("checkout", "-q", "main")
    agent.git("gc", "-q", "--prune=now")


def check_out_planted(agent):
    agent.git("checkout", "-q", "planted")
    agent.house.wait("agent", "failed")
    assert agent.attention["kind"] == "unsafe"
    wait_until(lambda: not (agent.work / ".envrc").exists(), "the file to be set aside")


def test_a_commit_of_an_earlier_turn_makes_no_file_a_persons(agent):
    agent.start()
    agent.finish()
    plant(agent)
    agent.start_again()
    check_out_planted(agent)


def test_a_commit_from_before_the_agent_may_be_one_of_another_that_may_write_there(agent):
    agent.house.ok("spawn", "other", "-w", agent.house.workspace("elsewhere"), "--bind", agent.work)
    plant(agent)
    agent.start()
    check_out_planted(agent)


def test_branches_that_are_checked_out_one_after_the_other_end_no_turn(agent):
    """The files go and come while they are judged, replaced and mounted."""
    agent.start()
    script = "for i in $(seq 30); do git checkout -q main && git checkout -q tooled || exit 1; done"
    subprocess.run(["sh", "-c", script], cwd=agent.work, env=agent.house.environment(), check=True)
    wait_until(lambda: agent.tries((".envrc", "x")) == [READ_ONLY], "the protection of the file")
    assert agent.git("status", "--porcelain", "--untracked-files=no") == ""
    agent.finish()
    assert agent.told("workspace:touched") == []


LOCKING = """
begin()
kept = open(".git/index.lock", "w")
mark("ready")
wait_for("never")
"""


def test_a_lock_file_that_an_agent_keeps_open_puts_nothing_off(house):
    work = prepare(house)
    house.start(agent=house.program(LOCKING))
    agent = Agent(house).start()
    (work / "new").mkdir()
    (work / "new/x").touch()
    (work / "new").rename(work / ".envrc")
    house.wait("agent", "failed")
    assert "waiting for git" not in house.log
    assert agent.attention["kind"] == "unsafe"
