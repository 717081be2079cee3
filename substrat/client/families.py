"""The client's methods for families: their budgets, and their runs from files."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from substrat.client.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from substrat.protocol.objects import FamilyBudgetObject
    from substrat.protocol.run_objects import ListedRunObject, RunObject, ShownRunObject


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
