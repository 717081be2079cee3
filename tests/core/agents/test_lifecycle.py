"""The lifecycle's table against a grid written down independently, and the states that people see."""

import re
from pathlib import Path

import pytest

from substrat.core.agents import lifecycle
from substrat.core.agents.lifecycle import (
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
phase        prompt       mail         start   suspend    freeze     resume       interrupt    end    succeeded stopped   failed    retried unprepared unmet  wanted   passed refused sent-back emptied
idle         queued       queued       -       suspended  suspended  idle         -            ended  -         -         -         -       failed     -      checking -      -       -         -
queued       queued       queued       running suspended  suspended  queued       -            ended  -         -         -         -       failed     failed -        -      -       -         idle
checking     checking     checking     -       suspended  suspended  checking     ?            ended  -         -         -         -       -          -      -        ?      failed  queued    -
running      running      running      -       suspending frozen     running      interrupting ending ?         failed    failed    queued  -          -      -        -      -       -         -
suspending   suspending   suspending   -       suspending suspending -            -            ending suspended suspended suspended -       -          -      -        -      -       -         -
interrupting interrupting interrupting -       suspending -          interrupting interrupting ending ?         ?         ?         -       -          -      -        -      -       -         -
ending       -            -            -       -          -          -            -            ending ended     ended     ended     -       -          -      -        -      -       -         -
suspended    suspended    suspended    -       suspended  suspended  ?            -            ended  -         -         -         -       suspended  -      -        -      -       -         -
frozen       frozen       frozen       -       suspending frozen     running      interrupting ending suspended suspended suspended -       -          -      -        -      -       -         -
failed       queued       failed       -       suspended  suspended  ?            -            ended  -         -         -         -       failed     -      -        -      -       -         -
ended        -            -            -       -          -          -            -            ended  -         -         -         -       ended      -      -        -      -       -         -
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
    for hidden in ("Phase", "suspending", "interrupting"):
        assert hidden not in refusal.value.message
    assert before == TABLE


def test_people_see_fewer_states_than_there_are_phases():
    shown = dict.fromkeys(RUNNING_PHASES, "running") | {Phase.CHECKING: "queued", Phase.FROZEN: "suspended"}
    assert {phase: shown.get(phase, phase.value) for phase in Phase} == STATE_OF
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


def test_only_ended_is_for_good_and_all_else_can_work_again():
    assert reachable(Phase.IDLE) == set(Phase)
    assert reachable(Phase.ENDED) == {Phase.ENDED}
    for phase in set(Phase) - {Phase.ENDED}:
        assert Phase.ENDED in reachable(phase)
        assert Phase.RUNNING in reachable(phase) or phase is Phase.ENDING


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


def test_the_documented_diagram_is_the_table():
    text = DOCUMENT.read_text()
    found = re.search(r"<!-- lifecycle:begin -->\n```mermaid\n(.*?)\n```\n<!-- lifecycle:end -->", text, re.DOTALL)
    drawn = "\n".join(lifecycle.diagram())
    assert found is not None, "docs/lifecycle.md has no ```mermaid block between the lifecycle comment lines"
    assert found[1] == drawn, (
        "the diagram is out of date: put the output of `python -m substrat.core.agents.lifecycle` into "
        "docs/lifecycle.md, inside the ```mermaid block between the lifecycle comment lines"
    )
