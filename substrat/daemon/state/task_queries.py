"""The queries and changes of families' tasks."""

# ruff: noqa: S608 - the queries are put together from constants
from __future__ import annotations

import json
from typing import TYPE_CHECKING

from substrat.core.families.tasks import TaskState
from substrat.daemon.state.database import Database
from substrat.daemon.state.rows import TASK_NEEDS, TASKS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from substrat.core.families.tasks import Task

_ADD = TASKS.insert(without=("number",))
_SAVE = TASKS.upsert("number")
_ADD_NEED = TASK_NEEDS.insert()
_AMONG = "(SELECT value FROM json_each(?))"


class TaskQueries(Database):
    """The tasks of one state directory; a part of `Store`. A family is named by the id of its root."""

    def add_tasks(self, tasks: Iterable[Task]) -> None:
        """Store tasks; the numbers that they come with are ignored."""
        for task in tasks:
            number = self._db.execute(_ADD, TASKS.write(task, agent=task.family)[1:]).lastrowid
            self._db.executemany(_ADD_NEED, [(task.family, need, number) for need in task.needs])

    def save_task(self, task: Task) -> None:
        """Replace a task's row."""
        self._db.execute(_SAVE, TASKS.write(task, agent=task.family))

    def tasks(
        self,
        family: str | None,
        after: int = 0,
        limit: int = -1,
        states: Collection[TaskState] = (),
        label: str | None = None,
    ) -> list[Task]:
        """Load tasks, oldest first.

        Args:
            family: the family; None: all.
            after: the number of the one before the first.
            limit: how many at most; below 0: all.
            states: the states that they may be in; empty: any.
            label: the label that they have; None: any.
        """
        of = "agent = ?1" if family is not None else "?1 IS NULL"
        which = f"{of} AND number > ?2 AND state IN {_AMONG.replace('?', '?3')} AND (?4 IS NULL OR label = ?4)"
        among = json.dumps([*(states or TaskState)])
        values = (family, after, among, label, limit)
        return self._all(TASKS, f"WHERE {which} ORDER BY number LIMIT ?5", *values)

    def task(self, family: str, name: str) -> Task | None:
        """Load a task by its id in the family; None: there is none."""
        return next(iter(self._all(TASKS, "WHERE agent = ? AND id = ?", family, name)), None)

    def next_task(self, family: str, label: str | None) -> Task | None:
        """Load the oldest task that is ready, with a label if one is given."""
        which = "WHERE agent = ?1 AND state = 'ready' AND (?2 IS NULL OR label = ?2) ORDER BY number LIMIT 1"
        return next(iter(self._all(TASKS, which, family, label)), None)

    def task_of(self, agent_id: str) -> Task | None:
        """Load the task that an agent has; None: it has none."""
        return next(iter(self._all(TASKS, "WHERE state = 'claimed' AND claimed_by = ?", agent_id)), None)

    def claimed_tasks(self) -> list[Task]:
        """Load the tasks that agents have."""
        return self._all(TASKS, "WHERE state = 'claimed' ORDER BY number")

    def tasks_needing(self, family: str, name: str, state: TaskState) -> list[Task]:
        """Load the tasks in a state that need another, oldest first."""
        numbers = "(SELECT number FROM task_needs WHERE agent = ?1 AND needed = ?2)"
        return self._all(TASKS, f"WHERE number IN {numbers} AND state = ?3 ORDER BY number", family, name, state)

    def task_ids(self, family: str) -> set[str]:
        """Return the ids of all tasks of a family."""
        return {row[0] for row in self._db.execute("SELECT id FROM tasks WHERE agent = ?", (family,))}

    def tasks_named(self, family: str, names: Collection[str]) -> dict[str, Task]:
        """Load some tasks of a family, by id; those that aren't there are left out."""
        found = self._all(TASKS, f"WHERE agent = ? AND id IN {_AMONG}", family, json.dumps([*names]))
        return {task.id: task for task in found}

    def task_states(self, family: str, names: Collection[str]) -> dict[str, TaskState]:
        """Return the states of some tasks of a family, by their ids."""
        which = f"WHERE agent = ? AND id IN {_AMONG}"
        found = self._db.execute(f"SELECT id, state FROM tasks {which}", (family, json.dumps([*names])))
        return {name: TaskState(state) for name, state in found}

    def task_counts(self, family: str, label: str | None = None) -> dict[TaskState, int]:
        """Return how many tasks of a family are in each state, those with a label if one is given."""
        which = "WHERE agent = ?1 AND (?2 IS NULL OR label = ?2) GROUP BY state"
        found = self._db.execute(f"SELECT state, count(*) FROM tasks {which}", (family, label))
        return {TaskState(state): count for state, count in found}

    def has_tasks(self, family: str) -> bool:
        """Say whether a family has tasks."""
        return self._db.execute("SELECT 1 FROM tasks WHERE agent = ? LIMIT 1", (family,)).fetchone() is not None
