"""The machine sleeps under a turn, or its clock is set: no time counts in which nothing could run."""

import pytest

from substrat.core.agents.records import Process
from substrat.core.agents.turn_limits import time_silent, time_used

STEPS = pytest.mark.parametrize("step", [100_000.0, -100_000.0])


def attention(agents, name):
    (shown,) = agents.families.overview.of([agents.agent(name)])
    return shown["attention"]


@pytest.fixture
def busy(new_agents):
    agents = new_agents()
    agents.spawn("bob", "the task")
    agents.begin("bob")
    agents.book.turn_spawned(agents.turn("bob").id, Process(1, 1, "b"))
    return agents


@STEPS
def test_a_leap_is_no_time_of_the_turns(busy, step):
    busy.clock.leap(step)
    assert attention(busy, "bob")["kind"] == "working"
    busy.restart()
    assert attention(busy, "bob")["kind"] == "working"
    turn, steady = busy.turn("bob"), busy.clock.steady()
    assert 0 < time_used(turn, steady) < 10
    assert 0 <= time_silent(turn, steady, None) < 10
    busy.clock.time += 1000
    assert time_used(turn, busy.clock.steady()) > 1000
    assert time_silent(turn, busy.clock.steady(), None) > 1000
    assert attention(busy, "bob")["text"].startswith("no progress for 17 min")
    busy.write("bob", {"type": "thinking"})
    assert attention(busy, "bob")["kind"] == "working"


@STEPS
def test_a_leap_in_a_freeze_is_none_either(busy, step):
    busy.clock.time += 100
    busy.supervisor.freeze("bob")
    busy.clock.time += 1000
    busy.clock.leap(step)
    assert 100 < time_used(busy.turn("bob"), busy.clock.steady()) < 110
    busy.supervisor.resume("bob", None)
    turn, steady = busy.turn("bob"), busy.clock.steady()
    assert 100 < time_used(turn, steady) < 110
    assert time_silent(turn, steady, None) < 10
    assert attention(busy, "bob")["kind"] == "working"


def test_a_machine_that_starts_anew_leaves_nothing_unreadable(busy):
    busy.supervisor.freeze("bob")
    busy.clock.gone += 90_000.0
    busy.supervisor.resume("bob", None)
    busy.restart()
    assert busy.turn("bob").paused == 0
