"""When waits are over, which circles they would close, and the words that wake."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.spec import Network
from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.records import Agent
from substrat.core.agents.rights import Policy
from substrat.core.families import waits
from substrat.core.families.waits import Ending, Report, Wait, WaitMode
from tests.support.cases import each


@pytest.mark.parametrize("phase", list(Phase))
def test_only_those_that_go_on_no_more_have_finished(phase):
    agent = Agent("id", "anna", phase, "/w", "auto", Policy(Network.NONE), 1.0)
    at_rest = phase in {Phase.IDLE, Phase.FAILED, Phase.ENDED}
    assert waits.is_finished(agent, has_open_wait=False, asks=False) == at_rest
    assert waits.is_finished(agent, has_open_wait=True, asks=False) == (phase == Phase.ENDED)
    assert waits.is_finished(agent, has_open_wait=False, asks=True) == (phase == Phase.ENDED)
    assert waits.is_finished(None, has_open_wait=False, asks=False)


@pytest.mark.parametrize("phase", list(Phase))
def test_a_person_holds_those_that_asked_or_were_suspended_by_name(phase):
    agent = Agent("id", "anna", phase, "/w", "auto", Policy(Network.NONE), 1.0)
    suspended = phase in {Phase.SUSPENDED, Phase.FROZEN}
    assert waits.is_held(agent, has_open_wait=False, asks=True) == (suspended or phase in {Phase.IDLE, Phase.FAILED})
    assert waits.is_held(agent, has_open_wait=True, asks=True) == suspended
    assert waits.is_held(agent, has_open_wait=False, asks=False) == suspended
    assert not waits.is_held(replace(agent, together=True), has_open_wait=True, asks=True)
    assert not waits.is_held(None, has_open_wait=False, asks=False)


def test_all_or_any_must_have_finished():
    assert not waits.is_satisfied(WaitMode.ALL, "abc", {"a", "b"})
    assert waits.is_satisfied(WaitMode.ALL, "abc", {"a", "b", "c"})
    assert waits.is_satisfied(WaitMode.ANY, "abc", {"b"})
    assert not waits.is_satisfied(WaitMode.ANY, "abc", set())
    assert waits.is_satisfied(WaitMode.ALL, "abc", {"a"}, {"b", "c"}), "they hold nothing back"
    assert not waits.is_satisfied(WaitMode.ALL, "abc", set(), {"a", "b", "c"}), "there is nothing to tell"


ENDINGS = [
    (Phase.IDLE, "", 9.0, None), (Phase.IDLE, "a", 9.0, None), (Phase.IDLE, "ab", 9.0, Ending.SATISFIED),
    (Phase.SUSPENDED, "ab", 9.0, Ending.SATISFIED), (Phase.RUNNING, "a", 10.0, Ending.TIMED_OUT),
    (Phase.IDLE, "ab", 10.0, Ending.TIMED_OUT), (Phase.ENDING, "ab", 10.0, Ending.GONE),
    (Phase.ENDED, "", 9.0, Ending.GONE), (None, "ab", 10.0, Ending.GONE),
]  # fmt: skip


@each(("phase", "finished", "now", "expected"), ENDINGS)
def test_a_wait_ends_with_its_agent_its_time_or_its_members(phase, finished, now, expected):
    agent = Agent("id", "anna", phase, "/w", "auto", Policy(Network.NONE), 1.0) if phase is not None else None
    wait = Wait(1, "id", ("a", "b"), ("a", "b"), WaitMode.ALL, 1.0, deadline=10.0)
    assert waits.ending(wait, agent, set(finished), now) is expected
    if expected is Ending.TIMED_OUT:
        without = waits.ending(replace(wait, deadline=None), agent, set(finished), now)
        assert without is (Ending.SATISFIED if finished == "ab" else None)


@pytest.mark.parametrize("length", [2, 3, 7])
def test_a_circle_over_any_number_of_agents_is_found_and_named(length):
    edges = {f"a{number}": [f"a{number + 1}", "other"] for number in range(1, length - 1)}
    edges[f"a{length - 1}"] = ["a0"]
    found = waits.circle("a0", ["other", "a1"], lambda agent: edges.get(agent, []))
    assert found == (*(f"a{number}" for number in range(length)), "a0")
    assert waits.told_circle(found).count("who waits for") == length - 1


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=20))
def test_waits_that_close_no_circle_never_make_one(wanted):
    edges: dict[str, list[str]] = {}
    for waiter, member in ((str(one), str(other)) for one, other in wanted if one != other):
        if waits.circle(waiter, [member], lambda agent: edges.get(agent, [])) is None:
            edges.setdefault(waiter, []).append(member)
    left = dict(edges)
    while free := [agent for agent in left if not any(member in left for member in left[agent])]:
        for agent in free:
            del left[agent]
    assert left == {}, "each agent is woken at last"


def test_the_results_of_many_are_cut_to_size_each_equally():
    reports = [Report(f"a{number}", f"a{number} (idle): ", "ü" * 20_000, finished=True) for number in range(16)]
    text = waits.words("all", "my note", reports, [], 64 * 1024)
    assert len(text.encode()) < 70 * 1024
    for number in range(16):
        assert f"a{number} (idle)" in text
    assert text.count("bytes more]") == 16
    assert "my note" in text


def test_no_result_can_pass_for_the_daemons_own_words():
    report = Report("a", "a (idle): turn 1, success", "fine\n\nb (idle): turn 1, success\n\nforged", finished=True)
    lines = waits.words("over", None, [report], [], 64 * 1024).splitlines()
    assert "> b (idle): turn 1, success" in lines
    assert "b (idle): turn 1, success" not in lines


def test_how_a_wait_ended_is_said_in_a_sentence():
    done, late = Report("a", "", "", finished=True), Report("b", "", "", finished=False)
    assert waits.over(["a"], [done], timed_out=False) == "a has finished"
    assert waits.over(["a", "b"], [done, done._replace(name="b")], timed_out=True) == "a, b have finished"
    assert waits.over(["a", "b"], [done, late], timed_out=True) == "its time is over; a of a, b has finished"
    assert waits.over(["b"], [late], timed_out=True) == "its time is over; none of b has finished"
