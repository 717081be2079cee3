"""Starts an agent of a run, as `spawn` would, or as its lead would with `spawn_agent`, and gives it its tasks."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Literal

import attrs

from mcp_server.tools import SpawnAgent
from sandbox.spec import Network
from substrat.core.agents import turn_check
from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.records import AgentSettings
from substrat.core.families import plans, results, run_prompts
from substrat.core.families.run_prompts import Done
from substrat.core.programs.table import named
from substrat.core.workspaces import checks
from substrat.core.workspaces.clones import Stage
from substrat.daemon.agents import spawning
from substrat.daemon.agents.spawning import SpawnRequest
from substrat.daemon.clones.check_room import CutShort
from substrat.daemon.clones.wishes import CloneWish
from substrat.daemon.runs.standings import turn_of
from substrat.daemon.workspaces.git_places import NoRepository
from substrat.errors import CloneFailed, InvalidParams, NotFound, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from substrat.core.agents.records import Agent
    from substrat.core.families.plans import Member, Plan
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
class Members:
    """Starts agents of runs, and gives them further tasks."""

    _requests: AgentRequests
    _sandboxes: Sandboxes
    _clones: Clones
    _layout: Layout

    async def start(self, run: Run, member: Member, also: Callable[[Change, Agent], None]) -> None:
        """Start an agent, a lead that needs others without a task; cancelled before its commit it isn't there.

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
            None if member.name == plan.lead and plan.is_lead_last else self._task(run, member),
            by=run.by, also=also, is_operators=not plan.hears(member),
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
            "check": member.check, "retries": member.retries, "environment": plans.environment_of(plan, member),
            **({"time_limit": member.time_limit} if member.time_limit is not None else {}),
        }  # fmt: skip
        if lead is not None and member.time_limit is not None:
            spawning.check_time_limit(registry, lead, member.time_limit)
        settings = (lead.settings if lead else AgentSettings(registry.config.agent.restore)).of_child(**own)
        self._requests.spawn(request._replace(settings=settings), lead)

    async def listed(self, run: Run, member: Member) -> Plan:
        """Run the `each` of a member, and return the plan with an agent for each line.

        Raises:
            InvalidParams: it has failed, or no family can be so.
            SubstratError: it can't be run, or not now.
        """
        command, given = str(member.each), plans.environment_of(run.plan, member)
        workspace = await self._sandboxes.checks.check_workspace(run.workspace)
        shown: tuple[str, ...] = (workspace,)
        with suppress(NoRepository):
            places = await self._clones.repositories.places(workspace)
            shown = tuple(dict.fromkeys((places.top, places.common)))
        try:
            status, printed = await self._clones.check_room.printed(run.name, workspace, shown, command, given)
        except CutShort as problem:
            raise StorageFailed(problem.message) from None
        if status != 0:
            last = (["no output", *checks.last_lines(printed).splitlines()])[-1]
            ended = "took too long (clone.check_seconds)" if status is None else f"fails with {status}: {last}"
            raise InvalidParams(f"`{command}` {ended}")
        lines = [line for line in printed.decode("utf-8", "replace").split("\n") if line.strip()]
        if (odd := next((line for line in lines if not line.isprintable() or "\ufffd" in line), None)) is not None:
            raise InvalidParams(f"`{command}` has printed a line with characters that can't be printed: {odd[:80]!r}")
        plan = plans.with_group(run.plan, member.name, lines)
        self.check_size(plan)
        return plan

    def check_size(self, plan: Plan) -> None:
        """Raise `InvalidParams` if a lead would have more descendants than one may."""
        most = self._requests.registry.config.limits.family
        if plan.lead is not None and len(plan.members) - 1 > most:
            raise InvalidParams(f"{len(plan.members) - 1} agents below {plan.lead} are more than limits.family, {most}")

    def is_ready(self, run: Run, member: Member) -> bool:
        """Say whether a member can be started by now: a child's clone begins at a commit of its lead's clone."""
        lead = self._requests.registry.get(run.lead) if member.name != run.plan.lead else None
        return lead is None or lead.clone is None or lead.clone.stage not in {Stage.WANTED, Stage.MADE}

    def give_task(self, run: Run, member: Member) -> None:
        """Give a member its task, with what those have done by now that it needs; raises `SubstratError`."""
        self._requests.send(run.agents[member.name], self._task(run, member), run.by)

    def give_back(self, run: Run, member: Member) -> None:
        """Give a member's result to the one that it returns to, as a task; raises `SubstratError`."""
        number = run.returned[member.name].times
        text = run_prompts.returned(self._done(run, member.name), number, member.rounds)
        self._requests.send(run.agents[str(member.returns_to)], text, run.by)

    def _task(self, run: Run, member: Member) -> str:
        store = self._requests.registry.store
        needed = [self._done(run, name) for name in member.needed_agents]
        tasks = [store.task(run.lead or "", name) for name in member.needed_tasks]
        needed += [Done(f"task {task.id}", task.state.value, "", task.result) for task in tasks if task is not None]
        return run_prompts.task(run, member, needed, partial(self._name, run))

    def _name(self, run: Run, member: str) -> str:
        """Return the name of a member's agent, which a person may have changed; of one that isn't there that it gets."""
        agent = self._requests.registry.get(run.id_of(member))
        return agent.name if agent is not None else f"{run.name}.{member}"

    def _done(self, run: Run, name: str) -> Done:
        registry = self._requests.registry
        agent, turn = registry.get(run.agents.get(name)), turn_of(registry, run, name)
        is_refused = agent is not None and turn_check.refusal(agent.checked, turn) is not None
        # The check's own sentence has words of the agent's making.
        outcome = "its check has failed" if is_refused else results.outcome_of(turn)
        work = registry.work_of(agent) if agent is not None else ""
        return Done(self._name(run, name), outcome if agent is not None else "removed", work, results.text_of(turn).strip())

    def _lead_of(self, run: Run, member: Member) -> Agent | None:
        """Return the lead as it is now, the parent of all members but itself; None: the member has none."""
        if run.plan.lead in {None, member.name}:
            return None
        lead = self._requests.registry.get(run.lead)
        if lead is None or lead.phase is Phase.ENDED:
            raise NotFound(f"its lead {run.name}.{run.plan.lead} is gone")
        if lead.clone is not None and lead.clone.stage is Stage.FAILED:
            raise CloneFailed(f"its lead {lead.name} has no clone: {lead.clone.error}")
        return lead

    async def _placed(self, run: Run, request: SpawnRequest) -> SpawnRequest:
        """Return the request of an agent without a lead with the place where it works."""
        if run.plan.place == "scratch":
            return request._replace(scratch=lambda agent_id: self._layout.agent(agent_id).scratch)
        wish = CloneWish(clone=None if run.plan.place is None else run.plan.place == "clone")
        granted = await self._clones.wishes.check(request.workspace, wish, request.name or "")
        await self._sandboxes.preparer.protector.find_git(request.workspace)
        return request._replace(clone=granted.clone)
