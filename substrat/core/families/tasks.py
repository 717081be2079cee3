"""Decides on the tasks of a family: which may be added, and how one stands by those that it needs. Pure.

An example: `t3` needs `t1` and `t2`. It is blocked until both have succeeded, then it is ready, and the first agent that
asks has it. If `t1` fails, `t3` is skipped, and so is what needs `t3`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, NamedTuple

from substrat.errors import InvalidParams, LimitReached, Refused

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

NEEDED = "task:"
"""What stands before a task's id where an agent needs it: `needs = ["task:t1"]`."""
MOST = 5000
"""Tasks of a family: more than agents work off in a night, and a list that is still read in a moment."""
ATTEMPTS = 3
"""Agents that may have a task where nothing says otherwise."""
MOST_NEEDS = 100
LONGEST = 8192
"""Bytes of a description, and of a result: all a model reads of one task; more belongs into files."""
MOST_ATTEMPTS = 100
_LONGEST_TITLE = 200
_KEYS: dict[str, tuple[type, str]] = {
    "title": (str, "a text"), "description": (str, "a text"), "id": (str, "a text"), "needs": (list, "a list of ids"),
    "label": (str, "a text"), "attempts": (int, "a whole number"),
}  # fmt: skip
"""The keys of a task's table in a file, each with its kind."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class TaskState(StrEnum):
    """The state of a task."""

    BLOCKED = "blocked"
    """Something that it needs isn't done."""
    READY = "ready"
    CLAIMED = "claimed"
    """An agent has it."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    """Something that it needs has failed, or a person has skipped it."""


OPEN = (TaskState.BLOCKED, TaskState.READY, TaskState.CLAIMED)
"""The states of tasks that aren't finished."""


_LOST: dict[TaskState | None, str] = {
    TaskState.FAILED: "has failed", TaskState.SKIPPED: "was skipped", None: "is gone",
}  # fmt: skip


class Status(StrEnum):
    """Who has finished a task, and how."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """Its agent has given it up."""
    SKIPPED = "skipped"
    """A person has skipped it."""


@dataclass(frozen=True, slots=True)
class Task:
    """A part of a family's work, for whichever of its agents is free.

    Args:
        number: its number among all tasks; the lower ones are claimed first.
        family: the id of the family's root.
        id: its name in the family.
        title: a line about it.
        description: all else that its agent has to know.
        needs: the ids of the tasks that must have succeeded before it is ready.
        label: a word that claims can be narrowed to; None: it has none.
        max_attempts: how many agents may have it, one after the other, before it has failed.
        created_by: the id of the agent that has added it, or who else has (`records.BY_OPERATOR`).
        created_at: seconds since the epoch.
        state: its state.
        claimed_by: the id of the agent that has it, or had it last; None: none had.
        attempts: how many agents have had it.
        status: how it was finished; None: it isn't, or Substrat has decided that.
        result: the words with which it was finished.
        finished_at: seconds since the epoch.
    """

    number: int
    family: str
    id: str
    title: str
    description: str
    needs: tuple[str, ...]
    label: str | None
    max_attempts: int
    created_by: str
    created_at: float
    state: TaskState = TaskState.READY
    claimed_by: str | None = None
    attempts: int = 0
    status: Status | None = None
    result: str = ""
    finished_at: float | None = None


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task that is to be added.

    Args:
        title: a line about it.
        description: all else that its agent has to know.
        id: its name in the family; None: it gets the next number, such as `t7`.
        needs: the ids of tasks that must have succeeded before.
        label: a word that claims can be narrowed to; None: it has none.
        attempts: how many agents may have it, one after the other; None: `tasks.attempts`.
    """

    title: str
    description: str = ""
    id: str | None = None
    needs: tuple[str, ...] = ()
    label: str | None = None
    attempts: int | None = None


class Origin(NamedTuple):
    """Where new tasks come from.

    Args:
        family: the id of the family's root.
        by: the id of the agent that adds them, or who else does.
        now: seconds since the epoch.
        attempts: `tasks.attempts`.
    """

    family: str
    by: str
    now: float
    attempts: int


def read(tables: Sequence[object]) -> list[NewTask]:
    """Return new tasks from the tables `[[tasks]]` of a file; raises `InvalidParams` for one that is none."""
    return [_read(number, table) for number, table in enumerate(tables, 1)]


def _read(number: int, table: object) -> NewTask:
    where = f"[[tasks]] {number}"
    if not isinstance(table, dict):
        raise InvalidParams(f"{where}: is a table: write [[tasks]]")
    for key, value in table.items():
        if key not in _KEYS:
            raise InvalidParams(f"{where}: {key} is unknown; there are {', '.join(_KEYS)}")
        kind, words = _KEYS[key]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise InvalidParams(f"{where}: {key} is {words}")
    if "title" not in table:
        raise InvalidParams(f"{where}: title is missing: it says in a line what is to be done")
    needs = table.get("needs", ())
    if not all(isinstance(need, str) for need in needs):
        raise InvalidParams(f"{where}: needs is {_KEYS['needs'][1]}")
    return NewTask(**{**table, "needs": tuple(needs)})


def added(known: Mapping[str, Task], taken: Collection[str], new: Sequence[NewTask], origin: Origin) -> list[Task]:
    """Return the tasks that are to be stored, with no numbers yet; one that is there with the same content is left out.

    Args:
        known: those of the family's tasks that the new ones name or need, by id.
        taken: the ids of all its tasks.
        new: the tasks that are added together; they may need each other.
        origin: where they come from.

    Raises:
        InvalidParams: there can be no such task, or they need each other in a circle.
        Refused: another task has the id.
        LimitReached: the family would have too many.
    """
    named = named_tasks(taken, new)
    found = [_task(one, origin) for one in named]
    there = {*known, *(task.id for task in found)}
    for task in found:
        if missing := [need for need in task.needs if need not in there]:
            raise InvalidParams(f"task {task.id} needs {missing[0][:80]!r}, which is no task: add that too, or before")
    try:
        TopologicalSorter({task.id: task.needs for task in found}).prepare()
    except CycleError as circle:
        raise InvalidParams(f"none of these tasks could ever begin: {_told_circle(circle.args[1])}") from None
    for one, task in zip(named, found, strict=True):
        if (other := known.get(task.id)) is not None and _differs(other, task, one.attempts):
            raise Refused(f"there is another task {task.id!r} already: choose another id, or leave it out")
    fresh = [task for task in found if task.id not in known]
    if len(taken) + len(fresh) > MOST:
        raise LimitReached(f"a family may have {MOST} tasks, and has {len(taken)}")
    return _with_states(known, fresh)


def named_tasks(taken: Collection[str], new: Sequence[NewTask]) -> list[NewTask]:
    """Return new tasks with ids, also those that had none; raises `InvalidParams` where two have the same."""
    ids = {one.id for one in new if one.id is not None}
    named, number = list[NewTask](), len(taken)
    for one in new:
        found = one.id
        while found is None or (one.id is None and (found in taken or found in ids)):
            number += 1
            found = f"t{number}"
        named.append(replace(one, id=found))
    if len(ids) < sum(one.id is not None for one in new):
        twice = next(one.id for one in new if one.id is not None and sum(other.id == one.id for other in new) > 1)
        raise InvalidParams(f"two of these tasks have the id {twice!r}: each needs its own")
    return named


def _task(new: NewTask, origin: Origin) -> Task:
    name = str(new.id)
    if not _ID.fullmatch(name):
        raise InvalidParams(f"{name[:80]!r} is no id of a task: up to 64 letters, digits, '.', '_' and '-'")
    if not new.title.strip() or len(new.title) > _LONGEST_TITLE or not new.title.isprintable():
        raise InvalidParams(f"the title of task {name} is one line of at most {_LONGEST_TITLE} characters")
    if len(new.description.encode("utf-8", "replace")) > LONGEST:
        raise InvalidParams(f"the description of task {name} may have {LONGEST} bytes: write the rest to a file")
    if len(new.needs) > MOST_NEEDS:
        raise InvalidParams(f"task {name} may need {MOST_NEEDS} others: let one of them stand for several")
    if new.label is not None and not _ID.fullmatch(new.label):
        raise InvalidParams(f"the label of task {name} can have up to 64 letters, digits, '.', '_' and '-'")
    attempts = new.attempts if new.attempts is not None else origin.attempts
    if not 0 < attempts <= MOST_ATTEMPTS:
        raise InvalidParams(f"task {name} can have 1 to {MOST_ATTEMPTS} attempts, not {attempts}")
    needs = tuple(dict.fromkeys(new.needs))
    return Task(
        0, origin.family, name, new.title, new.description, needs=needs, label=new.label, max_attempts=attempts,
        created_by=origin.by, created_at=origin.now,
    )  # fmt: skip


def _differs(known: Task, task: Task, attempts: int | None) -> bool:
    """Say whether a task that is there says other things than one that is to be added under its id."""
    if attempts not in {None, known.max_attempts} or {*known.needs} != {*task.needs}:
        return True
    return (known.title, known.description, known.label) != (task.title, task.description, task.label)


def _with_states(known: Mapping[str, Task], fresh: Sequence[Task]) -> list[Task]:
    """Return new tasks with the states that those which they need leave them."""
    states = {name: task.state for name, task in known.items()}
    left = {task.id: task for task in fresh}
    found: dict[str, Task] = {}
    for name in TopologicalSorter({name: task.needs for name, task in left.items()}).static_order():
        if (task := left.get(name)) is not None:
            found[name] = standing(task, {need: states[need] for need in task.needs}, task.created_at)
            states[name] = found[name].state
    return [found[task.id] for task in fresh]


def _told_circle(ids: Sequence[str]) -> str:
    """Name a circle in the order in which each needs the next: `t1 needs t2, which needs t1`."""
    first, second, *others = reversed(ids)
    return ", which needs ".join((f"{first} needs {second}", *others))


def standing(task: Task, needed: Mapping[str, TaskState | None], now: float) -> Task:
    """Return a task that no agent has as those leave it that it needs.

    Args:
        task: the task.
        needed: the states of those that it needs, by their ids; None: it is gone.
        now: seconds since the epoch.
    """
    for name in (one for one, state in needed.items() if state in _LOST):
        why = f"it needs {name}, which {_LOST[needed[name]]}"
        return replace(task, state=TaskState.SKIPPED, result=why, finished_at=now)
    is_ready = all(state is TaskState.SUCCEEDED for state in needed.values())
    return replace(task, state=TaskState.READY if is_ready else TaskState.BLOCKED, result="", finished_at=None)


def counted(counts: Mapping[TaskState, int]) -> str:
    """Say how many tasks there are in each state: `2 ready, 1 claimed`; `no tasks`."""
    return ", ".join(f"{counts[state]} {state.value}" for state in TaskState if counts.get(state)) or "no tasks"
