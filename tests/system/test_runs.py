"""`run FILE`: a family from a file starts in order, survives the daemon, and its outcome is the exit status."""

import json

import pytest

from tests.support.waiting import wait_until

PAIR = """\
[family]
name = "pair"
lead = "author"
workspace = "in-place"
[vars]
task = "one"
[agents.author]
prompt = "/say {{task}}"
[agents.reviewer]
prompt = "/say reviewed {{agent.author}}"
needs = ["author"]
"""


def test_a_family_runs_in_its_order_and_its_leads_last_words_are_the_result(daemon, tmp_path):
    daemon.start()
    work, file = daemon.workspace(), written(tmp_path, PAIR)
    done = daemon.ctl("run", file, "-w", work, "--set", "task=two")
    assert done.code == 0, done
    assert done.out.splitlines()[0].startswith("pair.author    ")
    author, reviewer = daemon.show("pair.author"), daemon.show("pair.reviewer")
    assert reviewer["parent"] == author["id"]
    assert reviewer["turn"]["result"] == "reviewed pair.author"
    assert author["turn"]["number"] == 2, "it was told what the reviewer has said"
    (listed,) = daemon.ok("runs", "pair")
    assert (listed["family"], listed["outcome"], listed["file"]) == ("pair", "succeeded", str(file))
    assert [(agent["name"], agent["outcome"]) for agent in listed["agents"]] == [
        ("pair.author", "succeeded"), ("pair.reviewer", "succeeded"),
    ]  # fmt: skip
    assert listed["result"] == author["turn"]["result"]
    kinds = [event["kind"] for name in ("pair.author", "pair.reviewer") for event in daemon.events(name)]
    assert [kind for kind in kinds if kind.startswith("run:")] == ["run:started", "run:ended", "run:step"]
    again = daemon.ok("run", file, "-w", work)
    assert (again["family"], again["outcome"]) == ("pair-2", "succeeded")
    assert "reviewed pair-2.author" in json.dumps(daemon.show("pair-2.reviewer"))
    assert "pair-2.reviewer  succeeded" in daemon.ctl("runs", "pair-2").out


def test_a_killed_daemon_loses_no_run_and_starts_no_agent_twice(daemon, tmp_path):
    daemon.start()
    file = written(tmp_path, PAIR.replace('lead = "author"\n', "").replace("/say {{task}}", "/sleep 1\\n/say {{task}}"))
    started = daemon.ctl("run", file, "-w", daemon.workspace(), "--detach")
    assert (started.code, started.out) == (0, "pair  goes on: 'runs pair' shows it\n")
    for _ in range(2):
        daemon.kill()
        daemon.start()
    wait_until(lambda: daemon.ok("runs", "pair")[0]["outcome"], "the end of the run")
    (ended,) = daemon.ok("runs", "pair")
    assert (ended["outcome"], ended["result"]) == ("succeeded", "pair.author: one\n\npair.reviewer: reviewed pair.author")
    assert sorted(agent["name"] for agent in daemon.ok("ls")) == ["pair.author", "pair.reviewer"]
    assert {daemon.show(name)["turn"]["outcome"] for name in ("pair.author", "pair.reviewer")} == {"success"}


def test_what_a_failed_check_means_for_the_others(daemon, tmp_path):
    daemon.start()
    work = daemon.workspace()
    alone = PAIR.replace('lead = "author"\n', "")

    def result(on_fail):
        text = alone.replace("[agents.reviewer]", f'check = "test $TASK = two"\non_fail = "{on_fail}"\n[agents.reviewer]')
        return daemon.ctl("run", written(tmp_path, text), "-w", work)

    stopped = result("stop")
    assert (stopped.code, "pair.author: failed: " in stopped.err, "pair has failed" in stopped.err) == (5, True, True)
    assert "pair.reviewer" not in {agent["name"] for agent in daemon.ok("ls")}
    assert result("continue").code == 0
    assert daemon.show("pair-2.reviewer")["turn"]["result"] == "reviewed pair-2.author"
    asked = result("ask")
    assert (asked.code, "pair-3.author: needs-you: " in asked.err) == (6, True)
    assert daemon.ok("runs", "pair-3")[0]["ended_at"] is None
    daemon.ok("accept", "pair-3.author")
    wait_until(lambda: daemon.ok("runs", "pair-3")[0]["outcome"] == "succeeded", "what waits for a person goes on")


def test_a_budget_pauses_a_run_and_its_time_ends_it(daemon, tmp_path):
    daemon.start()
    work = daemon.workspace()
    short = daemon.ctl("run", written(tmp_path, PAIR.replace("[vars]", "budget = { turns = 1 }\n[vars]")), "-w", work)
    assert (short.code, "pair waits for its budget" in short.err) == (5, True), short
    daemon.ok("budget", "pair.author", "--add", "turns=9")
    wait_until(lambda: daemon.ok("runs", "pair")[0]["outcome"] == "succeeded", "it goes on by itself")
    late = PAIR.replace("[vars]", "timeout = 1\n[vars]").replace("/say {{task}}", "/sleep 60")
    done = daemon.ctl("run", written(tmp_path, late), "-w", work)
    assert (done.code, "it wasn't done after 1 s" in done.err) == (124, True), done
    daemon.wait("pair-2.author", "suspended")


def test_an_agent_that_cannot_be_started_ends_its_run(daemon, tmp_path):
    daemon.start()
    work = daemon.workspace()
    text = PAIR.replace("[agents.reviewer]", '[agents.reviewer]\nnetwork = "host"')
    text = text.replace("[agents.author]", '[agents.author]\nnetwork = "none"')
    done = daemon.ctl("run", written(tmp_path, text), "-w", work)
    assert (done.code, "pair.reviewer can't be started: " in done.err) == (5, True), done
    assert daemon.ctl("runs", "nobody").code == 4
    plan = {"name": "x", "members": [{"name": "a", "prompt": "x", "network": "bogus"}]}
    with daemon.wire() as wire, pytest.raises(AssertionError, match="network: can be none"):
        wire.call("run.start", plan=json.dumps(plan), file="f", workspace=str(work))


def test_a_person_or_an_answer_is_waited_for_and_the_rest_goes_on_then(daemon, tmp_path):
    daemon.start()
    work = daemon.workspace()
    kid = {"name": "kid", "prompt": '/tool ask_operator {"question": "which?"}'}
    asked = daemon.ctl("run", written(tmp_path, leading(kid)), "-w", work)
    assert (asked.code, "pair.author: needs-you: waits for kid" in asked.err) == (6, True), asked
    assert daemon.ok("runs")[0]["agents"][1]["agent"] is None, "what needs its lead hasn't begun"
    (question,) = daemon.ok("inbox")
    daemon.ok("answer", str(question["id"]), "/say this")
    wait_until(lambda: daemon.ok("runs")[0]["outcome"] == "succeeded", "the run goes on")
    held = written(tmp_path, PAIR.replace("/say {{task}}", "/sleep 60"))
    assert daemon.ctl("run", held, "-w", work, "--detach").code == 0
    wait_until(lambda: daemon.ok("runs", "pair-2")[0]["agents"][0]["state"] == "running", "the first turn")
    daemon.ok("suspend", "pair-2.author")
    assert daemon.ok("runs", "pair-2")[0]["outcome"] == "needs-you"
    with daemon.wire() as wire:
        assert [agent["state"] for agent in wire.call("run.end", run="pair-2")["agents"]] == ["ended", None]
    assert daemon.ok("runs", "pair-2")[0]["why"] == "it was ended by the operator"


def test_the_time_of_a_run_suspends_all_that_works_for_it(daemon, tmp_path):
    daemon.start()
    late = leading({"name": "kid", "prompt": "/sleep 60"}).replace("[vars]", "timeout = 2\n[vars]")
    done = daemon.ctl("run", written(tmp_path, late), "-w", daemon.workspace())
    assert (done.code, "it wasn't done after 2 s" in done.err) == (124, True), done
    daemon.wait("kid", "suspended")


def test_wrong_files_and_dry_runs_start_nothing(daemon, tmp_path):
    text = PAIR.replace('needs = ["author"]', 'needs = ["auhtor"]')
    wrong = daemon.ctl("run", written(tmp_path, text))
    assert (wrong.code, wrong.err) == (
        2, f"substratctl: {tmp_path}/family.toml: line 11: agents.reviewer.needs: there is no other agent 'auhtor'\n",
    )  # fmt: skip
    missing = daemon.ctl("run", written(tmp_path, PAIR.replace("needs", 'role = "no.md"\nneeds')), "-w", tmp_path)
    assert (missing.code, "line 11: agents.reviewer.role: no.md: " in missing.err) == (2, True), missing
    outside = daemon.ctl("run", written(tmp_path, PAIR.replace("needs", 'role = "/etc/passwd"\nneeds')), "-w", tmp_path)
    assert (outside.code, f"lies outside of {tmp_path}" in outside.err) == (2, True), outside
    dry = daemon.ctl("run", written(tmp_path, PAIR), "--dry-run")
    assert (dry.code, dry.out) == (
        0,
        "1. pair.author first\n2. pair.reviewer after author\nat most 3 turns, and those that messages start\n",
    )


def leading(kid):
    """The pair with an author that starts a child and waits for it."""
    script = f"/tool spawn_agent {json.dumps(kid)}\n/tool wait_agents {{}}"
    return PAIR.replace('"/say {{task}}"', f"'''{script}'''")


def written(directory, text):
    file = directory / "family.toml"
    file.write_text(text)
    return file
