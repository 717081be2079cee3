"""What a check makes of an agent's work: finished, sent back, or failed; and on what it says that it has passed."""

from dataclasses import replace

import pytest

from substrat.core.agents import turn_check
from substrat.core.agents.records import AgentSettings, Turn
from substrat.core.agents.turn_check import CheckState, TurnCheck
from substrat.core.workspaces import checks
from substrat.core.workspaces.clones import Clone, Kept

HEAD, OTHER, WIP = "a" * 40, "b" * 40, "c" * 40
SETTINGS = AgentSettings(check="make test")
CLONE = Clone("x", "fix", "/t", "/r", "/r/.git", "/r", "substrat/fix", "main", OTHER, kept=Kept(head=HEAD, ahead=1))
UNCOMMITTED = replace(CLONE, kept=replace(CLONE.kept, files=3, wip=WIP))
PASSES = checks.judged("make test", 0, b"", 60)
FAILS = checks.judged("make test", 2, b"one\ntwo\n", 60)


def turn(number=1):
    return Turn("t", "x", number, 1.0)


def begun(before=None, number=1, clone=CLONE):
    found = turn_check.begun(before, SETTINGS, turn(number))
    assert found is not None
    return turn_check.of_files(found, clone)


def test_only_agents_with_a_check_have_their_turns_judged():
    assert turn_check.begun(None, AgentSettings(), turn()) is None
    assert begun() == TurnCheck(1, "make test", commit=HEAD)
    assert begun(clone=UNCOMMITTED) == TurnCheck(1, "make test", commit=HEAD, wip=WIP)
    assert begun(clone=None) == TurnCheck(1, "make test")
    assert turn_check.is_pending(begun())
    assert turn_check.refusal(turn_check.judged(begun(), PASSES, retries=2), turn()) is None


def test_an_agent_is_sent_back_as_often_as_it_has_retries_and_another_task_begins_the_count_anew():
    check = begun()
    for number in (1, 2):
        check = turn_check.judged(check, FAILS, retries=2)
        assert (check.state, check.tries) == (CheckState.AGAIN, number)
        assert turn_check.refusal(check, turn(number)) == "the check `make test` fails with 2: two"
        check = begun(check, number + 1)
        assert (check.tries, turn_check.is_pending(check)) == (number, True)
        assert turn_check.refusal(check, turn(number + 1)) == "the check `make test` is still to come"
    check = turn_check.judged(check, FAILS, retries=2)
    assert (check.state, check.tries) == (CheckState.FAILED, 3)
    assert turn_check.refusal(check, turn(3)) == "the check `make test` fails with 2: two"
    assert turn_check.refusal(check, turn(4)) is None
    assert begun(check, 4).tries == 0


@pytest.mark.parametrize("status", [126, 127, 137, None])
def test_what_is_no_fault_of_the_work_fails_at_once(status):
    found = turn_check.judged(begun(), checks.judged("make test", status, b"", 60), retries=2)
    assert (found.state, found.tries) == (CheckState.FAILED, 1)


def test_a_check_that_was_stopped_or_failed_can_run_anew():
    stopped = turn_check.stopped(begun())
    assert turn_check.refusal(stopped, turn()) == "the check `make test` was stopped"
    again = turn_check.anew(stopped, replace(SETTINGS, check="make lint"))
    assert again is not None
    assert (turn_check.is_pending(again), again.command, again.tries) == (True, "make lint", 0)
    assert turn_check.anew(stopped, AgentSettings()) is None


@pytest.mark.parametrize(
    ("judged", "now", "said", "commit"),
    [
        (CLONE, CLONE, "checked aaaaaaa", HEAD),
        (UNCOMMITTED, UNCOMMITTED, "checked with 3 uncommitted", None),
        (CLONE, UNCOMMITTED, "", None),
        (CLONE, replace(CLONE, kept=replace(CLONE.kept, head=OTHER)), "", None),
        (UNCOMMITTED, replace(UNCOMMITTED, kept=replace(UNCOMMITTED.kept, wip=OTHER)), "", None),
        (CLONE, replace(CLONE, unkept="its index is damaged"), "", None),
        (CLONE, None, "", None),
    ],
)
def test_it_has_passed_on_what_it_saw_and_on_nothing_that_came_after(judged, now, said, commit):
    check = turn_check.judged(begun(clone=judged), PASSES, retries=2)
    assert (turn_check.said_of(check, now), turn_check.passed_on(check, now)) == (said, commit)
    assert turn_check.said_of(turn_check.judged(begun(clone=judged), FAILS, retries=0), now) == ""


def test_the_prompt_says_what_failed_and_how_many_tries_are_left():
    check = turn_check.judged(begun(), FAILS, retries=3)
    said = turn_check.prompt(check, FAILS, retries=3)
    assert "the check `make test` fails with 2: two. It ran on the files as you left them" in said
    assert "\n\none\ntwo\n\n" in said
    assert said.endswith("if it fails, 2 tries are left.")
