"""A project as people have them, worked in from the spawn to the landing, without a network.

It has a submodule, a file of git-lfs, tracked rules, ignored dependencies that a set-up makes, and ten thousand tags; its
tests need these files.
"""

import json
import os

import pytest

from tests.support import git_lfs
from tests.system.test_clones import app, git
from tests.system.test_clones_submodules import nested

__all__ = ["app", "nested"]

TESTS = """\
import pathlib, subprocess, sys
sys.path[:0] = ["node_modules", "libs/json"]
import lib, pad
assert (lib.NAME, pad.NAME) == ("lib", "pad")
assert pathlib.Path("model.bin").read_bytes() == b"large"
changes = subprocess.run(["git", "status", "--porcelain"], capture_output=True).stdout
assert not changes, changes
print("tests pass")
"""
SET_UP = """mkdir node_modules; echo 'NAME = "pad"' > node_modules/pad.py"""


@pytest.fixture
def project(daemon, nested, monkeypatch):
    git_lfs.install(daemon.directory / "tools")
    monkeypatch.setenv("PATH", f"{daemon.directory}/tools:{os.environ['PATH']}")
    lib = nested / "libs" / "json"
    (lib / "lib.py").write_text('NAME = "lib"\n')
    git(daemon, lib, "add", "-A")
    git(daemon, lib, "commit", "-qm", "lib")
    for key, value in git_lfs.INSTALLED.items():
        git(daemon, nested, "config", key, value)
    rules = nested / ".cursor" / "rules"
    rules.mkdir(parents=True)
    files = {
        ".gitattributes": "*.bin filter=lfs -text\n", "model.bin": "large", "tests.py": TESTS,
        ".gitignore": "node_modules/\n__pycache__/\n", ".cursor/rules/style.mdc": "short\n",
        ".cursor/worktrees.json": json.dumps({"setup-worktree": [SET_UP]}),
    }  # fmt: skip
    for name, text in files.items():
        (nested / name).write_text(text)
    git(daemon, nested, "add", "-A")
    git(daemon, nested, "commit", "-qm", "the project")
    head = git(daemon, nested, "rev-parse", "HEAD")
    with (nested / ".git" / "packed-refs").open("a") as file:
        file.writelines(f"{head} refs/tags/v{number:05}\n" for number in range(10_000))
    return nested


def test_a_project_is_worked_in_from_the_spawn_to_the_landing(daemon, project):
    tools = daemon.directory / "tools"
    daemon.start(config=f'[agent]\npath = ["{tools}"]\n')
    work = "python3 -B tests.py && echo 'ADDED = 1' > added.py && git add added.py && git commit -qm added"
    daemon.spawn("fix", project, f"/shell {work}", "--clone", "--network", "none")
    assert daemon.shell("fix") == "tests pass\n"
    (project / ".cursor" / "rules" / "style.mdc").write_text("shorter\n")
    (project / "other.py").write_text("OTHER = 1\n")
    git(daemon, project, "add", "-A")
    git(daemon, project, "commit", "-qm", "main moves on")
    merge = "/shell git merge -q --no-edit workspace/main && python3 -B tests.py && git tag | wc -l"
    daemon.ok("send", "fix", "--wait", merge)
    assert daemon.shell("fix").split()[-3:] == ["tests", "pass", "10000"]
    done = daemon.ctl("merge", "fix", "--check", "python3 -B tests.py")
    assert done.code == 0, done
    assert (project / "added.py").read_text() == "ADDED = 1\n"
    assert (project / ".cursor" / "rules" / "style.mdc").read_text() == "shorter\n"
    assert git(daemon, project, "status", "--porcelain") == ""
    assert daemon.show("fix")["clone"]["landed"] is True
    assert "stays, because 1 ignored file is only there" in daemon.ctl("rm", "fix").out, "the set-up's"
