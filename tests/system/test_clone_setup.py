"""The set-up of private clones: files that git ignores, and commands, both named by the commit that a clone starts at."""

import json
import os
import signal

import pytest

from tests.support.processes import arguments_of, processes
from tests.support.waiting import wait_until
from tests.system.test_clones import git
from tests.system.test_landing import me

READ = "cat $ROOT_WORKTREE_PATH/.env > made; echo $PWD"


def commit_setup(daemon, work, commands, include=None, **scripts):
    """Commit how clones of a repository are set up."""
    (work / ".cursor").mkdir(exist_ok=True)
    (work / ".cursor" / "worktrees.json").write_text(json.dumps(commands))
    for name, text in scripts.items():
        (work / ".cursor" / f"{name}.sh").write_text(text)
    if include is not None:
        (work / ".worktreeinclude").write_text(include)
    git(daemon, work, "add", "-A")
    git(daemon, work, "commit", "-qm", "a set-up")


@pytest.fixture
def app(daemon):
    work = daemon.workspace("app", git=True)
    (work / ".gitignore").write_text(".env*\nsecret/\n*.key\n")
    git(daemon, work, "add", "-A")
    git(daemon, work, "commit", "-qm", "ignore")
    return work


def kinds(daemon, name):
    return [event["kind"] for event in daemon.events(name)]


def test_ignored_files_come_along_and_commands_run_before_the_first_turn(daemon, app):
    commit_setup(
        daemon, app,
        {"setup-worktree": ["false"], "setup-worktree-unix": [READ, "ls -A $ROOT_WORKTREE_PATH"]},
        "/.env\nsecret/\nREADME.md\nlink.key\npipe.key\nnew.txt\n",
    )  # fmt: skip
    (app / ".env").write_text("TOKEN=1\n")
    (app / ".env.local").write_text("not named\n")
    (app / "secret").mkdir()
    (app / "secret" / "a b\n.pem").write_text("pem\n")
    (app / "link.key").symlink_to("/etc/passwd")
    os.mkfifo(app / "pipe.key")
    (app / "new.txt").write_text("named, but git doesn't ignore it\n")
    daemon.start()
    daemon.spawn("fix", app, "/shell cat made .env; ls -A; touch $PWD/.env; ls /run/substrat/root-worktree", "--clone")
    said = daemon.shell("fix").splitlines()
    assert said[:2] == ["TOKEN=1", "TOKEN=1"]
    assert {"secret", ".env"} <= set(said)
    assert not {".env.local", "link.key", "pipe.key", "new.txt"} & set(said)
    log = daemon.ctl("logs", "fix", "--setup").out
    assert f"\n{app}\n$ ls -A" in log
    assert set(log.split("$ ls -A $ROOT_WORKTREE_PATH\n")[1].split()) == {".env", "secret"}
    event = next(event for event in daemon.events("fix") if event["kind"] == "clone:setup")
    assert event["turn"] is None
    assert event["text"].startswith("its clone is set up: 2 ignored files copied; 2 commands run; left out")
    assert "link.key" in event["text"]
    assert kinds(daemon, "fix").index("clone:setup") < kinds(daemon, "fix").index("turn:started")
    assert git(daemon, app, "status", "--short") == "?? new.txt"


def test_a_script_of_the_commit_is_run_and_changes_that_are_not_committed_do_not_count(daemon, app):
    script = "#!/bin/sh\ntouch $ROOT_WORKTREE_PATH/x; echo committed > made\n"
    commit_setup(daemon, app, {"setup-worktree": "prepare.sh"}, prepare=script)
    (app / ".cursor" / "prepare.sh").write_text("echo changed > made\n")
    (app / ".cursor" / "worktrees.json").write_text('{"setup-worktree": ["echo changed > made"]}')
    (app / ".worktreeinclude").write_text(".env\n")
    (app / ".env").write_text("TOKEN=1\n")
    daemon.start()
    daemon.spawn("fix", app, "/shell cat made; ls -A", "--clone", "--wip")
    said = daemon.shell("fix").splitlines()
    assert said[0] == "committed"
    assert ".env" not in said
    assert "Read-only" in daemon.ctl("logs", "fix", "--setup").out


FAILING = (
    ('{"setup-worktree": ["echo out; echo no such package >&2; exit 3", "true"]}', "status 3 (no such package)"),
    ("{", "is no JSON"),
    ('{"setup-worktree": "nothing.sh"}', "names .cursor/nothing.sh, which is no file"),
    ('{"setup-worktree": "../../../etc/passwd"}', "is no file of the commit"),
    ('{"setup-worktree": ["sleep 1000"]}', "took longer than `clone.setup_seconds`, 1 s"),
)


def test_a_set_up_that_fails_fails_the_agent_until_it_is_resumed(daemon, app):
    commit_setup(daemon, app, {})
    daemon.start(config="[clone]\nsetup_seconds = 1\n")
    for number, (settings, sentence) in enumerate(FAILING):
        (app / ".cursor" / "worktrees.json").write_text(settings)
        git(daemon, app, "commit", "-qam", "worse")
        name = f"agent-{number}"
        failed = daemon.ctl("spawn", name, "-w", app, "--clone", "--wait", "/say hi")
        assert failed.code == 5, settings
        assert sentence in failed.err
        assert daemon.show(name)["state"] == "failed", settings
        event = next(event for event in daemon.events(name) if event["kind"] == "clone:setup-failed")
        assert (event["turn"], sentence in event["text"]) == (None, True), event
    for number in range(len(FAILING)):
        daemon.ok("resume", f"agent-{number}")
    failures = lambda number: kinds(daemon, f"agent-{number}").count("clone:setup-failed")  # noqa: E731 - it is short
    wait_until(lambda: [*map(failures, range(len(FAILING)))] == [2] * len(FAILING), "each one's second failure")
    # A set-up with too much to copy fails too.
    commit_setup(daemon, app, {}, "secret/\n")
    (app / "secret").mkdir()
    for number in range(2001):
        (app / "secret" / str(number)).touch()
    failed = daemon.ctl("spawn", "fix", "-w", app, "--clone", "--wait", "/say hi")
    assert ".worktreeinclude names more than 2000 files" in failed.err
    refused = daemon.ctl("restore", "fix", "--turn", "1")
    assert (refused.code, "fix couldn't be made or set up: `substratctl resume fix`" in refused.error) == (1, True), refused


def test_a_set_up_that_prints_much_keeps_its_beginning_and_its_end(daemon, app):
    commit_setup(daemon, app, {"setup-worktree": ["echo first; seq 400000; echo last"]})
    daemon.start()
    daemon.spawn("fix", app, "/say hi", "--clone")
    text = daemon.ctl("logs", "fix", "--setup").out
    assert text.startswith("$ echo first")
    assert text.endswith("\nlast\n")
    assert "bytes are left out here" in text
    assert len(text) < 600_000


def sleepers(mark):
    """The processes that sleep; bubblewrap, whose arguments name the command too, may be no further than its start."""
    return [pid for pid in processes() if arguments_of(pid) == ["sleep", mark, ""]]


def test_the_set_up_ends_with_the_daemon_and_the_next_one_repeats_it(daemon, app):
    mark = f"2001{os.getpid()}"
    commit_setup(daemon, app, {"setup-worktree": [f"test -e done || sleep {mark}", "echo ok >> done"]})
    daemon.start()
    daemon.ok("spawn", "fix", "-w", app, "--clone", "/shell cat done")
    wait_until(lambda: sleepers(mark), "the set-up runs")
    agent = daemon.show("fix")
    assert (agent["state"], "set-up of its clone" in agent["reason"]) == ("queued", True), agent
    daemon.process.send_signal(signal.SIGKILL)
    wait_until(lambda: daemon.process.poll() is not None, "the daemon is dead")
    wait_until(lambda: not sleepers(mark), "the set-up is dead")
    tree = next(path for path in (daemon.state / "trees").iterdir() if path.is_dir() and "." not in path.name)
    (tree / "done").touch()
    daemon.start()
    daemon.ok("wait", "fix")
    assert daemon.shell("fix") == "ok\n"


def test_ending_an_agent_ends_its_set_up(daemon, app):
    mark = f"2002{os.getpid()}"
    commit_setup(daemon, app, {"setup-worktree": [f"sleep {mark}"]})
    daemon.start()
    daemon.ok("spawn", "fix", "-w", app, "--clone")
    wait_until(lambda: sleepers(mark), "the set-up runs")
    daemon.ok("end", "fix")
    wait_until(lambda: not sleepers(mark), "the set-up is dead")
    assert daemon.show("fix")["state"] == "ended"


def test_a_commit_that_you_amend_meanwhile_stays_the_one_that_sets_its_clone_up(daemon, app):
    me(daemon, app)
    settings = app / ".cursor" / "worktrees.json"
    settings.parent.mkdir()
    settings.write_text('{"setup-worktree": ["mkdir node_modules"]}')
    (app / ".gitignore").write_text("node_modules\n")
    daemon.git(app, "add", "-A")
    daemon.git(app, "commit", "-qm", "set up")
    daemon.start(config='[clone]\ncheck_room = "setup"\n')
    daemon.spawn("fix", app, "/shell echo a > a; git add a; git commit -qm a", "--clone")
    daemon.git(app, "commit", "-q", "--amend", "-m", "amended")
    landed = daemon.ctl("merge", "fix", "--check", "ls node_modules")
    assert landed.code == 0, landed


def test_uncommitted_files_of_a_repository_without_commits_go_along(daemon):
    work = daemon.directory / "fresh"
    work.mkdir()
    daemon.git(work, "init", "-q", "-b", "main")
    (work / "f").write_text("x\n")
    daemon.start()
    daemon.ok("spawn", "fix", "-w", work, "--clone", "--wip", "--wait", "/shell cat f")
    assert daemon.shell("fix") == "x\n"
