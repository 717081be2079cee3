"""Checks: whose turns are judged, what a verdict does, and who is told of it."""

from dataclasses import replace

import pytest

from substrat.core.agents.records import Completion
from substrat.core.families.waits import WaitMode
from substrat.core.workspaces import checks
from substrat.daemon.agents.inbox import Inbox, Question
from substrat.daemon.families.steering import Steering

CHECKED = {"check": "make test", "retries": 1}
PASSES = checks.judged("make test", 0, b"", 60)
FAILS = checks.judged("make test", 2, b"a test fails\n", 60)


def judge(agents, name, verdict):
    agents.families.checks.judge(agents.agent(name).id, agents.turn(name).number, verdict)


def text(agents, name):
    return agents.families.checks.sentence(agents.agent(name))


def test_a_turn_that_succeeded_is_finished_only_when_its_check_passes(agents):
    agents.spawn("fix", "work", **CHECKED)
    agents.finish("fix")
    assert (agents.state("fix"), text(agents, "fix")) == ("queued", "its check `make test` is about to run")
    assert agents.families.checks.public(agents.agent("fix"))["state"] == "waiting"
    agents.families.checks.begins(agents.agent("fix").id, is_kept=True)
    assert agents.families.checks.public(agents.agent("fix"))["state"] == "running"
    judge(agents, "fix", PASSES)
    agents.families.checks.over(agents.agent("fix").id)
    assert agents.state("fix") == "idle"
    assert agents.families.checks.public(agents.agent("fix"))["state"] == "passed"
    assert not agents.store.turn(agents.turn("fix").id).unsettled
    judge(agents, "fix", FAILS)
    assert agents.state("fix") == "idle", "it is judged once"


def test_a_failure_is_the_next_prompt_before_what_waits_and_the_last_one_is_the_agents_failure(agents):
    agents.spawn("fix", "work", **CHECKED)
    agents.finish("fix")
    agents.supervisor.send("fix", "And then this.")
    judge(agents, "fix", FAILS)
    assert (agents.state("fix"), agents.turn("fix").number) == ("running", 2)
    assert "your work isn't done: the check `make test` fails with 2: a test fails" in agents.prompt("fix")
    assert agents.families.checks.public(agents.agent("fix"))["state"] == "waiting"
    agents.restart()
    agents.finish("fix")
    judge(agents, "fix", FAILS)
    assert agents.state("fix") == "failed"
    told = agents.families.checks.public(agents.agent("fix"))
    assert (told["state"], told["tries"], told["text"]) == ("failed", 2, FAILS.text)
    assert [kind for kind, _ in agents.told("fix") if kind.startswith("check:")] == ["check:failed"] * 2


@pytest.mark.parametrize("why", ["waits", "asks", "calls it failed", "fails"])
def test_work_that_is_not_done_is_not_judged(agents, why):
    agents.spawn("fix", "work", **CHECKED)
    agent = agents.agent("fix")
    match why:
        case "waits":
            agents.spawn("kid", "part", parent="fix")
            agents.families.waits.register(agent, None, WaitMode.ALL, None, None)
        case "asks":
            Inbox(agents.registry).ask(agent, Question("Which?"))
        case "calls it failed":
            agents.supervisor.complete("fix", "no", "no", Completion.FAILED)
    if why == "fails":
        agents.fall("fix")
    else:
        agents.finish("fix")
    assert agents.families.checks.public(agents.agent("fix"))["state"] == "waiting"
    assert agents.agent("fix").checked is None
    assert agents.state("fix") in {"idle", "failed"}


@pytest.mark.parametrize("stop", ["interrupt", "end"])
def test_a_turn_that_was_stopped_and_succeeded_all_the_same_is_not_judged_and_not_done(agents, stop):
    agents.spawn("lead", "work")
    agents.spawn("kid", "part", parent="lead", **CHECKED)
    getattr(agents.supervisor, stop)("kid")
    agents.finish("kid")
    assert agents.state("kid") == {"interrupt": "idle", "end": "ended"}[stop]
    assert agents.families.checks.public(agents.agent("kid"))["state"] == "failed"
    agents.finish("lead")
    assert "not done, the check `make test` was stopped" in agents.prompt("lead")


def test_words_for_complete_hold_while_an_agent_is_sent_back_and_another_task_begins_the_count_anew(agents):
    agents.spawn("lead", "work")
    agents.spawn("kid", "part", parent="lead", **CHECKED)
    agents.supervisor.complete("kid", "the result", "the result", Completion.SUCCEEDED)
    agents.finish("kid")
    judge(agents, "kid", FAILS)
    agents.finish("kid", "mended")
    judge(agents, "kid", PASSES)
    agents.finish("lead")
    assert "> the result" in agents.prompt("lead")
    agents.supervisor.send("kid", "more")
    agents.finish("kid")
    judge(agents, "kid", FAILS)
    agents.supervisor.interrupt("kid")
    agents.fall("kid")
    assert agents.families.checks.public(agents.agent("kid"))["state"] == "failed"
    agents.supervisor.send("kid", "something else")
    agents.finish("kid")
    judge(agents, "kid", FAILS)
    assert (agents.state("kid"), agents.agent("kid").checked.tries) == ("running", 1)


def test_what_is_shown_of_a_check_is_of_the_newest_turn_or_of_the_command_there_is_now(agents):
    agents.spawn("fix", "work", **CHECKED)
    agents.finish("fix")
    judge(agents, "fix", PASSES)
    for command in ("make lint", None):
        fix = agents.agent("fix")
        with agents.registry.change("settings changed") as change:
            change.put(replace(fix, settings=replace(fix.settings, check=command)))
        shown = agents.families.checks.public(agents.agent("fix"))
        assert (shown["command"], shown["state"], shown["turn"]) == ("make test", "passed", 1)
    agents.supervisor.send("fix", "more")
    assert agents.families.checks.public(agents.agent("fix")) is None


def test_a_child_does_not_inherit_a_check_and_its_parent_hears_the_verdict_once(agents):
    agents.spawn("lead", "work", **CHECKED)
    agents.spawn("kid", "part", parent="lead", check="make kid", retries=0)
    assert agents.agent("lead").settings.of_child().check is None
    agents.finish("kid", "I am done.")
    assert agents.agent("lead").waiting == 0
    judge(agents, "kid", checks.judged("make kid", 2, b"a test fails", 60))
    agents.finish("lead")
    judge(agents, "lead", PASSES)
    prompt = agents.prompt("lead")
    assert prompt.count("not done, the check `make kid` fails with 2: a test fails") == 1
    assert "> I am done." in prompt


@pytest.mark.parametrize("stop", ["interrupt", "end"])
def test_a_check_that_is_stopped_tells_who_waits_for_the_work(agents, stop):
    agents.spawn("lead", "work")
    agents.spawn("kid", "part", parent="lead", **CHECKED)
    agents.families.waits.register(agents.agent("lead"), ["kid"], WaitMode.ALL, None, None)
    agents.finish("lead")
    agents.finish("kid", "made")
    assert agents.state("lead") == "idle"
    getattr(agents.supervisor, stop)("kid")
    assert agents.state("kid") == {"interrupt": "idle", "end": "ended"}[stop]
    assert (agents.state("lead"), agents.turn("lead").number) == ("running", 2)
    assert "not done, the check `make test` was stopped" in agents.prompt("lead")


def test_a_parent_that_stops_the_check_of_its_child_is_not_told_of_it(agents):
    agents.spawn("lead", "work")
    steering = Steering(agents.supervisor, agents.families.waits)
    for name, stop in (("a", "interrupt"), ("b", "end")):
        agents.spawn(name, "part", parent="lead", **CHECKED)
        agents.finish(name, "made")
        getattr(steering, stop)(agents.agent("lead"), [name], None)
    agents.finish("lead")
    assert (agents.state("lead"), agents.agent("lead").waiting) == ("idle", 0)
    assert not agents.store.waiting_items(agents.agent("lead").id)


def test_a_suspended_agent_is_checked_when_it_goes_on_and_a_failed_one_is_checked_again(agents):
    agents.spawn("fix", "work", **CHECKED)
    agents.supervisor.suspend("fix")
    agents.finish("fix")
    assert (agents.state("fix"), agents.agent("fix").checked.state) == ("suspended", "waiting")
    _, item = agents.supervisor.resume("fix", None)
    assert (agents.state("fix"), item) == ("queued", 1)
    judge(agents, "fix", checks.not_run("make test", "no room"))
    assert agents.state("fix") == "failed"
    agents.restart()
    _, item = agents.supervisor.resume("fix", None)
    assert (agents.state("fix"), item, agents.turn("fix").number) == ("queued", 1, 1)
    judge(agents, "fix", PASSES)
    assert agents.state("fix") == "idle"
