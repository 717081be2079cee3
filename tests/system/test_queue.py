"""The queue, through real sandboxes: families take turns, priorities go first, a spent account holds its own turns only."""

import json

import pytest

ONE = "[turns]\nmax_running = 1\n"
SPENT = ("--env", "CURSOR_API_KEY=spent")
GOOD = ("--env", "CURSOR_API_KEY=good")
HOLD = b"/shell while [ ! -e go ]; do sleep 0.02; done\n/say freed"
LIMITED = """\
begin()
if prompt.startswith("limit") and not os.path.exists("paid"):
    sys.stderr.write("ActionRequiredError: You've hit your usage limit. Try again in 1 second.\\n")
    sys.exit(1)
mark(prompt.split()[0])
finish()
"""


def queued(daemon):
    return [place["agent"] for place in daemon.ok("queue")]


def begun(daemon):
    """The agents whose turns began, in order."""
    with daemon.wire() as wire:
        events = wire.call("events.read", limit=1000)["events"]
    names = {agent["id"]: agent["name"] for agent in daemon.ok("ls")}
    return [names[event["agent"]] for event in events if event["kind"] == "turn:started"]


@pytest.mark.slow
def test_a_family_that_floods_the_queue_does_not_keep_others_from_their_turns(daemon, until):
    daemon.start(config=ONE)
    work = daemon.workspace()
    children = [json.dumps({"name": f"worker-{number}", "prompt": "/say done"}) for number in range(1, 6)]
    script = "\n".join(f"/tool spawn_agent {child}" for child in children)
    daemon.held("lead", work, before=f"{script}\n")
    daemon.ok("spawn", "anna", "-w", work, "/say hello")
    daemon.ok("spawn", "low", "-w", work, "--priority", "low", "/say hello")
    daemon.ok("spawn", "urgent", "-w", work, "--priority", "high", "/say hello")
    workers = [f"worker-{number}" for number in range(1, 6)]
    expected = ["urgent", "anna", *workers, "low"]
    assert queued(daemon) == expected
    places = daemon.ok("queue")
    assert [place["position"] for place in places] == list(range(1, 9))
    assert "place 2 in the queue: 1 turn runs, as many as may at once" in places[1]["reason"]
    anna, worker = daemon.show("anna"), daemon.show("worker-1")
    assert (anna["state"], anna["reason"], anna["priority"]) == ("queued", places[1]["reason"], "normal")
    assert (anna["family"], worker["family"]) == (anna["id"], daemon.show("lead")["id"])
    shown = daemon.ctl("queue").out
    assert [line.split()[1] for line in shown.splitlines()[1:]] == expected
    assert daemon.ok("set", "low", "priority=high")["priority"] == "high"
    expected = ["low", "urgent", "anna", *workers]
    assert queued(daemon) == expected
    daemon.kill()
    daemon.start()
    assert queued(daemon) == expected, "who had the last turn is known after a death"
    (work / "go").touch()
    until(lambda: not queued(daemon) and daemon.show("worker-5")["state"] == "idle", "the end of the queue")
    assert begun(daemon)[: 1 + len(expected)] == ["lead", *expected]


def test_a_spent_account_holds_the_turns_of_its_login_until_one_that_tries_succeeds(daemon, until):
    daemon.start()
    work = daemon.workspace()
    assert "nothing was changed: no login is held" in daemon.ctl("queue", "--try").err.splitlines()[0]
    greedy = daemon.spawn("greedy", work, "/shell true\n/fail quota", *SPENT)
    assert (greedy["state"], greedy["turn"]["outcome"]) == ("failed", "error")
    (told,) = daemon.events("greedy", "gate:held")
    assert told["data"]["failures"] == 1
    daemon.ok("spawn", "first", "-w", work, *SPENT, "/fail quota")
    daemon.ok("spawn", "second", "-w", work, *SPENT, "/say hello")
    assert daemon.spawn("other", work, "/say hello", *GOOD)["state"] == "idle", "other logins go on"
    shown = daemon.show("first")
    assert (shown["state"], shown["attention"]["kind"], shown["attention"]["level"]) == ("queued", "held", "action")
    assert told["data"]["until"] in shown["reason"]
    assert "queue --try" in shown["reason"]
    daemon.kill()
    daemon.start()
    assert [daemon.show(name)["state"] for name in ("first", "second")] == ["queued", "queued"], "a death lifts nothing"
    (line,) = daemon.ctl("queue").err.splitlines()
    assert "held until" in line
    assert "out of usage" in line
    # The one that tries meets the limit again, and the other one never began.
    assert len(daemon.ok("queue", "--try")) in {1, 2}
    until(lambda: daemon.events("first", "turn:retry"), "the try")
    assert (daemon.show("first")["state"], daemon.show("second")["turn"]) == ("queued", None)
    assert daemon.events("first", "gate:held")[0]["data"]["failures"] == 2
    daemon.ok("queue", "--try")
    until(lambda: daemon.show("second")["state"] == "idle", "the next try, of the family that had none for longest")
    until(lambda: len(daemon.events("first", "turn:retry")) == 2, "the turn that was held, which tries again by itself")
    daemon.ok("end", "first")
    (opened,) = daemon.events("second", "gate:opened")
    assert opened["cause"] == daemon.events("second", "turn:ended")[0]["cursor"]
    daemon.ok("spawn", "third", "-w", work, "/say hello", *SPENT)
    daemon.ok("queue", "--try")
    assert daemon.wait("third", "idle")["turn"]["outcome"] == "success"
    assert daemon.ctl("queue").err.strip() == "substratctl: no agent waits for a turn"


def test_a_trial_that_calls_a_tool_opens_the_gate_long_before_its_end(daemon, until):
    daemon.start()
    work = daemon.workspace()
    daemon.spawn("greedy", work, "/shell true\n/fail quota", *SPENT)
    daemon.ok("spawn", "trial", "-w", work, "--prompt-file", "-", *SPENT, stdin=HOLD)
    daemon.ok("spawn", "other", "-w", work, *SPENT, "/say hello")
    assert daemon.show("other")["attention"]["kind"] == "held"
    daemon.ok("queue", "--try")
    assert daemon.wait("other", "idle")["turn"]["result"] == "hello"
    assert daemon.show("trial")["state"] == "running"
    (opened,) = daemon.events("trial", "gate:opened")
    assert opened["turn"] == daemon.show("trial")["turn"]["id"]
    (work / "go").touch()
    assert daemon.wait("trial", "idle")["turn"]["outcome"] == "success"


@pytest.mark.slow
def test_the_time_that_the_program_states_is_waited_for_and_then_one_turn_tries(daemon, until):
    daemon.start(agent=daemon.program(LIMITED))
    work = daemon.workspace()
    greedy = daemon.follow("spawn", "greedy", "-w", work, "--wait", "limit")
    until(lambda: daemon.ok("ls") and daemon.events("greedy", "gate:held"), "the limit")
    (work / "paid").touch()
    for name in ("anna", "bert"):
        daemon.ok("spawn", name, "-w", work, f"did-{name}")
    until(lambda: (work / "did-anna").exists() and (work / "did-bert").exists(), "the turns after that time")
    held = daemon.events("greedy", "gate:held")[0]
    assert "as the program says" in held["text"]
    names = ("greedy", "anna", "bert")
    started = [event["time"] for name in names for event in daemon.events(name, "turn:started")]
    assert min(time for time in started if time > held["time"]) >= held["data"]["until"]
    assert greedy.wait(20) == 0, "the turn that was held has run by itself"
    assert daemon.show("greedy")["turn"]["outcome"] == "success"
    assert len([event for name in names for event in daemon.events(name, "gate:opened")]) == 1


def child(name, prompt, *needs):
    return "/tool spawn_agent " + json.dumps({"name": name, "prompt": prompt, "needs": needs})


def test_a_child_begins_when_those_that_it_needs_have_succeeded(running, until):
    work = running.workspace()
    hold = "/shell while [ ! -e go ]; do sleep 0.02; done\n/say written"
    script = [
        child("author", hold), child("tester", "/say tested", "author"), child("critic", "/say read", "author", "tester"),
        child("odd", "/say x", "lead"), child("lost", "/say x", "nemo"), child("later", "/say x", "task:t1"),
    ]  # fmt: skip
    running.spawn("lead", work, "\n".join(script))
    told = running.tool("lead")
    assert "queued until author and tester succeeded" in told[2]
    assert all(answer.startswith("!") for answer in told[3:])
    assert running.show("tester")["reason"] == "it begins when author has succeeded"
    assert running.show("critic")["reason"] == "it begins when author and tester have succeeded"
    until(lambda: "while" in str(running.show("author")["activity"]), "author works")
    running.kill()
    running.start()
    assert queued(running) == ["tester", "critic"]
    (work / "go").touch()
    until(lambda: running.show("critic")["state"] == "idle", "the last of them")
    assert begun(running).index("author") < begun(running).index("tester") < begun(running).index("critic")
    assert running.events("critic", "need:met")


def test_a_child_that_needs_one_that_fails_does_not_run_and_its_parent_is_told(running, until):
    work = running.workspace()
    script = [child("author", "/fail crash"), child("tester", "/say tested", "author"), child("critic", "/say x", "tester")]
    running.spawn("lead", work, "\n".join(script))
    until(lambda: running.show("critic")["state"] == "failed", "the end of the chain")
    tester = running.show("tester")
    assert (tester["state"], tester["turn"], tester["attention"]["kind"]) == ("failed", None, "idle")
    assert "it needs author, which has not succeeded (error)" in tester["attention"]["text"]
    until(lambda: "tester has done nothing" in str(running.events("lead", "user")), "the parent's turn")
    done = running.ctl("resume", "tester", "--wait")
    assert (done.code, done.out.strip()) == (0, "tested"), "a person lets it run all the same"
