"""Ways around the protection that don't touch a protected file: by hiding it, moving it, or leading git elsewhere."""

import os
import shlex
import subprocess

from tests.support.waiting import wait_until
from tests.system.obedient import OBEDIENT, Agent

READ_ONLY = "OSError Read-only file system"


def evil(daemon):
    """Return lines for git's configuration by which it makes a file, and the file."""
    stolen = daemon.directory / "stolen"
    return f"\n[core]\n\tfsmonitor = touch {stolen}; false\n", stolen


def test_the_names_of_a_bare_repository_hide_nothing_beside_or_below_them(daemon):
    work = daemon.workspace("work", git=True)
    for path in ("a/.envrc", "a/objects/b/.envrc"):
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text("export A=1\n")
    daemon.start()
    daemon.spawn("agent", work, "/shell mkdir -p objects refs a/refs; touch HEAD a/HEAD")
    before = (work / ".git/config").read_text()
    files = (".git/config", "a/.envrc", "a/objects/b/.envrc")
    daemon.ok("send", "agent", f"/shell for f in {' '.join(files)}; do echo '[x]' >> $f; done; true", "--wait")
    assert (work / ".git/config").read_text() == before
    assert (work / "a/.envrc").read_text() == (work / "a/objects/b/.envrc").read_text() == "export A=1\n"


def test_a_workspace_with_too_many_protected_names_is_told_and_refused_once(daemon):
    work = daemon.workspace()
    daemon.start()
    daemon.spawn("agent", work, "/shell for i in $(seq 12000); do : > x$i.code-workspace; done")
    assert (
        "has 12000 files like 'x1.code-workspace', which programs on your host obey"
        in daemon.show("agent")["findings"][0]["text"]
    )
    daemon.ctl("send", "agent", "/say more", "--wait")
    shown = daemon.show("agent")
    assert (shown["state"], shown["turn"]["number"], shown["turn"]["outcome"]) == ("failed", 2, "error")
    assert "at most 200 can be protected: move those that aren't yours elsewhere" in shown["turn"]["error"]


def test_remotes_that_the_configuration_does_not_name_cannot_be_made(daemon):
    """`git push` goes where `.git/remotes/origin` says if no remote is configured, and a repository there has hooks."""
    work = daemon.workspace("work", git=True)
    daemon.start()
    daemon.spawn("agent", work, "/shell for d in remotes branches; do echo 'URL: /x' > .git/$d/origin; done; true")
    assert not (work / ".git/remotes").exists()
    assert list(work.glob(".git/branches/*")) == []


def test_a_submodule_of_a_linked_worktree_is_protected(daemon):
    main, library = daemon.workspace("main", git=True), daemon.workspace("library", git=True)
    work = daemon.directory / "work"
    allowed = ("-c", "protocol.file.allow=always", "submodule")
    daemon.git(main, *allowed, "--quiet", "add", library, "sub")
    daemon.git(main, "commit", "-q", "-m", "sub")
    daemon.git(main, "worktree", "add", "-q", work)
    daemon.git(work, *allowed, "--quiet", "update", "--init")
    own = daemon.git(work / "sub", "rev-parse", "--absolute-git-dir").strip()
    daemon.start(agent=daemon.program(OBEDIENT))
    agent = Agent(daemon).start()
    settings, stolen = evil(daemon)
    assert agent.tries((f"{own}/config", settings), (f"{own}/hooks/x", "x")) == [READ_ONLY] * 2
    assert agent.tries((f"{own}/description", "x")) == ["written"], "a control"
    assert agent.told("workspace:unprotected") == []
    daemon.git(work, "status")
    assert not stolen.exists()


def test_a_repository_that_lies_in_the_agents_own_directories_is_told_at_each_turn(daemon):
    work = daemon.workspace("work", git=True)
    daemon.start()
    daemon.spawn("agent", work, "/say hello")
    (cache,) = daemon.directory.glob("state/agents/*/cache")
    script = f"git init -q ~/.cache/own && mkdir sub && echo gitdir: {shlex.quote(f'{cache}/own/.git')} > sub/.git"
    daemon.ok("send", "agent", f"/shell {script}", "--wait")
    daemon.ok("accept", "agent")
    daemon.ok("send", "agent", "/say more", "--wait")
    shown = daemon.show("agent")
    assert shown["attention"]["kind"] == "unsafe"
    assert (
        f"git is led to where the agent can change everything, its configuration included: {work}/sub/.git"
        in (shown["findings"][0]["text"])
    )


def test_a_workspace_that_is_renamed_while_its_files_are_replaced_is_frozen_and_protected(agent):
    daemon, work, moved = agent.daemon, agent.work, agent.daemon.directory / "moved"
    agent.start()
    os.rename(work, moved)
    daemon.git(moved, "config", "user.name", "Somebody")
    wait_until(lambda: agent.attention["kind"] == "unsafe", "the attention")
    daemon.ok("resume", "agent")
    os.rename(moved, work)
    assert agent.tries((".git/config", "x")) == [READ_ONLY]


def test_a_directory_that_is_renamed_and_put_back_stays_protected(agent):
    agent.start()
    for name in (".git", "."):
        path = os.path.normpath(agent.work / name)
        os.rename(path, f"{path}-2")
        os.rename(f"{path}-2", path)
    agent.git("config", "user.name", "Somebody")
    agent.wait_told("agent:frozen")
    agent.daemon.ok("resume", "agent")
    assert agent.tries((".git/config", "x"), (".git/commondir", "x"), (".git/hooks/x", "x")) == [READ_ONLY] * 3


def test_sandboxes_that_start_while_files_are_replaced_hold_no_look_up(agent):
    """One that was stopped in memory before it was set up was waited for without an end."""
    daemon = agent.daemon
    agent.start()
    script = "while [ ! -e ../enough ]; do cp .git/config ../new; mv ../new .git/config; sleep 0.08; done"
    person = subprocess.Popen(["sh", "-c", script], cwd=agent.work, env=daemon.environment())
    try:
        # Where its files are replaced just then, a command's sandbox can't be made, and says so.
        codes = {daemon.ctl("exec", "agent", "--", "true").code for _ in range(8)}
    finally:
        (daemon.directory / "enough").touch()
        person.wait()
    assert codes <= {0, 1}
    assert wait_until(lambda: agent.tries((".git/config", "x")), "an answer") == [READ_ONLY]
    assert daemon.show("agent")["state"] == "running"
