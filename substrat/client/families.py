"""The client's methods for families: their budgets, their runs from files, and their tasks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

from substrat.client.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from substrat.protocol.objects import FamilyBudgetObject
    from substrat.protocol.run_objects import ListedRunObject, RunObject, ShownRunObject, TaskObject


def array(given: Sequence[str] | None) -> list[str] | None:
    """Return a parameter of the kind `strings`; None: it isn't given."""
    return None if given is None else list(given)


def pairs(given: Mapping[str, object] | None) -> list[str] | None:
    """Return a parameter of the kind `strings` that has `NAME=VALUE`; None: it isn't given."""
    return None if given is None else [f"{name}={value}" for name, value in given.items()]


class FamilyMethods(Connection):
    """The methods for families; a part of `Client`."""

    async def budget(
        self, agent: str, *, limits: Mapping[str, float] | None = None, more: Mapping[str, float] | None = None,
        clear: bool | None = None,
    ) -> FamilyBudgetObject:  # fmt: skip
        """Return the budget of an agent and its descendants, after changing it if asked to (`agent.budget`)."""
        found = await self.call("agent.budget", agent=agent, limits=pairs(limits), more=pairs(more), clear=clear)
        return cast("FamilyBudgetObject", found)

    async def start_run(self, plan: str, file: str, workspace: str) -> RunObject:
        """Start the agents of a family (`run.start`); the plan is JSON, as docs/protocol.md has it."""
        return cast("RunObject", await self.call("run.start", plan=plan, file=file, workspace=workspace))

    async def run(self, run: str, seen: str | None = None) -> ShownRunObject:
        """Return a run, as soon as it stands otherwise than an earlier answer with `seen` has said (`run.show`)."""
        return cast("ShownRunObject", await self.call("run.show", run=run, seen=seen))

    async def runs(self) -> list[ListedRunObject]:
        """Return the runs, the newest first (`run.list`)."""
        return cast("list[ListedRunObject]", await self.call("run.list"))

    async def end_run(self, run: str) -> RunObject:
        """End a run and its agents (`run.end`)."""
        return cast("RunObject", await self.call("run.end", run=run))

    async def tasks(
        self, agent: str | None = None, *, states: Sequence[str] | None = None, after: int | None = None,
        limit: int | None = None,
    ) -> list[TaskObject]:  # fmt: skip
        """Return the tasks of an agent's family, or of all, oldest first (`task.list`)."""
        found = await self.call("task.list", agent=agent, states=array(states), after=after, limit=limit)
        return cast("list[TaskObject]", found)

    async def add_tasks(self, agent: str, tasks: Sequence[Mapping[str, object]]) -> list[TaskObject]:
        """Add tasks to an agent's family, and return those that weren't there (`task.add`)."""
        return cast("list[TaskObject]", await self.call("task.add", agent=agent, tasks=json.dumps([*map(dict, tasks)])))

    async def retry_task(self, agent: str, task: str) -> TaskObject:
        """Let a task that is claimed, has failed or was skipped be claimed again (`task.retry`)."""
        return cast("TaskObject", await self.call("task.retry", agent=agent, task=task))

    async def skip_task(self, agent: str, task: str) -> TaskObject:
        """Skip a task and those that need it (`task.skip`)."""
        return cast("TaskObject", await self.call("task.skip", agent=agent, task=task))
