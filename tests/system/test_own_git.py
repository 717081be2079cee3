"""A person's own git, editor and disk beside agents: nothing breaks in the middle, and what is undone is told."""

import re
import subprocess

from tests.support.waiting import wait_until

READ_ONLY = "OSError Read-only file system"


def test_a_setting_that_runs_the_workspace_is_told_with_its_change_and_the_command_that_puts_it_back(agent):
    """As husky's set-up writes it; the agent may write what it names."""
    house = agent.house
    agent.start()
    agent.git("config", "core.hooksPath", ".husky/_")
    house.wait("agent", "failed")
    (told,) = agent.told("workspace:touched")
    assert "hooksPath = .husky/_" in told
    (command,) = re.findall("`(.*?)`", told)
    assert command in house.show("agent")["findings"][0]["text"]
    wait_until(lambda: "hooksPath" not in (agent.work / ".git/config").read_text(), "the copy that was kept")
    subprocess.run(["sh", "-c", command], check=True)
    assert agent.git("config", "core.hooksPath").strip() == ".husky/_"
    (agent.work / ".husky/_").mkdir(parents=True)
    house.ok("accept", "agent")
    (agent.work / "ready").unlink()
    house.ok("resume", "agent")
    wait_until((agent.work / "ready").exists, "the next turn")
    assert agent.tries((".husky/_/pre-commit", "x")) == [READ_ONLY]
    agent.finish()
    assert agent.git("config", "core.hooksPath").strip() == ".husky/_"
