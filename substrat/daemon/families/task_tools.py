"""Performs the agents' calls about tasks, and words their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from mcp_server import tools
from substrat.core.families.tasks import OPEN, NewTask, Status, TaskState, counted

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent
    from substrat.core.families.tasks import Task
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.families.tasks import Tasks

    TaskTool = tools.AddTasks | tools.ClaimTask | tools.FinishTask | tools.ListTasks

_PAGE = 50
"""Tasks of one answer, the oldest: a model looks for the next ones, not through all."""
_LONGEST = 200
"""Characters of a result in a list."""


class TaskTools:
    """The agents' calls about tasks."""

    def __init__(self, registry: Registry, tasks: Tasks) -> None:
        self._registry = registry
        self._tasks = tasks

    def do(self, caller: Agent, call: TaskTool) -> str:
        """Perform a call and return its answer; raises `SubstratError` or `BadArguments`."""
        match call:
            case tools.AddTasks():
                return self._add(caller, call)
            case tools.ClaimTask(name, label, wait):
                return self._tasks.claim(caller, name or None, label or None, waits=wait)
            case tools.FinishTask(name, status, result):
                return self._tasks.finish(caller, name or None, Status(status), result)
            case tools.ListTasks():
                return self._list(caller, call)

    def _add(self, caller: Agent, call: tools.AddTasks) -> str:
        new = [NewTask(**msgspec.structs.asdict(one)) for one in tools.new_tasks_of(call)]
        added = self._tasks.add(caller, new, caller)
        told = f"added {', '.join(task.id for task in added)}" if added else "they are there already"
        return f"{told}; the family has {counted(self._registry.store.task_counts(self._tasks.family_of(caller)))}"

    def _list(self, caller: Agent, call: tools.ListTasks) -> str:
        store, family = self._registry.store, self._tasks.family_of(caller)
        counts = store.task_counts(family, call.label)
        states = (TaskState(call.state),) if call.state is not None else OPEN
        found = store.tasks(family, limit=_PAGE, states=states, label=call.label)
        answer = {
            "counts": {state.value: counts[state] for state in TaskState if state in counts},
            "tasks": [self._row(task) for task in found],
            **({"more": more} if (more := sum(counts.get(state, 0) for state in states) - len(found)) else {}),
        }
        return msgspec.json.encode(answer).decode()

    def _row(self, task: Task) -> dict[str, object]:
        has = self._registry.name_of(task.claimed_by)
        said = task.result.strip().partition("\n")[0][:_LONGEST]
        return {
            "id": task.id, "title": task.title, "state": task.state.value,
            **({"needs": task.needs} if task.needs else {}),
            **({"label": task.label} if task.label is not None else {}),
            **({"claimed_by": has} if has is not None and task.state is TaskState.CLAIMED else {}),
            **({"attempts": task.attempts} if task.attempts else {}),
            **({"result": said} if said else {}),
        }  # fmt: skip
