"""`merge --check`: when a check may run, in which room, and the effects of its outcome."""

import json
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
def old_bubblewrap(daemon):
    """A configuration whose bubblewrap says that it is older than `--overlay`, and refuses that."""
    script = daemon.directory / "old-bwrap"
    real = present(host.find_bubblewrap()).path
    script.write_text(
        "#!/bin/sh\n"
        "for word; do case $word in --version) echo bubblewrap 0.10.0; exit ;; --overlay*) exit 9 ;; esac; done\n"
        f'exec {real} "$@"\n'
    )
    script.chmod(0o755)
    return f'[sandbox]\nbwrap = "{script}"\n'


def ignoring(daemon, app):
    """Let a repository ignore `node_modules`."""
    me(daemon, app)
    (app / ".gitignore").write_text("node_modules\n")
    git(daemon, app, "add", "-A")
    git(daemon, app, "commit", "-qm", "ignore")


def test_a_check_runs_in_the_place_of_a_turn_and_its_agents_own_next_turn_waits_for_neither(daemon, app):
    daemon.start(config="[turns]\nmax_running = 1\n")
    daemon.spawn("fix", app, commit("a.txt"), "--clone")
    work = daemon.workspace()
    daemon.held("anna", work)
    queued = daemon.ctl("merge", "fix", "--check", HELD)
    assert "its check waits: 1 turn runs, as many as may at once (turns.max_running)" in queued.err, queued
    daemon.ok("send", "fix", "/say on")
    daemon.ok("spawn", "bob", "-w", work, "/say hello")
    (work / "go").touch()
    go = held_check(daemon, "fix")
    daemon.ok("spawn", "zoe", "-w", work, "/say hello")
    assert {place["agent"]: place["reason"] for place in daemon.ok("queue")} == {
        "bob": "place 1 in the queue: 1 check runs, as many as may at once (turns.max_running)",
        "zoe": "place 2 in the queue: 1 check runs, as many as may at once (turns.max_running)",
        "fix": "a check of fix's work runs",
    }
    go.touch()
    wait_until(lambda: {agent["state"] for agent in daemon.ok("ls")} == {"idle"}, "their turns")
    wait_until((app / "a.txt").exists, "the landing")


def test_a_check_is_ended_when_the_disk_is_nearly_full_and_leaves_nothing(daemon, app):
    daemon.start(config="")
    daemon.spawn("fix", app, commit("a.txt"), "--clone")
    waiting = daemon.follow("merge", "fix", "--check", HELD)
    held_check(daemon, "fix")
    daemon.config.write_text(f"[disk]\nfree = {1 << 60}\n")
    daemon.process.send_signal(signal.SIGHUP)
    _, said = waiting.communicate(timeout=60)
    assert b"the check of fix's work was ended: " in said
    assert b"MiB are free at" in said
    assert waiting.returncode == 1
    assert not (app / "a.txt").exists()
    assert daemon.events("fix", "clone:check-failed") == []
    assert wait_until(lambda: list((daemon.state / "trees").glob("check-*")) == [])


def test_without_an_overlay_ignored_files_are_copied_and_no_link_is_followed(daemon, app, old_bubblewrap, tmp_path):
    ignoring(daemon, app)
    daemon.start(config=old_bubblewrap)
    made = f"mkdir -p node_modules/d nested; echo tool > node_modules/d/tool; ln -s {tmp_path} node_modules/out"
    more = "mkfifo node_modules/fifo; git init -q nested; touch nested/x; echo wip >> README.md; touch untracked"
    daemon.spawn("fix", app, f"{commit('a.txt')}; {made}; ln -s {tmp_path} d; {more}", "--clone")
    tree = daemon.state / "trees" / daemon.show("fix")["id"]
    before = fingerprint(tree)
    check = "ls; ls node_modules; cat node_modules/d/tool README.md; readlink node_modules/out; git status --short"
    code, (outcome,) = merged(daemon, "fix", "--check", f"{check}; git log -1 --format=%s; exit 3")
    assert (code, outcome["check"]["output"].splitlines()) == (
        1,
        ["README.md", "a.txt", "node_modules", "sub", "d", "fifo", "out", "tool", "hello", str(tmp_path), "add a.txt"],
    )
    assert fingerprint(tree) == before
    daemon.ok("send", "fix", "--wait", "/shell truncate -s 3G node_modules/big")
    refused = daemon.ctl("merge", "fix", "--check", "ls; git log -1 --format=%s; exit 3")
    words = "they take more than 2048 MiB, and bubblewrap 0.10.0 has no --overlay, which came with 0.11 and needs no copy"
    assert f"(without ignored files: {words})" in refused.err
    assert [line.strip() for line in refused.err.splitlines()[1:]] == ["README.md", "a.txt", "sub", "add a.txt"]
    tree.rename(tmp_path / "away")
    code, (outcome,) = merged(daemon, "fix", "--check", "git status --short; test -f a.txt")
    assert (code, outcome["outcome"], outcome["check"]["state"]) == (0, "landed", "passed")
    assert outcome["check"]["text"].endswith("passes (without ignored files: the clone of fix is gone)")


def test_a_check_can_run_in_the_merged_files_alone_where_the_set_up_has_run_before(daemon, app):
    ignoring(daemon, app)
    (app / ".gitignore").write_text("node_modules\n.env\n")
    (app / ".env").write_text("mine")
    set_up = ["mkdir node_modules", "cat .env $ROOT_WORKTREE_PATH/.env > node_modules/made; echo $WORD; test ! -e bad.txt"]
    commit_setup(daemon, app, {"setup-worktree": set_up}, include=".env\n")
    daemon.start(config='[clone]\ncheck_room = "setup"\n')
    daemon.spawn("fix", app, f"{commit('a.txt')}; touch node_modules/agents", "--clone", "--env", "WORD=word")
    code, (outcome,) = merged(daemon, "fix", "--check", "ls; ls node_modules; cat node_modules/made; git status -s; exit 3")
    assert (code, outcome["check"]["output"].splitlines()) == (
        1, ["README.md", "a.txt", "node_modules", "sub", "made", "minemine"],
    )  # fmt: skip
    daemon.spawn("bad", app, commit("bad.txt"), "--clone", "--env", "WORD=word")
    refused = daemon.ctl("merge", "bad", "--check", "touch /never")
    text = "the check `touch /never` didn't run, because the set-up before it fails with 1: word"
    assert f"{text}, on bad's merged files; nothing was changed" in refused.err
    assert refused.err.splitlines()[-1].strip() == "word"
    assert daemon.show("bad")["turn"]["number"] == 1, "its agent isn't told"


def test_a_check_decides_on_the_merged_files_and_an_interrupted_command_leaves_the_queue_as_it_is(daemon, app):
    me(daemon, app)
    daemon.start()
    for name in ("one", "two"):
        daemon.spawn(name, app, commit(f"{name}.txt"), "--clone")
    missing = daemon.ctl("merge", "one", "--check", "no-such-program")
    words = "can't be run where checks run (127): /bin/sh: 1: no-such-program: not found, on"
    assert (missing.code, words in missing.error) == (1, True), missing
    assert daemon.show("one")["attention"]["text"] == "check failed: /bin/sh: 1: no-such-program: not found"
    check = "cat one.txt sub/part.txt; ls ~; seq 100 >&2; printf 'not \\033good'; exit 3"
    failed = daemon.ctl("merge", "one", "--check", check)
    said = failed.err.splitlines()
    assert failed.code == 1
    assert said[0].endswith(
        "fails with 3: not ?good, on one's merged files; nothing was changed; one was told, and is to mend it"
    )
    assert said[1:] == [*(f"  {number}" for number in range(42, 101)), "  not ?good"]
    wait_until(lambda: daemon.show("one")["turn"]["number"] == 2, "the agent's turn about the check")
    daemon.wait("one")
    assert "not ?good" in daemon.ctl("transcript", "one").out
    assert daemon.show("one")["attention"]["text"] == "check failed: not ?good"
    code, (outcome,) = merged(daemon, "one", "--check", "echo bad; exit 4")
    assert (code, outcome["outcome"], outcome["check"]["state"], outcome["check"]["output"]) == (
        1,
        "refused",
        "failed",
        "bad",
    )
    assert daemon.show("one")["turn"]["number"] == 2, "it is told once"
    assert [event["data"]["output"] for event in daemon.events("one", "clone:check-failed")][1:] == [
        "\n".join([*map(str, range(42, 101)), "not ?good"]), "bad",
    ]  # fmt: skip
    assert "one.txt" not in [path.name for path in app.iterdir()]
    check = f"test -f one.txt && test -f sub/part.txt && ! test -e /root/.ssh && {HELD}"
    waiting = daemon.follow("merge", "one", "two", "--check", check, "--json")
    go = held_check(daemon, "one")
    waiting.send_signal(signal.SIGINT)
    out, said = waiting.communicate(timeout=60)
    assert ([one["outcome"] for one in json.loads(out)], waiting.returncode) == (["queued"] * 2, 130), said
    assert b"one: its landing in main is still to come" in said
    go.touch()
    wait_until((app / "one.txt").exists, "the first landing")
    held_check(daemon, "two").touch()
    wait_until((app / "two.txt").exists, "the second landing")


def test_a_check_runs_in_a_room_like_the_agents(daemon, app):
    """The person's own example is `npm test` in a project whose `node_modules` git ignores."""
    me(daemon, app)
    (app / ".gitignore").write_text("node_modules\nout\n")
    (app / "gone").write_text("old\n")
    git(daemon, app, "add", "-A")
    git(daemon, app, "commit", "-qm", "ignore")
    daemon.start()
    make = "mkdir -p node_modules/.bin nested; printf '#!/bin/sh\\necho tool $WORD' > node_modules/.bin/tool"
    commits = "chmod +x node_modules/.bin/*; git rm -q gone; echo a > a.txt; git add a.txt; git commit -qm a"
    work = f"{make}; {commits}; echo wip >> a.txt; echo x > untracked; git init -q nested"
    daemon.spawn("fix", app, f"/shell {work}", "--clone", "--env", "WORD=it's mine")
    (app / "mine.txt").write_text("mine")
    git(daemon, app, "add", "-A")
    git(daemon, app, "commit", "-qm", "mine")
    shown = "node_modules/.bin/tool; ls; cat a.txt; git status --short; git log -1 --format=%s; pwd"
    check = f"{shown}; touch out node_modules/new; ls ~ | wc -l"
    tree = daemon.state / "trees" / daemon.show("fix")["id"]
    before = fingerprint(tree)
    code, (outcome,) = merged(daemon, "fix", "--check", f"{check}; exit 7")
    assert (code, outcome["check"]["output"].splitlines()) == (
        1,
        ["tool it's mine", "README.md", "a.txt", "mine.txt", "node_modules", "sub", "a",
         "Merge substrat/fix", str(app), "0"],
    )  # fmt: skip
    assert fingerprint(tree) == before
    daemon.wait("fix")  # which was told, and a check waits for its turn
    code, (outcome,) = merged(daemon, "fix", "--check", "true")
    assert (code, outcome["outcome"], outcome["check"]["state"]) == (0, "landed", "passed")
    assert wait_until(lambda: list((daemon.state / "trees").glob("check-*")) == [])


def test_a_check_sees_nothing_of_the_daemons_own_directories(daemon, app):
    daemon.start(config=f"[agent]\nbind_ro = [{json.dumps(str(daemon.state))}]\n")
    daemon.spawn("fix", app, commit("new.txt"), "--clone")
    code, (outcome,) = merged(daemon, "fix", "--check", f"ls -a {daemon.state}; exit 3")
    assert (code, outcome["check"]["output"].split()) == (1, [".", ".."])


def test_the_last_lines_of_a_check_whose_time_is_up_are_kept_and_told_to_the_person_alone(daemon, app):
    daemon.start(config="[clone]\ncheck_seconds = 3.0\n")
    daemon.spawn("fix", app, commit("a.txt"), "--clone")
    refused = daemon.ctl("merge", "fix", "--check", "echo 12 of 90; echo hangs >&2; exec sleep 600")
    text = "the check `echo 12 of 90; echo hangs >&2; exec sleep 600` took longer than `clone.check_seconds`, 3 s"
    assert refused.err.splitlines() == [
        f"substratctl: {text}, on fix's merged files; nothing was changed", "  12 of 90", "  hangs",
    ], refused  # fmt: skip
    assert [event["data"]["output"] for event in daemon.events("fix", "clone:check-failed")] == ["12 of 90\nhangs"]
    assert daemon.show("fix")["attention"]["text"] == f"check failed: {text}"
    assert daemon.show("fix")["turn"]["number"] == 1


def test_a_check_waits_for_its_agents_turn_which_waits_for_the_check(daemon, app):
    daemon.start()
    daemon.spawn("fix", app, commit("a.txt"), "--clone")
    daemon.ok("send", "fix", "/hang")
    daemon.wait("fix", "running")
    code, (outcome,) = merged(daemon, "fix", "--check", HELD)
    assert (code, outcome["outcome"]) == (1, "queued")
    assert (
        "fix works in its clone: its check begins when that turn ends; `substratctl suspend fix`"
        in daemon.ctl("merge", "fix", "--check", HELD).err
    )
    daemon.ok("suspend", "fix")
    go = held_check(daemon, "fix")
    daemon.ok("resume", "fix", "--prompt", "/say on")
    assert daemon.show("fix")["attention"]["text"] == "a check of fix's work runs"
    go.touch()
    wait_until(lambda: daemon.events("fix", "clone:landed"), "the landing")
    wait_until(lambda: daemon.show("fix")["state"] == "idle", "the turn")
