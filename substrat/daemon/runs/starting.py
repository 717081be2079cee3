"""Starts an agent of a run, as `spawn` would, or as its lead would with `spawn_agent`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

from mcp_server.tools import SpawnAgent
from sandbox.spec import Network
from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.records import AgentSettings
from substrat.core.families.family_file import with_names
from substrat.core.programs.table import named
from substrat.daemon.agents import spawning
from substrat.daemon.agents.spawning import SpawnRequest
from substrat.daemon.clones.wishes import CloneWish
from substrat.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Callable

    from substrat.core.agents.records import Agent
    from substrat.core.families.plans import Member
    from substrat.core.families.runs import Run
    from substrat.daemon.agents.change import Change
    from substrat.daemon.agents.requests import AgentRequests
    from substrat.daemon.clones.clones import Clones
    from substrat.daemon.sandboxes.sandboxes import Sandboxes
    from substrat.daemon.state.layout import Layout

_CHILD_PLACES: dict[str, Literal["clone", "share", "scratch"]] = {
    "clone": "clone", "in-place": "share", "scratch": "scratch",
}  # fmt: skip
"""The words of files, and those of `spawn_agent` for the same."""


@attrs.define(eq=False)
class MemberStart:
    """Starts agents of runs."""

    _requests: AgentRequests
    _sandboxes: Sandboxes
    _clones: Clones
    _layout: Layout

    async def start(self, run: Run, member: Member, also: Callable[[Change, Agent], None]) -> None:
        """Start an agent; cancelled before its commit it isn't there.

        Args:
            run: the run.
            member: the member of its plan.
            also: adds to the commit that starts it.

        Raises:
            SubstratError: it can't be started, or not now (`LimitReached`, `StorageFailed`).
        """
        plan, registry, lead = run.plan, self._requests.registry, self._lead_of(run, member)
        spawning.check_room(registry, lead)  # before the lead's work is kept for its clone, which takes long
        program = named(member.program or (lead.settings if lead else registry.config.agent).program).id
        await self._sandboxes.checks.check(program)
        request = SpawnRequest(
            lead.workspace if lead else await self._sandboxes.checks.check_workspace(run.workspace),
            f"{run.name}.{member.name}", member.model, Network(member.network) if member.network else None,
            with_names(member.prompt, run.name), by=run.by, also=also,
            budget={**member.budget, **(plan.budget if member.name == plan.lead else {})},
        )  # fmt: skip
        if lead is None:
            request = await self._placed(run, request._replace(allow=member.allow or ()))
        else:
            kind = _CHILD_PLACES[plan.place] if plan.place is not None else None
            place = await self._clones.places.choose(lead, SpawnAgent(member.prompt, request.name, workspace=kind))
            request = request._replace(clone=place.clone, scratch=place.scratch, only=member.allow)
            lead = self._lead_of(run, member)  # its rights may have changed meanwhile
        own = {
            "program": program, "instructions": member.instructions, "result_schema": member.result_schema,
            "check": member.check, "retries": member.retries, "environment": plan.variables,
            **({"time_limit": member.time_limit} if member.time_limit is not None else {}),
        }  # fmt: skip
        if lead is not None and member.time_limit is not None:
            spawning.check_time_limit(registry, lead, member.time_limit)
        settings = (lead.settings if lead else AgentSettings(registry.config.agent.restore)).of_child(**own)
        self._requests.spawn(request._replace(settings=settings), lead)

    def _lead_of(self, run: Run, member: Member) -> Agent | None:
        """Return the lead as it is now, the parent of all members but itself; None: the member has none."""
        if run.plan.lead in {None, member.name}:
            return None
        lead = self._requests.registry.get(run.agents.get(run.plan.lead or ""))
        if lead is None or lead.phase is Phase.ENDED:
            raise NotFound(f"its lead {run.name}.{run.plan.lead} is gone")
        return lead

    async def _placed(self, run: Run, request: SpawnRequest) -> SpawnRequest:
        """Return the request of an agent without a lead with the place where it works."""
        if run.plan.place == "scratch":
            return request._replace(scratch=lambda agent_id: self._layout.agent(agent_id).scratch)
        wish = CloneWish(clone=None if run.plan.place is None else run.plan.place == "clone")
        granted = await self._clones.wishes.check(request.workspace, wish, request.name or "")
        await self._sandboxes.preparer.protector.find_git(request.workspace)
        return request._replace(clone=granted.clone)
