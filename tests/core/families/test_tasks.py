"""Tasks: which may be added, and how they stand by those that they need."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.core.families import tasks
from substrat.core.families.tasks import NewTask, Origin, TaskState
from substrat.errors import InvalidParams, LimitReached, Refused

ORIGIN = Origin("root", "lead", 5.0, 3)


def added(*new, known=()):
    return tasks.added({task.id: task for task in known}, {task.id for task in known}, new, ORIGIN)


def states(found):
    return {task.id: task.state.value for task in found}


def test_a_graph_is_added_in_one_call_and_stands_by_what_it_needs():
    found = added(
        NewTask("join", id="j", needs=("a", "b")), NewTask("first", id="a"), NewTask("second", id="b", needs=("a",))
    )
    assert states(found) == {"j": "blocked", "a": "ready", "b": "blocked"}
    assert (found[1].family, found[1].created_by, found[1].created_at, found[1].max_attempts) == ("root", "lead", 5.0, 3)
    done = replace(found[1], state=TaskState.SUCCEEDED)
    failed = replace(found[2], state=TaskState.FAILED)
    later = added(NewTask("more", needs=("a",)), NewTask("never", needs=("b",)), known=[done, failed])
    assert states(later) == {"t3": "ready", "t4": "skipped"}
    assert (later[1].result, later[1].finished_at) == ("it needs b, which has failed", 5.0)


def test_ids_are_made_up_around_those_there_are():
    known = added(NewTask("x", id="t2"))
    assert [task.id for task in added(NewTask("a"), NewTask("b", id="t3"), NewTask("c"), known=known)] == ["t4", "t3", "t5"]


def test_the_same_task_again_is_done_and_another_of_its_id_is_refused():
    known = added(NewTask("x", "all of it", id="a"))
    assert added(NewTask("x", "all of it", id="a"), known=known) == []
    for other in (NewTask("x", "half of it", id="a"), NewTask("x", "all of it", id="a", attempts=9)):
        with pytest.raises(Refused, match="there is another task 'a' already"):
            added(other, known=known)


WRONG = {
    "none of these tasks could ever begin: a needs b, which needs c, which needs a": [
        NewTask("x", id="a", needs=("b",)), NewTask("x", id="b", needs=("c",)), NewTask("x", id="c", needs=("a",)),
    ],
    "none of these tasks could ever begin: a needs a": [NewTask("x", id="a", needs=("a",))],
    "task a needs 'z', which is no task": [NewTask("x", id="a", needs=("z",))],
    "two of these tasks have the id 'a'": [NewTask("x", id="a"), NewTask("y", id="a")],
    "'../a' is no id of a task": [NewTask("x", id="../a")],
    "the title of task t1 is one line": [NewTask("x\nsecond")],
    "the title of task t1 is one line of": [NewTask("x" * 201)],
    "the description of task t1 may have 8192 bytes": [NewTask("x", "é" * 5000)],
    "the label of task t1": [NewTask("x", label="")],
    "task t1 can have 1 to 100 attempts, not 0": [NewTask("x", attempts=0)],
    "task t1 may need 100 others": [NewTask("x", needs=tuple(f"n{number}" for number in range(101)))],
}  # fmt: skip


@pytest.mark.parametrize("words", WRONG)
def test_what_can_not_be_is_named(words):
    with pytest.raises(InvalidParams, match=words):
        added(*WRONG[words])


def test_a_family_has_so_many():
    known = [replace(task, id=f"k{number}") for number in range(tasks.MOST) for task in added(NewTask("x"))[:1]]
    with pytest.raises(LimitReached, match=f"a family may have {tasks.MOST} tasks, and has {tasks.MOST}"):
        added(NewTask("one more"), known=known)


@given(st.lists(st.sets(st.integers(0, 9), max_size=3), min_size=1, max_size=10), st.data())
def test_any_graph_is_worked_off_or_skipped(needs, data):
    """Whatever each task comes to, in the end none is left, and one is skipped only below one that has failed."""
    new = [NewTask("x", id=f"n{one}", needs=tuple(f"n{n}" for n in sorted(of) if n < one)) for one, of in enumerate(needs)]
    found = {task.id: task for task in added(*data.draw(st.permutations(new)))}
    while ready := [task for task in found.values() if task.state is TaskState.READY]:
        task = data.draw(st.sampled_from(ready))
        found[task.id] = replace(task, state=data.draw(st.sampled_from([TaskState.SUCCEEDED, TaskState.FAILED])))
        for one in sorted(found.values(), key=lambda one: int(one.id[1:])):
            if one.state in {TaskState.BLOCKED, TaskState.READY}:
                found[one.id] = tasks.standing(one, {need: found[need].state for need in one.needs}, 6.0)
    assert not any(task.state in tasks.OPEN for task in found.values())
    for task in found.values():
        below = [found[need].state for need in task.needs]
        assert (task.state is TaskState.SKIPPED) == (TaskState.FAILED in below or TaskState.SKIPPED in below)


def test_a_file_names_its_tasks():
    read = tasks.read([{"title": "x", "needs": ["a"], "attempts": 2}])
    assert read == [NewTask("x", needs=("a",), attempts=2)]
    wrong: dict[str, object] = {
        r"\[\[tasks\]\] 1: is a table": "x",
        "title is missing": {},
        "title is a text": {"title": 1},
        "need is unknown; there are title, description, id, needs, label, attempts": {"title": "x", "need": []},
        "needs is a list of ids": {"title": "x", "needs": [1]},
        "attempts is a whole number": {"title": "x", "attempts": True},
    }
    for words, table in wrong.items():
        with pytest.raises(InvalidParams, match=words):
            tasks.read([table])
