"""The gate of a login whose account has used up what it may: for how long it is shut, who tries, what opens it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.core.agents.records import Turn
from substrat.core.families import account_gate
from substrat.core.families.account_gate import (
    Gate,
    after_other_end,
    may_try,
    obstacle,
    opened,
    pause,
    shut,
    tried_by_a_person,
)

LOGIN = "cursor-agent:0123456789abcdef"


def turn(name="t", started_at=0.0):
    return Turn(name, "agent", 1, started_at)


def test_each_failure_in_a_row_doubles_the_time_up_to_an_hour():
    assert [pause(failures) / 60 for failures in range(1, 8)] == [5, 10, 20, 40, 60, 60, 60]
    gate, now = None, 1000.0
    for failures in range(1, 200):
        gate = shut(gate, LOGIN, turn(f"t{failures}", started_at=now), "used up", None, now + 1)
        assert (gate.failures, gate.until) == (failures, now + 1 + pause(failures))
        now = gate.until


def test_a_hundred_turns_that_ran_already_count_as_one():
    first = shut(None, LOGIN, turn("a", 10.0), "used up", None, 100.0)
    gate = first
    for number in range(100):
        gate = shut(gate, LOGIN, turn(f"b{number}", 11.0), "used up", None, 101.0 + number)
    assert gate == first
    assert shut(gate, LOGIN, turn("c", 12.0), "used up", 9000.0, 300.0) == first, "the nearer time counts"
    assert shut(gate, LOGIN, turn("c", 12.0), "used up", 390.0, 300.0).until == 390.0


def test_what_ran_before_a_second_model_met_the_limit_shows_nothing():
    """Neither a success nor ten failures of its turns say anything about the login as a whole."""
    of_a, of_b = replace(turn("a", 10.0), model="a"), replace(turn("b", 200.0), model="b")
    gate = shut(shut(None, LOGIN, of_a, "used up", 3000.0, 100.0), LOGIN, of_b, "used up", None, 300.0)
    assert (gate.model, gate.until) == (None, 3000.0)
    ran_already = replace(turn("c", 250.0), model="b")
    assert after_other_end(gate, ran_already, succeeded=True) == gate
    for number in range(10):
        gate = shut(gate, LOGIN, replace(turn(f"b{number}", 210.0), model="b"), "used up", None, 301.0 + number)
    assert (gate.failures, gate.until) == (1, 3000.0)


def test_a_stated_time_counts_for_an_hour_until_another_family_has_met_the_limit():
    month = 30 * 86400.0
    gate = shut(None, LOGIN, turn(), "used up", month, 100.0)
    assert gate.until == 3700.0
    again = shut(gate, LOGIN, turn("b", 3700.0), "used up", month, 3701.0)
    assert again.until == 7301.0
    assert shut(gate, LOGIN, turn("b", 3700.0), "used up", month, 3701.0, is_confirmed=True).until == month


def test_a_stated_time_counts_in_place_of_the_pause():
    gate = shut(None, LOGIN, turn(), "used up", 3000.0, 100.0)
    assert gate.until == 3000.0
    told = obstacle(gate, 399.0, "a", is_trying=False, blamed="lead")
    assert "used up what it may, by a turn of lead; held until 1970-01-01T00:50:00.000Z: " in told.text


def test_one_turn_tries_when_it_is_time():
    gate = shut(None, LOGIN, turn(), "used up", None, 100.0)
    assert not may_try(gate, 399.0, is_trying=False)
    assert may_try(gate, 400.0, is_trying=False)
    assert not may_try(gate, 400.0, is_trying=True)
    assert "held until 1970-01-01T00:06:40.000Z: " in obstacle(gate, 399.0, "a", is_trying=False).text
    assert obstacle(gate, 399.0, "a", is_trying=False).until == 400.0
    assert "another turn tries" in obstacle(gate, 500.0, "a", is_trying=True).text
    assert obstacle(gate, 500.0, "a", is_trying=False) is None


def test_when_it_opens_the_turns_of_its_login_begin_one_after_the_other():
    gate = opened(shut(None, LOGIN, turn(), "used up", None, 100.0), 400.0)
    assert not gate.is_shut
    agents = [f"agent-{number}" for number in range(100)]
    found = [obstacle(gate, 400.0, agent, is_trying=False) for agent in agents]
    times = [one.until for one in found if one is not None and one.until is not None]
    assert len(set(times)) == 100
    assert 400.0 < min(times) < 401.0
    assert 404.0 < max(times) < gate.until == 400.0 + account_gate.SPREAD_S
    for agent, time in zip(agents, times, strict=True):
        assert obstacle(gate, time - 0.001, agent, is_trying=False).until == time
        assert obstacle(gate, time, agent, is_trying=False) is None
        assert obstacle(gate, 399.0, agent, is_trying=False) is None, "the clock was set back"


def test_it_holds_the_model_that_met_the_limit_and_all_once_a_second_one_has():
    gate = shut(None, LOGIN, replace(turn(), model="opus"), "used up", 3000.0, 100.0)
    assert (gate.holds("opus"), gate.holds("auto"), gate.holds(None)) == (True, False, True)
    told = obstacle(gate, 399.0, "a", is_trying=False).text
    assert "what it may with the model opus" in told
    assert "`substratctl set NAME model=…` goes on with another model" in told
    other = replace(turn("other", 150.0), model="auto")
    assert after_other_end(gate, other, succeeded=True) == gate, "another model's success says nothing"
    both = shut(gate, LOGIN, other, "used up", 2000.0, 200.0)
    assert (both.holds("auto"), both.until, both.failures) == (True, 2000.0, 1)
    assert shut(gate, LOGIN, other, "used up", None, 3100.0).until == 3100.0 + 300.0, "its own time is over"
    again = shut(gate, LOGIN, replace(turn("next", 3001.0), model="opus"), "used up", None, 3002.0)
    assert (again.model, again.failures) == ("opus", 2)


def test_a_clock_that_is_set_back_holds_nobody():
    gate = shut(None, LOGIN, turn(), "used up", None, 1_000_000.0)
    assert may_try(gate, 5.0, is_trying=False)


def test_a_person_lets_one_try():
    gate = shut(None, LOGIN, turn(), "used up", 9000.0, 100.0)
    tried = tried_by_a_person(gate, 150.0)
    assert may_try(tried, 150.0, is_trying=False)
    again = shut(tried, LOGIN, turn("next", 151.0), "used up", None, 160.0)
    assert (again.failures, again.until) == (2, 160.0 + 600.0)


@pytest.mark.parametrize(
    ("which", "succeeded", "after"),
    [("trial", True, "open"), ("trial", False, "free"), ("newer", True, "open"), ("newer", False, "same"),
     ("older", True, "same"), ("older", False, "same")],
)  # fmt: skip
def test_success_opens_and_another_end_frees_the_trial(which, succeeded, after):
    gate = Gate(LOGIN, "agent", "used up", 100.0, 400.0, 1, "trial")
    ended = {"trial": turn("trial", 50.0), "newer": turn("newer", 401.0), "older": turn("older", 50.0)}[which]
    found = after_other_end(gate, ended, succeeded=succeeded)
    assert found == {"open": None, "free": Gate(LOGIN, "agent", "used up", 100.0, 400.0, 1), "same": gate}[after]


@given(st.lists(st.tuples(st.sampled_from(["limit", "success", "other", "try"]), st.floats(0, 5000)), max_size=30))
def test_a_gate_is_never_shut_for_ever(steps):
    """Whatever happens, a turn may try within an hour, unless one tries already."""
    gate, now, count = None, 1000.0, 0
    for what, span in steps:
        now += span
        if what == "try" and gate is not None:
            gate = tried_by_a_person(gate, now)
        elif gate is None or may_try(gate, now, is_trying=False):
            count += 1
            begun = turn(f"t{count}", now)
            gate = None if gate is None else replace(gate, trial=begun.id)
            now += 1
            if what == "limit":
                gate = shut(gate, LOGIN, begun, "used up", None, now)
            elif gate is not None:
                gate = after_other_end(gate, begun, succeeded=what == "success")
        assert gate is None or gate.until - now <= account_gate.LONGEST_S
        assert gate is None or gate.trial is None
