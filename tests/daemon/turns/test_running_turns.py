"""Effects that come while a turn's task isn't running it: before its launch, and between its end and its account."""

from substrat.core.agents.stop_reason import SUSPENDED
from substrat.daemon.failpoints import Failpoints
from substrat.daemon.state.layout import Layout
from substrat.daemon.state.trash import Trash
from substrat.daemon.turns.running_turns import RunningTurns


class FakeTurn:
    def __init__(self):
        self.turn = "t"
        self.reasons = []

    def stop(self, reason):
        self.reasons.append(reason)


def new_turns():
    layout = Layout("/state", "/runtime")
    return RunningTurns(layout, Trash("/state/trash", lambda: None), Failpoints({}))


def test_a_stop_before_the_launch_waits_for_the_turn():
    turns, running = new_turns(), FakeTurn()
    turns.stop("t", SUSPENDED)
    turns.add(running)
    assert running.reasons == [SUSPENDED]


def test_a_stop_after_the_end_is_forgotten_with_the_turn():
    turns = new_turns()
    turns.add(FakeTurn())
    turns.remove("t")
    turns.stop("t", SUSPENDED)
    turns.accounted_for("t")
    again = FakeTurn()
    turns.add(again)
    assert again.reasons == []
