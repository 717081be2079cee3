"""Whether something that an agent needs has succeeded, never will, or is still to be waited for."""

import pytest

from sandbox.spec import Network
from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.records import Agent, Completion, Outcome, Turn
from substrat.core.agents.rights import Policy
from substrat.core.families import needs


def agent(phase, **changes):
    return Agent("x", "x", phase, "/w", "m", Policy(Network.HOST), 1.0, **changes)


def turn(outcome, **changes):
    return Turn("t", "x", 1, 1.0, outcome=outcome, **changes)


SAID = {"report": "done"}


@pytest.mark.parametrize(
    ("found", "last", "has_finished", "met", "why"),
    [
        (None, None, True, False, "removed"),
        (agent(Phase.RUNNING), turn(None), False, None, ""),
        (agent(Phase.QUEUED), turn(Outcome.SUCCESS, **SAID), False, None, ""),
        (agent(Phase.IDLE), None, True, None, ""),
        (agent(Phase.IDLE), turn(Outcome.SUCCESS, **SAID), True, True, ""),
        (agent(Phase.ENDED), turn(Outcome.SUCCESS, **SAID), True, True, ""),
        (agent(Phase.IDLE), turn(Outcome.SUCCESS, report=""), True, False, "empty"),
        (agent(Phase.IDLE), turn(Outcome.SUCCESS, completion=Completion.FAILED, **SAID), True, False, "failed"),
        (agent(Phase.IDLE), turn(Outcome.SUCCESS, completion=Completion.UNFIT, **SAID), True, False, "schema"),
        (agent(Phase.IDLE), turn(Outcome.INTERRUPTED), True, None, ""),
        (agent(Phase.ENDED), turn(Outcome.INTERRUPTED), True, False, "interrupted"),
        (agent(Phase.FAILED), turn(Outcome.ERROR), True, False, "error"),
        (agent(Phase.FAILED), turn(Outcome.LOST), True, False, "lost"),
        (agent(Phase.FAILED), turn(Outcome.TIMED_OUT), True, False, "timed_out"),
        (agent(Phase.FAILED), None, True, False, "without a turn"),
        (agent(Phase.FAILED, unmet="why"), None, True, False, "hasn't run"),
        (agent(Phase.ENDED), None, True, False, "ended"),
    ],
)
def test_the_state_of_a_need(found, last, has_finished, met, why):
    state = needs.state_of(found, last, has_finished=has_finished)
    assert state.met is met
    assert why in state.why


def test_all_that_failed_is_named():
    assert needs.unmet([("a", "was removed"), ("b", "has failed")]) == (
        "it doesn't run, because it needs a, which was removed, and b, which has failed"
    )
