"""The lifecycle's table against a grid written down independently, and against a small model of what people see."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.core.agents import lifecycle
from substrat.core.agents.lifecycle import (
    LIVE_PHASES,
    RUNNING_PHASES,
    STATE_OF,
    TABLE,
    Admit,
    Event,
    FreezeTurn,
    Phase,
    StartTurn,
    StopTurn,
    ThawTurn,
    settle,
    step,
)
from substrat.core.agents.stop_reason import ENDED, INTERRUPTED, SUSPENDED
from substrat.errors import Refused
from substrat.protocol.vocabulary import AGENT_STATES
from tests.support.cases import each

DOCUMENT = Path(__file__).parents[3] / "docs" / "lifecycle.md"

# One row a phase, one column an event: the phase afterwards, `-` for a refusal, `?` for idle, queued or checking, as
# `settle` says.
GRID = """
phase        prompt       mail         start   suspend    freeze     resume       interrupt    end    succeeded stopped   failed    retried unprepared unmet  passed refused sent-back emptied
idle         queued       queued       -       suspended  suspended  idle         -            ended  -         -         -         -       failed     -      -      -       -         -
queued       queued       queued       running suspended  suspended  queued       -            ended  -         -         -         -       failed     failed -      -       -         idle
checking     checking     checking     -       suspended  suspended  checking     ?            ended  -         -         -         -       -          -      ?      failed  queued    -
running      running      running      -       suspending frozen     running      interrupting ending ?         failed    failed    queued  -          -      -      -       -         -
suspending   suspending   suspending   -       suspending suspending -            -            ending suspended suspended suspended -       -          -      -      -       -         -
interrupting interrupting interrupting -       suspending -          interrupting interrupting ending ?         ?         ?         -       -          -      -      -       -         -
ending       -            -            -       -          -          -            -            ending ended     ended     ended     -       -          -      -      -       -         -
suspended    suspended    suspended    -       suspended  suspended  ?            -            ended  -         -         -         -       suspended  -      -      -       -         -
frozen       frozen       frozen       -       suspending frozen     running      interrupting ending suspended suspended suspended -       -          -      -      -       -         -
failed       queued       failed       -       suspended  suspended  ?            -            ended  -         -         -         -       failed     -      -      -       -         -
ended        -            -            -       -          -          -            -            ended  -         -         -         -       ended      -      -      -       -         -
"""  # noqa: E501 - a table
ROWS = [line.split() for line in GRID.strip().splitlines()[1:]]
CELLS = [(Phase(row[0]), event, target) for row in ROWS for event, target in zip(Event, row[1:], strict=True)]
LEGAL = [cell for cell in CELLS if cell[2] != "-"]
ILLEGAL = [cell[:2] for cell in CELLS if cell[2] == "-"]


def test_the_grid_is_whole():
    assert [row[0] for row in ROWS] == [phase.value for phase in Phase]
    assert len(CELLS) == len(Phase) * len(Event)


@each("unchecked", [False, True])
@each("waiting", [False, True])
@each(("phase", "event", "target"), LEGAL)
def test_a_legal_step(phase, event, target, waiting, unchecked):
    after, commands = step(phase, event, waiting=waiting, unchecked=unchecked)
    assert after == (settle(waiting=waiting, unchecked=unchecked) if target == "?" else target)
    assert all(isinstance(command, lifecycle.LifecycleCommand) for command in commands)


@each("waiting", [False, True])
@each(("phase", "event"), ILLEGAL)
def test_an_illegal_step_is_refused_and_changes_nothing(phase, event, waiting):
    before = {row: dict(cells) for row, cells in TABLE.items()}
    with pytest.raises(Refused) as refusal:
        step(phase, event, waiting=waiting, name="rex")
    assert refusal.value.message.startswith("rex ")
    assert before == TABLE


@each(("phase", "event"), ILLEGAL)
def test_a_refusal_is_a_sentence_about_what_people_see(phase, event):
    with pytest.raises(Refused) as refusal:
        step(phase, event, waiting=False)
    for hidden in ("Phase", "suspending", "interrupting"):
        assert hidden not in refusal.value.message


@each("phase", Phase)
def test_every_phase_has_a_public_state(phase):
    assert STATE_OF[phase] in AGENT_STATES
    assert (STATE_OF[phase] == "running") == (phase in RUNNING_PHASES)


def test_every_public_state_is_some_phase():
    assert set(STATE_OF.values()) == set(AGENT_STATES)


def targets(phase):
    found = set()
    for cell in TABLE[phase].values():
        found |= {cell.phase} if cell.phase else {Phase.IDLE, Phase.QUEUED, Phase.CHECKING}
    return found


def reachable(start):
    seen, todo = {start}, [start]
    while todo:
        for phase in targets(todo.pop()) - seen:
            seen.add(phase)
            todo.append(phase)
    return seen


@each("phase", [phase for phase in Phase if phase is not Phase.ENDED])
def test_no_phase_is_a_dead_end(phase):
    assert targets(phase) - {phase}
    assert {Phase.ENDED, Phase.SUSPENDED} & reachable(phase)
    assert Phase.ENDED in reachable(phase)


@each("phase", [phase for phase in Phase if phase not in {Phase.ENDED, Phase.ENDING}])
def test_everything_that_has_not_ended_can_work_again(phase):
    assert Phase.RUNNING in reachable(phase)


def test_ended_is_for_good():
    assert reachable(Phase.ENDED) == {Phase.ENDED}


def test_everything_is_reachable_from_the_beginning():
    assert reachable(Phase.IDLE) == set(Phase)


@each("phase", sorted(RUNNING_PHASES))
@each("event", [Event.TURN_SUCCEEDED, Event.TURN_STOPPED, Event.TURN_FAILED])
def test_what_became_of_a_turn_is_never_refused_and_frees_its_slot(phase, event):
    after, commands = step(phase, event, waiting=False)
    assert after not in RUNNING_PHASES
    assert Admit() in commands


@each(("phase", "event", "target"), LEGAL)
def test_a_turn_is_stopped_once_and_started_once(phase, event, target):
    _, commands = step(phase, event, waiting=True)
    being_stopped = target.endswith("ing") and target != "running"
    stops = [command.reason for command in commands if isinstance(command, StopTurn)]
    reasons = {"suspending": SUSPENDED, "interrupting": INTERRUPTED, "ending": ENDED}
    assert stops == ([reasons[target]] if phase in {Phase.RUNNING, Phase.FROZEN} and being_stopped else [])
    assert (FreezeTurn() in commands) == (phase is Phase.RUNNING and target == "frozen")
    assert (ThawTurn() in commands) == (phase is Phase.FROZEN and target == "running")
    assert (StartTurn() in commands) == (event is Event.START)


@pytest.mark.parametrize("phase", [Phase.IDLE, Phase.FAILED])
def test_a_prompt_makes_an_agent_that_does_nothing_a_candidate(phase):
    assert step(phase, Event.PROMPT, waiting=True) == (Phase.QUEUED, (Admit(),))


REQUESTS = (Event.SUSPEND, Event.FREEZE, Event.RESUME, Event.INTERRUPT, Event.END)


@each("event", REQUESTS)
@each("phase", Phase)
def test_asking_twice_is_asking_once(phase, event):
    try:
        once, _ = step(phase, event, waiting=False)
    except Refused:
        return
    if once in {Phase.IDLE, Phase.QUEUED} and event is Event.RESUME:
        return  # resume of an idle agent is its own case in the grid
    if phase is Phase.CHECKING and event is Event.INTERRUPT:
        return  # its check is over at once, and then there is nothing to interrupt
    assert step(once, event, waiting=False) == (once, ())


class Model:
    """What people see, in the words of the documentation: a state, and while it runs, what was asked for last."""

    def __init__(self):
        self.state = "idle"
        self.wish = None
        self.frozen = False
        self.checking = False

    def allows(self, event):
        if event.startswith("turn"):
            if self.frozen:
                return event is not Event.TURN_RETRIED
            return self.state == "running" and (event is not Event.TURN_RETRIED or self.wish is None)
        match event:
            case Event.END:
                return True
            case Event.UNPREPARED:
                return self.state != "running" and not self.frozen and not self.checking
            case Event.START | Event.EMPTIED | Event.UNMET:
                return self.state == "queued" and not self.checking
            case Event.CHECK_PASSED | Event.CHECK_FAILED | Event.SENT_BACK:
                return self.checking
            case Event.INTERRUPT:
                return self.frozen or self.checking or (self.state == "running" and self.wish in {None, "interrupt"})
            case Event.FREEZE:
                return self.state != "ended" and self.wish not in {"interrupt", "end"}
            case Event.RESUME:
                return self.state != "ended" and self.wish not in {"suspend", "end"}
            case _:
                return self.state != "ended" and self.wish != "end"

    def take(self, event, waiting, pending):
        rest = "queued" if waiting or pending else "idle"
        running = self.state == "running"
        if self.frozen:
            self.take_frozen(event)
        elif self.checking:
            self.take_checking(event, rest)
        elif event is Event.FREEZE and running and self.wish is None:
            self.state, self.frozen = "suspended", True
        elif event is Event.TURN_RETRIED:
            self.state = "queued"
        elif event.startswith("turn"):
            failed = event is not Event.TURN_SUCCEEDED
            arrived = {"end": "ended", "suspend": "suspended", "interrupt": rest, None: "failed" if failed else rest}
            self.state, self.wish = arrived[self.wish], None
            self.checking = pending and self.state == "queued"
        elif event is Event.UNPREPARED:
            self.state = "failed" if self.state in {"idle", "queued"} else self.state
        elif event in {Event.START, Event.EMPTIED, Event.UNMET}:
            self.state = {Event.START: "running", Event.EMPTIED: "idle", Event.UNMET: "failed"}[event]
        elif running:
            asked = {Event.SUSPEND: "suspend", Event.INTERRUPT: "interrupt", Event.END: "end"}.get(event)
            self.wish = asked or self.wish
        elif event in {Event.SUSPEND, Event.FREEZE}:
            self.state = "suspended"
        elif event is Event.END:
            self.state = "ended"
        elif event is Event.RESUME and self.state in {"suspended", "failed"}:
            self.state, self.checking = rest, pending
        elif event in {"idle": {Event.PROMPT, Event.MAIL}, "failed": {Event.PROMPT}}.get(self.state, ()):
            self.state = "queued"

    def take_checking(self, event, rest):
        after = {
            Event.SUSPEND: "suspended", Event.FREEZE: "suspended", Event.END: "ended", Event.INTERRUPT: rest,
            Event.CHECK_PASSED: rest, Event.CHECK_FAILED: "failed", Event.SENT_BACK: "queued",
        }  # fmt: skip
        self.checking = event not in after
        self.state = after.get(event, self.state)

    def take_frozen(self, event):
        if event.startswith("turn"):
            self.frozen = False
        elif event in {Event.SUSPEND, Event.INTERRUPT, Event.END, Event.RESUME}:
            asked = {Event.SUSPEND: "suspend", Event.INTERRUPT: "interrupt", Event.END: "end"}
            self.state, self.frozen, self.wish = "running", False, asked.get(event)


@given(st.lists(st.tuples(st.sampled_from(Event), st.booleans(), st.booleans()), max_size=40))
def test_any_walk_shows_what_the_model_shows(walk):
    """`pending`: a turn that has succeeded is still to be checked, which a verdict and who stops it put an end to."""
    model, phase, pending = Model(), Phase.IDLE, False
    for event, waiting, is_checked in walk:
        if not model.allows(event):
            with pytest.raises(Refused):
                step(phase, event, waiting=waiting, unchecked=pending)
            continue
        if event is Event.TURN_SUCCEEDED:
            pending = is_checked
        elif event in {Event.INTERRUPT, Event.END, Event.CHECK_PASSED, Event.CHECK_FAILED, Event.SENT_BACK}:
            pending = False
        phase, _ = step(phase, event, waiting=waiting, unchecked=pending)
        model.take(event, waiting, pending)
        assert (STATE_OF[phase], phase is Phase.CHECKING) == (model.state, model.checking)


@given(st.lists(st.sampled_from(Event), max_size=60))
def test_turns_start_and_end_alternately(walk):
    phase, running, stops = Phase.IDLE, False, 0
    for event in walk:
        try:
            phase, commands = step(phase, event, waiting=True)
        except Refused:
            continue
        if StartTurn() in commands:
            assert not running
            running, stops = True, 0
        stops += any(isinstance(command, StopTurn) for command in commands)
        assert stops <= 1
        if event.startswith("turn"):
            assert running
            running = False
        assert running == (phase in LIVE_PHASES)


def test_the_documented_diagram_is_the_table():
    text = DOCUMENT.read_text()
    found = re.search(r"<!-- lifecycle:begin -->\n```mermaid\n(.*?)\n```\n<!-- lifecycle:end -->", text, re.DOTALL)
    drawn = "\n".join(lifecycle.diagram())
    assert found is not None, "docs/lifecycle.md has no ```mermaid block between the lifecycle comment lines"
    assert found[1] == drawn, (
        "the diagram is out of date: put the output of `python -m substrat.core.agents.lifecycle` into "
        "docs/lifecycle.md, inside the ```mermaid block between the lifecycle comment lines"
    )
