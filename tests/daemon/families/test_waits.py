"""Waits: an agent is woken once, with all results, in words; tests/model walks through whatever happens meanwhile."""

from dataclasses import replace

import pytest

from substrat.core.agents.records import Intent
from substrat.core.agents.stop_reason import took_too_long
from substrat.core.families.waits import WaitMode
from substrat.daemon.agents.due import end_due
from substrat.daemon.agents.inbox import Inbox, Question
from substrat.errors import LimitReached, NotFound, Refused, StorageFailed


@pytest.fixture
def lead(agents):
    """A lead whose turn runs, with children `a` and `b` whose turns run."""
    agents.spawn("lead", "work")
    for name in ("a", "b"):
        agents.spawn(name, f"part {name}", parent="lead")
    return agents


def wait(agents, *names, mode=WaitMode.ALL, timeout_s=None, note=None, name="lead"):
    """Register a wait; returns None, or the results when it is over already."""
    opened, said = agents.families.waits.register(agents.agent(name), names or None, mode, timeout_s, note)
    return None if opened is not None else said


def pass_time(agents, seconds):
    agents.clock.time += seconds
    end_due(agents.registry, agents.families.waits.end_due)


def test_an_agent_is_woken_once_with_all_results(lead):
    assert wait(lead, note="then merge") is None
    lead.finish("lead")
    assert (lead.state("lead"), len(lead.families.waits.open_of(lead.agent("lead").id))) == ("idle", 1)
    lead.finish("a", "result of a")
    assert (lead.state("lead"), lead.agent("lead").waiting) == ("idle", 0)
    lead.finish("b", "result of b")
    assert (lead.state("lead"), lead.turn("lead").number) == ("running", 2)
    prompt = lead.prompt("lead")
    for words in ("Substrat", "a (idle): turn 1, success", "> result of a", "> result of b", "then merge"):
        assert words in prompt
    lead.finish("lead")
    assert lead.state("lead") == "idle"
    assert [kind for kind, _ in lead.told("lead") if kind.startswith("wait:")] == ["wait:opened", "wait:woke"]


@pytest.mark.parametrize("when", ["before the call", "after the call", "after the turn"])
def test_sixteen_children_cost_one_turn_whenever_they_end(agents, when):
    agents.spawn("lead", "work")
    names = [f"kid{number}" for number in range(16)]
    for name in names:
        agents.spawn(name, "part", parent="lead")
    early = names[:8]
    if when == "before the call":
        for name in early:
            agents.finish(name, f"result of {name}")
        assert agents.supervisor.unread(agents.agent("lead")) == 8
    assert wait(agents) is None
    assert agents.agent("lead").waiting == 0
    if when == "after the turn":
        agents.finish("lead")
    for name in names if when != "before the call" else names[8:]:
        agents.finish(name, f"result of {name}")
    if when != "after the turn":
        assert agents.agent("lead").waiting == 1
        agents.finish("lead")
    assert agents.turn("lead").number == 2
    assert all(f"> result of {name}\n" in agents.prompt("lead") for name in names)
    agents.finish("lead")
    assert (agents.state("lead"), agents.turn("lead").number) == ("idle", 2)


def test_children_that_nobody_waits_for_cost_one_turn_too(agents):
    agents.spawn("lead", "work")
    names = [f"kid{number}" for number in range(8)]
    for name in names:
        agents.spawn(name, "part", parent="lead")
    agents.finish("lead")
    agents.finish("kid0", "result of kid0")
    agents.fall("kid1", errors="it broke")
    Inbox(agents.registry).ask(agents.agent("kid2"), Question("which way?"))
    agents.finish("kid2")
    agents.supervisor.suspend("kid3")
    agents.fall("kid3")
    agents.supervisor.end("kid4")
    agents.fall("kid4")
    agents.supervisor.suspend("kid5")
    agents.fall("kid5")
    agents.supervisor.remove("kid5")
    agents.finish("kid6", "result of kid6")
    agents.restart()
    assert (agents.state("lead"), agents.agent("lead").waiting) == ("idle", 0)
    agents.supervisor.end("kid7")
    agents.fall("kid7")
    assert (agents.state("lead"), agents.turn("lead").number) == ("running", 2), "nobody else is waited for"
    for words in ("> result of kid0", "it broke", "> Question", "kid4 has finished turn 1", "> result of kid6"):
        assert words in agents.prompt("lead")
    agents.finish("lead")
    agents.supervisor.resume("kid3", None)
    agents.finish("kid3", "at last")
    assert "> at last" in agents.prompt("lead"), "it isn't lost"


def test_the_end_of_a_child_comes_with_any_other_turn_of_its_parent(lead):
    lead.finish("lead")
    lead.finish("a", "result of a")
    lead.supervisor.send("lead", "how far are you?")
    assert "> result of a" in lead.prompt("lead")
    lead.finish("lead")
    lead.finish("b", "result of b")
    assert "> result of a" not in lead.prompt("lead"), "it is told once"


def test_a_child_that_a_person_holds_keeps_no_result_of_the_others_back(lead):
    wait(lead)
    lead.finish("lead")
    Inbox(lead.registry).ask(lead.agent("b"), Question("which way?"))
    lead.finish("b", "part of it")
    assert lead.state("lead") == "idle"
    lead.finish("a", "result of a")
    prompt = lead.prompt("lead")
    for words in ("a of a, b has finished", "> result of a", "not done, it waits for the operator's answer"):
        assert words in prompt
    assert wait(lead) is not None, "it is told again, rather than waited for"
    lead.finish("lead")
    Inbox(lead.registry).answer(lead.store.waiting_items(None)[0].id, "left")
    lead.finish("b", "result of b")
    assert "> result of b" in lead.prompt("lead")


def test_what_is_over_already_is_answered_at_once(lead):
    lead.finish("a", "result of a")
    lead.finish("b", "result of b")
    assert lead.agent("lead").waiting == 2
    said = wait(lead)
    assert "> result of a" in said
    assert "> result of b" in said
    assert lead.agent("lead").waiting == 0
    lead.finish("lead")
    assert lead.state("lead") == "idle"


def test_any_wakes_at_the_first_and_the_others_tell_by_themselves(lead):
    wait(lead, mode=WaitMode.ANY)
    lead.finish("lead")
    lead.finish("b", "first")
    assert "> first" in lead.prompt("lead")
    assert "a (running): turn 1, still running" in lead.prompt("lead")
    lead.finish("a", "second")
    lead.finish("lead")
    assert "second" in lead.prompt("lead")


def test_at_the_deadline_there_is_what_there_is_once_also_when_no_daemon_ran(lead):
    wait(lead, timeout_s=100)
    assert any(when > lead.clock.time + 90 for when in lead.runner.admissions), "the timer is set"
    lead.finish("lead")
    lead.finish("a", "result of a")
    pass_time(lead, 50)
    assert lead.state("lead") == "idle"
    lead.clock.time += 10_000
    lead.restart()
    assert lead.turn("lead").number == 2
    prompt = lead.prompt("lead")
    assert "its time is over" in prompt
    assert "> result of a" in prompt
    pass_time(lead, 10_000)
    lead.finish("b", "late")
    lead.finish("lead")
    assert "late" in lead.prompt("lead"), "after the timeout a child tells by itself"
    assert len(lead.told("lead", "wait:woke")) == 1


def test_clock_jumps_end_a_wait_early_or_late_and_never_twice(lead):
    wait(lead, timeout_s=100)
    lead.finish("lead")
    pass_time(lead, -1_000_000)
    assert lead.state("lead") == "idle"
    pass_time(lead, 2_000_000)
    assert lead.turn("lead").number == 2
    pass_time(lead, -1_000_000)
    pass_time(lead, 2_000_000)
    assert len(lead.told("lead", "wait:woke")) == 1


@pytest.mark.parametrize("fails", [False, True])
def test_a_childs_last_turn_and_its_parents_wake_are_one_commit(lead, fails):
    wait(lead, "a")
    lead.finish("lead")
    if fails:
        lead.store.failing = True
        with pytest.raises(StorageFailed):
            lead.finish("a", "result of a")
        lead.store.failing = False
        assert (lead.state("a"), lead.state("lead")) == ("running", "idle")
    lead.restart()
    assert len(lead.families.waits.open_of(lead.agent("lead").id)) == 1
    lead.finish("a", "result of a")
    lead.restart()
    assert "> result of a" in lead.prompt("lead")


def test_who_waits_for_one_that_a_person_holds_holds_nothing_back_either(lead):
    lead.spawn("leaf", "part of a", parent="a")
    wait(lead, "leaf", name="a")
    lead.finish("a")
    lead.finish("lead")  # without a wait: what its children's ends tell is gathered
    lead.finish("b", "result of b")
    assert (lead.state("lead"), lead.turn("lead").number) == ("idle", 1)
    lead.supervisor.suspend("leaf")
    lead.finish("leaf")
    assert (lead.state("lead"), lead.turn("lead").number) == ("running", 2)
    assert "> result of b" in lead.prompt("lead")
    assert wait(lead, "a", "b").count("result of b") == 1
    assert "a (idle): turn 1, not done, it waits for leaf" in wait(lead, "a", "b")


def test_a_child_whose_record_is_damaged_keeps_no_report_of_another_from_its_parent(lead):
    lead.finish("lead")
    lead.finish("b", "result of b")
    assert lead.turn("lead").number == 1
    lead.store._db.execute("UPDATE agents SET phase = 'nonsense' WHERE name = 'a'")
    lead.restart()
    assert (lead.state("lead"), lead.turn("lead").number) == ("running", 2)
    assert "> result of b" in lead.prompt("lead")


def test_a_wait_survives_suspending_and_freezing(lead):
    wait(lead, "a")
    lead.supervisor.suspend("lead")
    lead.fall("lead")
    lead.finish("a", "result of a")
    assert (lead.state("lead"), lead.agent("lead").waiting) == ("suspended", 1)
    lead.supervisor.resume("lead", None)
    lead.finish("lead")
    assert "> result of a" in lead.prompt("lead")
    wait(lead, "b")
    lead.supervisor.freeze("lead")
    lead.finish("b", "result of b")
    lead.supervisor.resume("lead", None)
    lead.finish("lead")
    assert "> result of b" in lead.prompt("lead")


def test_a_child_that_ends_or_is_removed_has_finished(lead):
    wait(lead)
    lead.finish("lead")
    lead.finish("a", "result of a")
    lead.supervisor.remove("a")
    assert lead.state("lead") == "idle"
    lead.supervisor.end("b")
    lead.fall("b")
    prompt = lead.prompt("lead")
    assert "a: it was removed" in prompt
    assert "> result of a" in prompt
    assert "b (ended): turn 1, interrupted" in prompt


def test_a_sibling_that_is_removed_keeps_its_result_for_those_that_wait(lead):
    wait(lead, "b", name="a")
    wait(lead, "b")
    lead.finish("lead")
    lead.finish("a")
    lead.supervisor.suspend("b")
    lead.fall("b")
    lead.supervisor.remove("b")
    for name in ("lead", "a"):
        assert "turn 1, interrupted" in lead.prompt(name)


OUTCOMES = [
    (lambda agents: agents.finish("a", " \n"), "a (idle): turn 1, empty"),
    (lambda agents: agents.fall("a", exit_code=0),
     "a (failed): turn 1, error\n\n> the agent program exited with status 0 without a result"),
    (lambda agents: agents.fall("a", exit_code=None), "a (failed): turn 1, lost"),
    (lambda agents: (agents.book.turn_limit_reached(agents.turn("a").id, took_too_long(5)), agents.fall("a")),
     "a (failed): turn 1, timed_out"),
]  # fmt: skip


@pytest.mark.parametrize(("ends", "told"), OUTCOMES, ids=["empty", "exit 0", "killed", "limit"])
def test_each_bad_end_has_an_outcome_of_its_own(lead, ends, told):
    wait(lead, "a")
    lead.finish("lead")
    ends(lead)
    assert told in lead.prompt("lead")
    assert "success" not in lead.prompt("lead")


def test_a_change_of_members_at_work_asks_for_no_questions(lead, monkeypatch):
    wait(lead)
    monkeypatch.setattr(lead.registry.store, "askers", lambda agents: pytest.fail(f"asked about {agents}"))
    with lead.registry.change("bell recorded") as change:
        change.put(replace(lead.agent("a"), told="x"))


def test_two_waits_on_one_child_wake_both_and_the_same_wait_again_wakes_once(lead):
    wait(lead, "b", name="a")
    wait(lead, "b")
    wait(lead, "b", note="again")
    lead.finish("lead")
    lead.finish("a")
    lead.finish("b", "result of b")
    assert "> result of b" in lead.prompt("a")
    assert lead.prompt("lead").count("> result of b") == 1
    assert "again" in lead.prompt("lead")
    assert len(lead.told("lead", "wait:woke")) == 1


def test_no_one_waits_for_itself_an_ancestor_a_stranger_or_in_a_circle(lead):
    lead.spawn("stranger", "x")
    lead.spawn("c", "part c", parent="lead")
    for name, whom, word in (
        ("lead", "lead", "itself"), ("a", "lead", "descends"), ("a", "stranger", "family"),
    ):  # fmt: skip
        with pytest.raises(Refused, match=word):
            wait(lead, whom, name=name)
    with pytest.raises(NotFound, match="nemo"):
        wait(lead, "nemo")
    wait(lead, "b", name="a")
    wait(lead, "c", name="b")
    with pytest.raises(Refused, match="c would wait for a, who waits for b, who waits for c"):
        wait(lead, "a", name="c")
    wait(lead)
    with pytest.raises(Refused, match="no children"):
        wait(lead, name="c")


def test_there_is_an_end_of_waits(lead):
    for number in range(15):
        lead.spawn(f"kid{number}", "part", parent="b")
    names = [f"kid{number}" for number in range(15)]
    for name in [*names, "a"]:
        wait(lead, name)
    with pytest.raises(LimitReached, match="16"):
        wait(lead, "b")


def test_finish_messages_taken_over_in_an_operators_command_leave_the_agent_idle(lead):
    lead.finish("lead")
    lead.admission.close()
    lead.finish("a", "result of a")
    lead.finish("b", "result of b")
    assert lead.state("lead") == "queued"
    wait(lead)
    assert (lead.state("lead"), lead.agent("lead").waiting) == ("idle", 0)


def test_a_parent_is_told_what_its_child_waits_for_and_the_result_later(lead):
    inbox = Inbox(lead.registry)
    lead.finish("lead")
    lead.supervisor.end("b")
    lead.fall("b")
    number = inbox.ask(lead.agent("a"), Question("which way?"))
    lead.finish("a", "two ways are open")
    told = lead.prompt("lead")
    assert f"a has finished turn 1: not done, it waits for the operator's answer to its question {number}." in told
    for quoted in ("> two ways are open", f"> Question {number}: which way?"):
        assert quoted in told
    assert "success" not in told
    lead.finish("lead")
    inbox.answer(number, "left")
    lead.finish("a", "went left")
    assert "a has finished turn 2: success" in lead.prompt("lead")
    assert "> went left" in lead.prompt("lead")


def test_a_parent_that_waits_is_not_woken_by_a_question_and_learns_of_it_at_the_deadline(lead):
    inbox = Inbox(lead.registry)
    wait(lead, "a", timeout_s=60)
    lead.finish("lead")
    number = inbox.ask(lead.agent("a"), Question("which way?"))
    lead.finish("a", "two ways are open")
    assert (lead.state("lead"), lead.agent("lead").waiting) == ("idle", 0)
    pass_time(lead, 61)
    told = lead.prompt("lead")
    assert f"a (idle): turn 1, not done, it waits for the operator's answer to its question {number}" in told
    assert f"> Question {number}: which way?" in told
    assert "success" not in told


def test_a_request_to_an_agent_that_asks_is_answered_once_that_is_answered(lead):
    inbox = Inbox(lead.registry)
    lead.finish("lead")
    lead.finish("a")
    lead.finish("b")
    lead.finish("lead")
    lead.supervisor.message(lead.agent("a"), "b", "do this", Intent.REQUEST)
    number = inbox.ask(lead.agent("b"), Question("shall I?"))
    lead.finish("b", "I have asked")
    assert "not done, it waits for the operator's answer" in lead.prompt("a")
    lead.finish("a")
    inbox.answer(number, "yes")
    lead.finish("b", "this is done")
    assert "has ended: success" in lead.prompt("a")
    assert "> this is done" in lead.prompt("a")
