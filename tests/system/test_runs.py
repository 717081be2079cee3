"""`run FILE`: a family from a file starts in order, survives the daemon, and its outcome is the exit status."""

import json
from functools import partial

import pytest

from tests.support.terminal import Screen
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
REVIEWED = "reviewed pair.author\npair.author: success. It said:\n> one"


def test_a_family_runs_in_its_order_and_its_leads_last_words_are_the_result(daemon, tmp_path):
    daemon.start()
    work, file = daemon.workspace(), written(tmp_path, PAIR)
    done = daemon.ctl("run", file, "-w", work, "--set", "task=two")
    assert done.code == 0, done
    assert done.out.splitlines()[0].startswith("pair.author    ")
    author, reviewer = daemon.show("pair.author"), daemon.show("pair.reviewer")
    assert reviewer["parent"] == author["id"]
    assert reviewer["turn"]["result"] == "reviewed pair.author\npair.author: success. It said:\n> two", "what it needs"
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
    assert (ended["outcome"], ended["result"]) == ("succeeded", f"pair.author: one\n\npair.reviewer: {REVIEWED}")
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
    assert daemon.show("pair-2.reviewer")["turn"]["result"].startswith("reviewed pair-2.author")
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


def test_an_agent_for_each_line_whatever_it_is_called(daemon, tmp_path):
    daemon.start()
    work = daemon.workspace()
    names = ["$(touch pwned).txt", "a b.txt", "{{agent.all}}.txt"]
    for name in names:
        (work / name).touch()
    file = written(tmp_path, EACH)
    done = daemon.ctl("run", file, "-w", work)
    assert done.code == 0, done
    (found,) = daemon.ok("runs", "each")
    assert [agent["name"] for agent in found["agents"]] == ["each.all", "each.map.1", "each.map.2", "each.map.3"]
    results = [daemon.show(f"each.map.{number}")["turn"]["result"] for number in (1, 2, 3)]
    assert results == [f"{number}: {name}" for number, name in enumerate(names, 1)]
    assert daemon.show("each.all")["turn"]["result"].startswith("of each.map.1, each.map.2, each.map.3")
    assert sorted(path.name for path in work.iterdir() if not path.name.startswith(".")) == names
    none = daemon.ctl("run", written(tmp_path, EACH.replace("ls", "true")), "-w", work)
    assert (none.code, none.out.splitlines()[-1]) == (0, "each-2.all: of nobody"), none
    assert "each-2: map: its command printed no line" in none.err


def test_each_sees_the_repository_from_a_directory_in_it_and_from_a_linked_worktree(daemon, tmp_path):
    daemon.start()
    repository = daemon.workspace(git=True)
    (repository / "src").mkdir()
    (repository / "src" / "a.py").touch()
    daemon.git(repository, "add", ".")
    daemon.git(repository, "commit", "-qm", "src")
    daemon.git(repository, "worktree", "add", "-q", str(tmp_path / "linked"))
    text = EACH.replace("ls *.txt", "git ls-files '*.py'").replace('family.workspace = "in-place"\n', "")
    for place in (repository / "src", tmp_path / "linked"):
        started = daemon.ctl("run", written(tmp_path, text), "-w", place, "--detach")
        assert started.code == 0, started
        family = started.out.split()[0]
        wait_until(partial(is_there, daemon, f"{family}.map.1"), "the agent for the file")


def test_what_each_cannot_print(daemon, tmp_path):
    daemon.start()
    work = daemon.workspace()

    def why(command):
        done = daemon.ctl("run", written(tmp_path, EACH.replace('"ls *.txt"', json.dumps(command))), "-w", work)
        assert done.code == 5, done
        return done.err

    assert "map can't be listed: `echo no; echo why >&2; exit 3` fails with 3: why" in why("echo no; echo why >&2; exit 3")
    assert "map can't be listed: agents: a family has 1 to 256, not 1001" in why("seq 1000")
    assert (
        "map can't be listed: `printf '\\377'` has printed a line with characters that can't be printed: '\ufffd'"
        in why("printf '\\377'")
    )
    assert "Read-only file system" in why("touch here")
    assert daemon.ok("ls") == []


def test_an_author_and_a_judge_go_on_until_they_agree(daemon, tmp_path):
    """By the commits of a lead in a clone, which the judge, its child, sees in each round."""
    daemon.start()
    repository = daemon.workspace(git=True)
    done = daemon.ctl("run", written(tmp_path, ROUNDS), "-w", repository)
    assert done.code == 0, done
    author, judge = daemon.show("rounds.author"), daemon.show("rounds.judge")
    assert (author["turn"]["number"], judge["turn"]["number"]) == (2, 2), "no report wakes the author once more"
    head = author["clone"]["head"]
    assert daemon.ctl("exec", "rounds.judge", "--", "git", "cat-file", "-e", head).code == 0
    prompts = [event["text"] for event in daemon.events("rounds.author", "prompt:queued")]
    assert "rounds.judge doesn't agree with your work yet, in round 1 of 3" in prompts[-1]
    steps = [event["text"] for event in daemon.events("rounds.author", "run:step")]
    assert steps == ["rounds.judge doesn't agree, in round 1 of 3"]
    never = ROUNDS.replace("-ge 2", "-ge 9").replace("rounds = 3", "rounds = 2")
    late = daemon.ctl("run", written(tmp_path, never), "-w", repository)
    assert (late.code, "rounds-2.judge doesn't agree after 2 rounds" in late.err) == (5, True), late
    assert (daemon.show("rounds-2.author")["turn"]["number"], daemon.show("rounds-2.judge")["turn"]["number"]) == (2, 2)
    (rounds,) = daemon.ok("runs", "rounds-2")
    assert [one["text"] for one in rounds["agents"]][1] == "doesn't agree with rounds-2.author"


@pytest.mark.parametrize(("keys", "state", "status"), [("y\n", "ended", 5), ("n\n", "running", 0), ("\x03", "running", 0)])
def test_ctrl_c_on_a_terminal_asks_whether_to_end_the_family(daemon, tmp_path, keys, state, status):
    daemon.start()
    file = written(tmp_path, PAIR.replace("/say {{task}}", "/sleep 60"))
    with Screen(daemon, "run", str(file), "-w", str(daemon.workspace()), size=(24, 80)) as screen:
        screen.until("running")
        daemon.wait("pair.author", "running")
        screen.type("\x03")
        screen.until("end pair and its agents? They go on otherwise. [y/N]")
        screen.type(keys)
        assert screen.end() == status, screen.shown
    daemon.wait("pair.author", state)


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


def is_there(daemon, name):
    return name in {agent["name"] for agent in daemon.ok("ls")}


EACH = """\
family.name = "each"
family.workspace = "in-place"
[agents.all]
prompt = "/say of {{agent.map}}"
needs = ["map"]
[agents.map]
each = "ls *.txt"
prompt = "/say {{n}}: {{item}}"
check = 'test -e "$ITEM" && test "$N" -gt 0'
"""
ROUNDS = """\
family.name = "rounds"
family.lead = "author"
family.workspace = "clone"
[agents.author]
prompt = "/shell echo x >> made; git add made; git commit -qm made\\n/say made it"
[agents.judge]
prompt = '''
/write agree /tool complete {"result": "{\\"agrees\\": true}"}
/write not /tool complete {"result": "{\\"agrees\\": false}"}
/shell echo turn >> turns; [ $(wc -l < turns) -ge 2 ] && mv agree next || mv not next
/do next
'''
needs = ["author"]
returns_to = "author"
rounds = 3
result_schema = { type = "object", properties = { agrees = { type = "boolean" } }, required = ["agrees"] }
"""


def leading(kid):
    """The pair with an author that starts a child and waits for it."""
    script = f"/tool spawn_agent {json.dumps(kid)}\n/tool wait_agents {{}}"
    return PAIR.replace('"/say {{task}}"', f"'''{script}'''")


def written(directory, text):
    file = directory / "family.toml"
    file.write_text(text)
    return file
