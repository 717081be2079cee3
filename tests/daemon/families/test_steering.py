"""What an agent does to its descendants: answers that are true, and no wake for what it did itself."""

import pytest

from substrat.core.agents.records import Intent
from substrat.core.families.waits import WaitMode
from substrat.daemon.agents.inbox import Inbox, Question
from substrat.daemon.families.steering import Steering
from substrat.errors import NotFound, Refused


@pytest.fixture
def steering(agents):
    """A lead whose turn runs, with children `a`, `b` and `c` whose turns run."""
    agents.spawn("lead", "work")
    for name in "abc":
        agents.spawn(name, f"part {name}", parent="lead")
    return Steering(agents.supervisor, agents.families.waits)


def wait(agents, *names):
    return agents.families.waits.register(agents.agent("lead"), names or None, WaitMode.ALL, None, None)


def woken(agents):
    """Whether anything waits for the lead, or has started a second turn of it."""
    return agents.supervisor.unread(agents.agent("lead")) > 0 or agents.turn("lead").number > 1


def test_the_end_of_agents_wakes_nobody_who_has_ended_them(agents, steering):
    agents.finish("c", "result of c")
    agents.supervisor.message(agents.agent("lead"), "c", "one more thing")
    assert wait(agents, "a", "b")[0] is not None
    agents.supervisor.message(agents.agent("lead"), "a", "and?", Intent.REQUEST)
    agents.supervisor.take_inbox("lead")
    said = steering.end(agents.agent("lead"), ["a", "nobody", "b"], "enough")
    assert said.splitlines() == [
        "ended as soon as the turn is stopped: a",
        "nobody: refused: there is no agent 'nobody': list_agents shows those there are",
        "ended as soon as the turn is stopped: b",
    ]
    assert steering.end(agents.agent("lead"), ["a"], None) == "a is being ended already"
    steering.end(agents.agent("lead"), ["c"], None)
    agents.finish("lead")
    for name in "abc":
        agents.fall(name)
        assert agents.state(name) == "ended"
    assert not woken(agents)
    assert agents.families.waits.listed() == []
    with pytest.raises(NotFound):
        steering.end(agents.agent("lead"), ["nobody"], None)


def test_a_wait_goes_on_for_those_that_were_not_ended_and_is_answered_when_none_is_left(agents, steering):
    wait(agents, "a", "b")
    agents.finish("a", "result of a")
    said = steering.end(agents.agent("lead"), ["b"], None)
    assert "a has finished" in said
    assert "> result of a" in said
    agents.finish("lead")
    agents.fall("b")
    assert not woken(agents), "the answer has told it"
    agents.finish("c", "result of c")
    assert woken(agents)


def test_an_interruption_is_answered_with_what_it_does(agents, steering):
    lead = agents.agent("lead")
    wait(agents, "a")
    assert steering.interrupt(lead, ["a"], None) == "turn 1 of a is being stopped"
    assert steering.interrupt(lead, ["b", "c"], "do this").splitlines() == [
        f"turn 1 of {name} is being stopped; your text begins its next turn" for name in "bc"
    ]
    agents.finish("lead")
    for name in "abc":
        agents.fall(name)
    assert not woken(agents), "neither by a report nor by the wait"
    agents.finish("b", "did it")
    assert agents.state("lead") == "idle", "c goes on with the text"
    agents.finish("c", "so did c")
    assert "> did it" in agents.prompt("lead")
    assert steering.interrupt(lead, ["a"], "begin") == "a runs no turn; your text begins its next turn"
    agents.fall("a")
    agents.supervisor.suspend("a")
    assert "once the operator resumes it" in steering.interrupt(lead, ["a"], "begin")
    agents.supervisor.end("a")
    with pytest.raises(Refused, match="has ended for good"):
        steering.interrupt(lead, ["a"], "begin")


def test_a_result_of_a_turn_that_was_being_stopped_is_told(agents, steering):
    steering.interrupt(agents.agent("lead"), ["a"], None)
    agents.finish("lead")
    agents.finish("a", "just in time")
    steering.end(agents.agent("lead"), ["b", "c"], None)
    agents.fall("b")
    agents.fall("c")
    assert "> just in time" in agents.prompt("lead")


def test_a_wait_names_what_it_does_not_wait_for_and_who_waits_for_a_person(agents, steering):
    Inbox(agents.registry).ask(agents.agent("b"), Question("which way?"))
    agents.finish("b")
    opened, said = wait(agents, "a", "nobody", "b", "lead")
    assert opened.names == ("a", "b")
    for words in (
        "end your turn now",
        "for a person waits b: told as not done once all others have finished",
        "not waited for: there is no agent 'nobody': list_agents shows those there are",
        "not waited for: lead can't wait for itself",
    ):
        assert words in said
    with pytest.raises(NotFound):
        wait(agents, "nobody")
