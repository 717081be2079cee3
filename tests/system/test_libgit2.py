"""Programs made with libgit2 (cargo, editors) find a workspace's repositories while an agent works there."""

import json
import subprocess
import sys

import pytest

WAITING = """
begin()
mark("ready")
wait_for("go")
finish()
"""

# The nearest repository above each directory, as libgit2 finds it, and what it says of it.
LOOK = """
import os, sys, pygit2
for place in sys.argv[1:]:
    found = pygit2.Repository(pygit2.discover_repository(place))
    found.config["user.name"]
    print(os.path.relpath(found.path), found.head.shorthand, sorted(found.references))
"""


@pytest.fixture
def repositories(daemon):
    """A workspace with a nested repository, a submodule and a bare repository; the program that looks at each."""
    work = daemon.workspace(git=True)
    daemon.git(
        work, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", daemon.workspace("other", git=True), "sub"
    )
    daemon.git(work, "commit", "-q", "-m", "with a submodule")
    daemon.git(work, "clone", "-q", ".", "nested")
    daemon.git(work, "clone", "-q", "--bare", ".", "bare.git")
    for place in (work, work / "sub", work / "nested", work / "bare.git"):
        daemon.git(place, "config", "user.name", "Somebody")
    return work, (sys.executable, "-c", LOOK, ".", "sub", "nested", "bare.git")


def test_libgit2_finds_each_repository_during_a_turn(daemon, until, repositories):
    work, look = repositories
    wanted = subprocess.run(look, cwd=work, check=True, capture_output=True, text=True).stdout
    assert [line.split()[0] for line in wanted.splitlines()] == [".git", ".git/modules/sub", "nested/.git", "bare.git"]
    config = f"[agent]\nbind_ro = {json.dumps(sorted({sys.prefix, sys.base_prefix}))}\n"
    daemon.start(agent=daemon.program(WAITING), config=config)
    daemon.ok("spawn", "anna", "-w", work, "go")
    until((work / "ready").exists, "the turn")
    # A control: the stand-ins are there.
    assert (work / ".git" / "commondir").read_text() == "./\n"
    outside = subprocess.run(look, cwd=work, check=True, capture_output=True, text=True).stdout
    inside = daemon.ctl("exec", "anna", "--", *look).out
    assert inside == outside == wanted
    (work / "go").touch()
    assert daemon.wait("anna", "idle")["turn"]["outcome"] == "success"
    assert not (work / ".git" / "commondir").exists()


def test_a_stand_in_of_an_earlier_version_is_removed(daemon, until):
    work = daemon.workspace(git=True)
    daemon.start(agent=daemon.program(WAITING))
    daemon.ok("spawn", "anna", "-w", work, "go")
    until((work / "ready").exists, "the turn")
    (work / ".git" / "commondir").write_text(".\n")
    (work / "go").touch()
    daemon.wait("anna", "idle")
    assert not (work / ".git" / "commondir").exists()
