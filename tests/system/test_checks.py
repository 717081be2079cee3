"""`merge --check`: when a check may run, and in which room."""

import signal

import pytest

from sandbox import host
from tests.support.optional import present
from tests.support.waiting import wait_until
from tests.system.test_clone_setup import commit_setup
from tests.system.test_clones import app, commit, fingerprint, git
from tests.system.test_landing import HELD, held_check, me, merged

__all__ = ["app"]


@pytest.fixture
def old_bubblewrap(house):
    """A configuration whose bubblewrap says that it is older than `--overlay`, and refuses that."""
    script = house.directory / "old-bwrap"
    real = present(host.find_bubblewrap()).path
    script.write_text(
        "#!/bin/sh\n"
        "for word; do case $word in --version) echo bubblewrap 0.10.0; exit ;; --overlay*) exit 9 ;; esac; done\n"
        f'exec {real} "$@"\n'
    )
    script.chmod(0o755)
    return f'[sandbox]\nbwrap = "{script}"\n'


def ignoring(house, app):
    """Let a repository ignore `node_modules`."""
    me(house, app)
    (app / ".gitignore").write_text("node_modules\n")
    git(house, app, "add", "-A")
    git(house, app, "commit", "-qm", "ignore")


def test_a_check_runs_in_the_place_of_a_turn_and_its_agents_own_next_turn_waits_for_neither(house, app):
    house.start(config="[turns]\nmax_running = 1\n")
    house.spawn("fix", app, commit("a.txt"), "--clone")
    work = house.workspace()
    house.held("anna", work)
    queued = house.ctl("merge", "fix", "--check", HELD)
    assert "its check waits: 1 turn runs, as many as may at once (turns.max_running)" in queued.err, queued
    house.ok("send", "fix", "/say on")
    house.ok("spawn", "bob", "-w", work, "/say hello")
    (work / "go").touch()
    go = held_check(house, "fix")
    house.ok("spawn", "zoe", "-w", work, "/say hello")
    assert {place["agent"]: place["reason"] for place in house.ok("queue")} == {
        "bob": "place 1 in the queue: 1 check runs, as many as may at once (turns.max_running)",
        "zoe": "place 2 in the queue: 1 check runs, as many as may at once (turns.max_running)",
        "fix": "a check of fix's work runs",
    }
    go.touch()
    wait_until(lambda: {agent["state"] for agent in house.ok("ls")} == {"idle"}, "their turns")
    wait_until((app / "a.txt").exists, "the landing")


def test_a_check_is_ended_when_the_disk_is_nearly_full_and_leaves_nothing(house, app):
    house.start(config="")
    house.spawn("fix", app, commit("a.txt"), "--clone")
    waiting = house.follow("merge", "fix", "--check", HELD)
    held_check(house, "fix")
    house.config.write_text(f"[disk]\nfree = {1 << 60}\n")
    house.daemon.send_signal(signal.SIGHUP)
    _, said = waiting.communicate(timeout=60)
    assert b"the check of fix's work was ended: " in said
    assert b"MiB are free at" in said
    assert waiting.returncode == 1
    assert not (app / "a.txt").exists()
    assert house.events("fix", "clone:check-failed") == []
    assert wait_until(lambda: list((house.state / "trees").glob("check-*")) == [])


def test_without_an_overlay_ignored_files_are_copied_and_no_link_is_followed(house, app, old_bubblewrap, tmp_path):
    ignoring(house, app)
    house.start(config=old_bubblewrap)
    made = f"mkdir -p node_modules/d nested; echo tool > node_modules/d/tool; ln -s {tmp_path} node_modules/out"
    more = "mkfifo node_modules/fifo; git init -q nested; touch nested/x; echo wip >> README.md; touch untracked"
    house.spawn("fix", app, f"{commit('a.txt')}; {made}; ln -s {tmp_path} d; {more}", "--clone")
    tree = house.state / "trees" / house.show("fix")["id"]
    before = fingerprint(tree)
    check = "ls; ls node_modules; cat node_modules/d/tool README.md; readlink node_modules/out; git status --short"
    code, (outcome,) = merged(house, "fix", "--check", f"{check}; git log -1 --format=%s; exit 3")
    assert (code, outcome["check"]["output"].splitlines()) == (
        1,
        ["README.md", "a.txt", "node_modules", "sub", "d", "fifo", "out", "tool", "hello", str(tmp_path), "add a.txt"],
    )
    assert fingerprint(tree) == before
    house.ok("send", "fix", "--wait", "/shell truncate -s 3G node_modules/big")
    refused = house.ctl("merge", "fix", "--check", "ls; git log -1 --format=%s; exit 3")
    words = "they take more than 2048 MiB, and bubblewrap 0.10.0 has no --overlay, which came with 0.11 and needs no copy"
    assert f"(without ignored files: {words})" in refused.err
    assert [line.strip() for line in refused.err.splitlines()[1:]] == ["README.md", "a.txt", "sub", "add a.txt"]
    tree.rename(tmp_path / "away")
    code, (outcome,) = merged(house, "fix", "--check", "git status --short; test -f a.txt")
    assert (code, outcome["outcome"], outcome["check"]["state"]) == (0, "landed", "passed")
    assert outcome["check"]["text"].endswith("passes (without ignored files: the clone of fix is gone)")


def test_a_check_can_run_in_the_merged_files_alone_where_the_set_up_has_run_before(house, app):
    ignoring(house, app)
    (app / ".gitignore").write_text("node_modules\n.env\n")
    (app / ".env").write_text("mine")
    set_up = ["mkdir node_modules", "cat .env $ROOT_WORKTREE_PATH/.env > node_modules/made; echo $WORD; test ! -e bad.txt"]
    commit_setup(house, app, {"setup-worktree": set_up}, include=".env\n")
    house.start(config='[clone]\ncheck_room = "setup"\n')
    house.spawn("fix", app, f"{commit('a.txt')}; touch node_modules/agents", "--clone", "--env", "WORD=word")
    code, (outcome,) = merged(house, "fix", "--check", "ls; ls node_modules; cat node_modules/made; git status -s; exit 3")
    assert (code, outcome["check"]["output"].splitlines()) == (
        1, ["README.md", "a.txt", "node_modules", "sub", "made", "minemine"],
    )  # fmt: skip
    house.spawn("bad", app, commit("bad.txt"), "--clone", "--env", "WORD=word")
    refused = house.ctl("merge", "bad", "--check", "touch /never")
    text = "the check `touch /never` didn't run, because the set-up before it fails with 1: word"
    assert f"{text}, on bad's merged files; nothing was changed" in refused.err
    assert refused.err.splitlines()[-1].strip() == "word"
    assert house.show("bad")["turn"]["number"] == 1, "its agent isn't told"
