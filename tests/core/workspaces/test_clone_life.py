"""A clone's life: each event with each stage, against a grid written down independently."""

import ast
import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest

import substrat
from substrat.core.workspaces.clone_life import PREPARING, TABLE, WITH_TREE, CloneCommand, CloneEvent, as_read, step
from substrat.core.workspaces.clones import Clone, Stage
from substrat.errors import Refused
from tests.support.cases import each

# One row a stage, one column an event: the stage afterwards with its command, !Prepare or !Admit; `-` for a refusal.
GRID = """
stage      asked     over      made    set-up   failed  exec   restore    restored leave   prune   gone
wanted     wanted!P  wanted!P  made    -        failed  -      -          -        wanted  pruning -
made       made      made!P    -       ready!A  failed  made   -          -        made    pruning -
ready      ready     ready     -       -        -       ready  restoring  -        ready   pruning -
restoring  restoring restoring -       -        -       -      -          ready!A  -       -       -
failed     wanted!P  failed    -       -        -       failed -          -        failed  pruning -
pruning    pruning   pruning   pruning pruning  pruning -      -          -        pruning pruning pruned
pruned     pruned    pruned    pruned  pruned   pruned  -      -          -        pruned  pruned  pruned
"""
HEADER, *ROWS = [line.split() for line in GRID.strip().splitlines()]
EVENTS = [CloneEvent(name.replace("-", " ")) for name in HEADER[1:]]
CELLS = [(Stage(row[0]), event, cell) for row in ROWS for event, cell in zip(EVENTS, row[1:], strict=True)]
COMMANDS = {"": (), "P": (CloneCommand.PREPARE,), "A": (CloneCommand.ADMIT,)}
FACTS = set(CloneEvent) - {CloneEvent.EXEC, CloneEvent.RESTORE, CloneEvent.LEAVE, CloneEvent.PRUNE}


def clone(stage):
    turn, error = 3 if stage is Stage.RESTORING else None, "no room" if stage is Stage.FAILED else None
    given = Clone("x", "fix", "/t/x", "/w", "/w/.git", "/w", "substrat/fix", "main")
    return replace(given, stage=stage, restoring=turn, error=error)


def test_the_grid_is_whole():
    assert {(stage, event) for stage, event, _ in CELLS} == set(itertools.product(Stage, CloneEvent))
    assert set(TABLE) == set(CloneEvent)


@each(("stage", "event", "cell"), [one for one in CELLS if one[2] != "-"])
def test_a_legal_step(stage, event, cell):
    target, _, command = cell.partition("!")
    after, commands = step(clone(stage), event)
    assert (after.stage, commands) == (target, COMMANDS[command])


@each(("stage", "event"), [one[:2] for one in CELLS if one[2] == "-"])
def test_an_illegal_step_is_refused_by_a_sentence_with_the_name(stage, event):
    with pytest.raises(Refused, match=r"\bfix\b") as refused:
        step(clone(stage), event)
    assert not re.search(r"[{}]", refused.value.message)


@each(("stage", "event", "cell"), [one for one in CELLS if one[2] != "-"])
def test_a_turn_to_be_put_back_to_and_a_reason_stand_only_where_they_mean_something(stage, event, cell):
    after, _ = step(replace(clone(stage), restoring=3, error="no room"), event)
    assert (after.restoring == 3) == cell.startswith("restoring")
    assert (after.error is None) == cell.startswith("wanted")


def reachable(start, events):
    seen, todo = {start}, [start]
    while todo:
        stage = todo.pop()
        found = {TABLE[event][stage][0] for event in events if stage in TABLE[event]} - seen
        seen |= found
        todo += found
    return seen


def test_every_stage_is_reachable_and_only_a_removal_is_for_good():
    assert reachable(Stage.WANTED, CloneEvent) == set(Stage)
    assert all(Stage.READY in reachable(stage, CloneEvent) for stage in WITH_TREE | PREPARING)
    assert reachable(Stage.PRUNING, CloneEvent) == {Stage.PRUNING, Stage.PRUNED}
    # What happens by itself removes no tree whose removal wasn't asked for.
    assert not {Stage.PRUNING, Stage.PRUNED} & reachable(Stage.READY, FACTS | {CloneEvent.RESTORE, CloneEvent.EXEC})


@each(("stage", "turn", "read"), [
    (Stage.READY, 3, Stage.RESTORING), (Stage.RESTORING, None, Stage.READY), (Stage.READY, None, Stage.READY),
    (Stage.RESTORING, 3, Stage.RESTORING), (Stage.PRUNING, 3, Stage.PRUNING), (Stage.WANTED, 3, Stage.WANTED),
])  # fmt: skip
def test_a_row_that_the_table_forbids_is_read_without_a_loss(stage, turn, read):
    stored = replace(clone(Stage.READY), stage=stage, restoring=turn, error="no room")
    assert as_read(stored) == replace(stored, stage=read)


def writers_of_stages():
    """The modules that give a clone another stage."""
    root = Path(substrat.__file__).parent
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and any(word.arg == "stage" for word in node.keywords):
                yield path.relative_to(root).as_posix()


def test_no_other_module_writes_a_stage():
    assert set(writers_of_stages()) == {"core/workspaces/clone_life.py"}
