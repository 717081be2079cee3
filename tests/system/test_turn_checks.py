"""`spawn --check`: a command decides whether an agent's work is done."""

import json

from tests.support.daemon import PRELUDE
from tests.support.waiting import wait_until
from tests.system.test_clones import app, commit, git
from tests.system.test_landing import HELD, held_check, me
from tests.system.test_waits import spawn

__all__ = ["app"]

# Writes one line more into `lines` in each turn, and leaves its prompts in `~/.cache`; a third turn commits.
DILIGENT = (
    PRELUDE
    + """\
begin()
lines = pathlib.Path("lines")
lines.write_text((lines.read_text() if lines.exists() else "") + "line\\n")
prompts = pathlib.Path.home() / ".cache/prompts"
prompts.mkdir(parents=True, exist_ok=True)
(prompts / str(len(os.listdir(prompts)))).write_text(prompt)
if len(lines.read_text().split()) == 3 and os.path.exists(".git"):
    subprocess.run(["git", "add", "lines"], check=True)
    subprocess.run(["git", "commit", "-qm", "three lines"], check=True)
finish("I am done.")
"""
)
THREE = 'echo "$(wc -l < lines) lines"; test "$(wc -l < lines)" -ge 3'


def prompts(daemon, agent):
    place = daemon.state / "agents" / agent["id"] / "cache" / "prompts"
    return [path.read_text() for path in sorted(place.iterdir())]


def kinds(daemon, name):
    return [event["kind"] for event in daemon.events(name) if event["kind"].startswith("check:")]


def test_an_agent_in_a_clone_is_sent_back_until_its_check_passes_on_the_tree_that_it_leaves(daemon, app):
    daemon.start(agent=daemon.program(DILIGENT))
    fix = daemon.spawn("fix", app, "Make three lines.", "--clone", "--check", THREE)
    assert (fix["state"], fix["turn"]["number"], fix["turn"]["result"]) == ("idle", 3, "I am done.")
    head = git(daemon, app, "rev-parse", "refs/substrat/fix/head")
    assert fix["check"] == {
        "command": THREE, "retries": 2, "state": "passed", "tries": 2, "commit": head,
        "text": f"the check `{THREE}` passes", "turn": 3,
    }  # fmt: skip
    assert fix["clone"]["work"]["text"] == f"+1 commit, {head[:7]} · not landed · checked {head[:7]}"
    assert fix["clone"]["work"]["checked"] == head
    first, second, third = prompts(daemon, fix)
    assert first == "Make three lines."
    assert f"your work isn't done: the check `{THREE}` fails with 1: 1 lines." in second
    assert "\n\n1 lines\n\n" in second
    assert "if it fails, 1 more try is left." in second
    assert "if it fails, your work has failed." in third
    assert kinds(daemon, "fix") == ["check:started", "check:failed"] * 2 + ["check:started", "check:passed"]
    assert not (app / "lines").exists()
    assert wait_until(lambda: list((daemon.state / "trees").glob("check-*")) == [])


def test_a_check_that_runs_again_says_which_files_it_has_passed_on(daemon, app):
    """Those that a person has made in the clone meanwhile are no part of the commit that failed, and land checked anew."""
    me(daemon, app)
    daemon.start()
    check = "test -e mended.txt"
    daemon.spawn("fix", app, commit("a.txt"), "--clone", "--check", check, "--retries", "0")
    assert daemon.ctl("exec", "fix", "touch", "mended.txt").code == 0
    assert daemon.ctl("resume", "fix", "--wait").code == 0
    fix = daemon.show("fix")
    assert (fix["check"]["state"], fix["clone"]["work"]["checked"]) == ("passed", None)
    assert fix["clone"]["work"]["text"].endswith("not landed · checked with 1 uncommitted")
    refused = daemon.ctl("merge", "fix")
    assert (refused.code, f"the check `{check}` fails with 1" in refused.err) == (1, True), refused


def test_what_git_was_told_not_to_look_at_is_no_part_of_what_has_passed(daemon, app):
    me(daemon, app)
    daemon.start()
    hide = f"{commit('bad.txt')}; git update-index --skip-worktree bad.txt; rm bad.txt"
    fix = daemon.spawn("fix", app, hide, "--clone", "--check", "test ! -e bad.txt")
    assert (fix["check"]["state"], fix["check"]["commit"], fix["clone"]["work"]["checked"]) == ("passed", None, None)
    assert daemon.ctl("merge", "fix").code == 1
    assert not (app / "bad.txt").exists()


def test_a_check_in_a_linked_worktree_has_its_repository(daemon, app):
    daemon.start()
    daemon.git(app, "worktree", "add", "-q", daemon.directory / "linked")
    found = daemon.spawn("fix", daemon.directory / "linked", "/say done", "--check", "git log -1 --format=%s")["check"]
    assert found["state"] == "passed", found["text"]


def test_a_mistyped_check_is_mended_or_taken_away_and_much_output_is_cut(daemon):
    daemon.start()
    work = daemon.workspace()
    fix = daemon.spawn("fix", work, "/say done", "--check", "no-such-program")
    assert fix["check"]["state"] == "failed"
    daemon.ok("suspend", "fix")
    daemon.ok("set", "fix", "check=head -c 50000000 /dev/zero | tr '\\0' 'x'; echo; echo the end; exit 255", "retries=0")
    refused = daemon.ctl("resume", "fix", "--wait")
    assert (refused.code, "fails with 255: the end" in refused.err) == (5, True), refused
    daemon.ok("set", "fix", "check=true")
    assert daemon.ctl("resume", "fix", "--wait").code == 0
    daemon.ok("set", "fix", "check=false")
    assert daemon.ctl("send", "fix", "--wait", "/say more").code == 5
    daemon.ok("set", "fix", "check=")
    assert daemon.ctl("resume", "fix").code == 0
    assert (daemon.show("fix")["state"], daemon.show("fix")["check"]) == ("idle", None)
    assert daemon.ctl("wait", "fix").code == 0


def test_an_agent_in_place_is_judged_on_a_copy_and_fails_after_its_last_try(daemon):
    daemon.start(agent=daemon.program(DILIGENT))
    work = daemon.workspace()
    never = "touch made-by-the-check; cat lines; echo never; exit 3"
    done = daemon.ctl("spawn", "fix", "-w", work, "--check", never, "--retries", "1", "--wait", "Make it pass.")
    assert (done.code, done.out) == (5, "")
    assert f"the work of fix isn't done: the check `{never}` fails with 3: never" in done.err
    assert not (work / "made-by-the-check").exists()
    fix = daemon.show("fix")
    assert (fix["state"], fix["check"]["state"], fix["check"]["tries"]) == ("failed", "failed", 2)
    assert (fix["attention"]["kind"], fix["attention"]["text"]) == ("failed", fix["check"]["text"])
    assert daemon.ctl("wait", "fix").code == 5
    assert f"check the check `{never}` fails with 3: never" in " ".join(daemon.ctl("show", "fix").out.split())
    refused = daemon.ctl("set", "fix", "retries=-1")
    assert (refused.code, "'retries' must be an integer from 0 to 100" in refused.err) == (2, True), refused
    # Whoever has mended what it failed for has it run again; without retries one failure is enough.
    daemon.ok("set", "fix", "retries=0")
    again = daemon.ctl("resume", "fix", "--wait")
    assert (again.code, "isn't done: the check" in again.err) == (5, True), again
    assert daemon.show("fix")["turn"]["number"] == 2
    daemon.ok("set", "fix", "check=no-such-program", "retries=2")
    refused = daemon.ctl("send", "fix", "--wait", "Once more.")
    assert (refused.code, "can't be run where checks run (127)" in refused.err) == (5, True), refused
    assert daemon.show("fix")["turn"]["number"] == 3


def test_a_check_outlives_two_daemons_and_is_interrupted_suspended_and_ended_with_its_agent(daemon, app):
    daemon.start(agent=daemon.program(DILIGENT))
    daemon.ok("spawn", "fix", "-w", app, "--clone", "--check", HELD, "Go.")
    for _ in range(2):
        go = held_check(daemon, "fix")
        daemon.kill()
        daemon.start()
    held_check(daemon, "fix")
    fix = daemon.show("fix")
    assert (fix["state"], fix["attention"]["kind"], fix["check"]["state"]) == ("queued", "checking", "running")
    assert fix["attention"]["text"] == fix["reason"] == f"its check `{HELD}` runs"
    refused = daemon.ctl("set", "fix", "name=other")
    assert (refused.code, "the check of fix is still to come" in refused.err) == (1, True)
    daemon.ok("suspend", "fix")
    assert (daemon.show("fix")["state"], daemon.show("fix")["check"]["state"]) == ("suspended", "waiting")
    daemon.ok("resume", "fix")
    held_check(daemon, "fix")
    daemon.ok("send", "fix", "Then this.")
    go.touch()
    wait_until(lambda: daemon.show("fix")["turn"]["number"] == 2, "the prompt that waited")
    go.unlink()
    held_check(daemon, "fix")
    daemon.ok("interrupt", "fix")
    fix = daemon.wait("fix", "idle")
    assert (fix["check"]["state"], fix["check"]["text"]) == ("failed", f"the check `{HELD}` was stopped")
    daemon.ok("send", "fix", "And this.")
    held_check(daemon, "fix")
    waiting = daemon.follow("wait", "fix", "--json")
    daemon.ok("end", "fix")
    found = json.loads(waiting.communicate(timeout=60)[0])
    assert [agent["state"] for agent in (found if isinstance(found, list) else [found])] == ["ended"]
    # Those that a killed daemon ran began, and were never judged.
    assert kinds(daemon, "fix").count("check:passed") == 1
    assert wait_until(lambda: list((daemon.state / "trees").glob("check-*")) == [])


def test_who_waits_for_a_checked_agent_waits_for_the_verdict(daemon):
    daemon.start()
    work = daemon.workspace()
    spawn(daemon, work, ["kid"])
    wait_until(daemon.waits, "the wait")
    command = "until [ -e ~/.cache/go ]; do sleep 0.02; done; echo broken; exit 4"
    daemon.ok("set", "kid", f"check={command}", "retries=0")
    (work / "kid").touch()
    wait_until(lambda: kinds(daemon, "kid") == ["check:started"], "the check")
    assert daemon.waits()[0]["done"] == []
    (daemon.state / "agents" / daemon.show("kid")["id"] / "cache" / "go").touch()
    assert daemon.ctl("wait", "lead").code == 0
    prompt = daemon.events("lead", "user")[-1]["text"]
    assert f"kid (failed): turn 1, not done, the check `{command}` fails with 4: broken" in prompt
    assert daemon.waits() == []


def test_a_landing_runs_a_check_again_only_where_it_lands_other_files(daemon, app):
    me(daemon, app)
    daemon.start()
    check = 'test "$(ls *.txt | wc -l)" -lt 3'
    for name, file in (("one", "a.txt"), ("two", "b.txt"), ("three", "c.txt")):
        daemon.spawn(name, app, commit(file), "--clone", "--check", check)
    landed = daemon.ok("merge", "one")
    assert landed["check"]["text"] == f"the check `{check}` has passed on {landed['head'][:7]} already, whose files land"
    landed = daemon.ok("merge", "two")
    assert landed["check"]["text"] == f"the check `{check}` passes"
    refused = daemon.ctl("merge", "three")
    assert (refused.code, f"the check `{check}` fails with 1" in refused.err) == (1, True), refused
    assert not (app / "c.txt").exists()


def test_a_child_has_a_check_of_its_own_and_who_stops_it_is_not_woken_by_that(daemon):
    daemon.start()
    work = daemon.workspace()
    hold = "until [ -e ~/.cache/go ]; do sleep 0.02; done"
    kid = json.dumps({"name": "kid", "prompt": "/say made", "check": hold})
    look = "/shell while [ ! -e go ]; do sleep 0.02; done"
    script = f'/tool spawn_agent {kid}\n{look}\n/tool interrupt_agent {{"name": "kid"}}\n/tool whoami {{}}'
    daemon.ok("spawn", "lead", "-w", work, "--prompt-file", "-", stdin=script.encode())
    wait_until(lambda: any(agent["attention"]["kind"] == "checking" for agent in daemon.ok("ls")), "the check")
    (work / "go").touch()
    daemon.wait("lead", "idle")
    started, stopped, told = daemon.tool("lead")
    assert "agent kid is started" in started
    assert stopped == "the check of kid is stopped"
    assert "check" not in json.loads(told)
    assert (daemon.show("kid")["state"], daemon.show("kid")["check"]["state"]) == ("idle", "failed")
    assert daemon.show("lead")["turn"]["number"] == 1
    assert daemon.show("lead")["unread"] == 0
