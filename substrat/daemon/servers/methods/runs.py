"""The methods of families from files: starting one, showing and listing them, ending one."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec

from substrat.core.agents.attention import AttentionKind
from substrat.core.agents.lifecycle import STATE_OF
from substrat.core.agents.prompts import timestamp
from substrat.core.families import budget, plans
from substrat.core.families.plans import Plan
from substrat.daemon.runs import standings
from substrat.daemon.servers.methods.request import OperatorRequest, about
from substrat.daemon.servers.methods.stop import wait_for_end
from substrat.errors import InvalidParams, NotFound

if TYPE_CHECKING:
    from substrat.core.families.runs import Run
    from substrat.daemon.servers.methods.services import Services
    from substrat.daemon.servers.rpc import ClientConnection

RunName = Annotated[str, about("the run's name, which is its family's")]


def _object(services: Services, run: Run) -> dict[str, object]:
    """Make the object of a run."""
    return {**_listed(services, run, is_told=True), "result": services.runs.result_of(run)}


def _listed(services: Services, run: Run, *, is_told: bool) -> dict[str, object]:
    """Make the object of a run without its result, which may be long; `is_told`: with its agents' texts."""
    status, registry = services.runs.status(run), services.registry
    members, places = [], services.families.overview.places()
    for member in run.plan.members:
        agent = registry.get(run.id_of(member.name))
        standing, text = status.standings.get(member.name), ""
        if agent is not None and is_told:
            (said,) = services.families.overview.attentions([agent], places)
            text = said.text if said.kind is not AttentionKind.IDLE else standings.idle_words(run, member, standing)
        members.append({
            "name": f"{run.name}.{member.name}",
            "agent": run.id_of(member.name),
            "state": STATE_OF[agent.phase] if agent is not None else None,
            "outcome": standing.value if standing is not None else None,
            "text": text,
        })  # fmt: skip
    return {
        "family": run.name, "file": run.file, "started_at": timestamp(run.started_at),
        "ended_at": timestamp(run.ended_at) if run.ended_at is not None else None,
        "outcome": status.outcome, "why": status.why, "agents": members,
    }  # fmt: skip


class RunStart(OperatorRequest, frozen=True):
    """Starts the agents of a family, as `substratctl run` has read it from a file.

    The plan is stored before anything starts, and its agents are started one after the other, each as soon as there is room
    for it, also by the next daemon. Where the name is taken the family gets a number: `review-2`.
    """

    method: ClassVar[str] = "run.start"

    plan: Annotated[str, about("the family as JSON, see [its members](#a-plan)")]
    file: Annotated[str, about("the file that the plan is from, for people")]
    workspace: Annotated[str, about("the directory that the family works on")]

    async def perform(self, services: Services, connection: ClientConnection, /) -> object:
        try:
            plan = msgspec.json.decode(self.plan, type=Plan)
        except msgspec.ValidationError as problem:
            raise InvalidParams(f"run.start: 'plan' is none: {problem}") from None
        except (msgspec.DecodeError, UnicodeError):
            raise InvalidParams("run.start: 'plan' is no JSON") from None
        plan = plans.checked(plan)
        for limits in (plan.budget, *(member.budget for member in plan.members)):
            budget.checked(limits)
        workspace = await services.sandboxes.checks.check_workspace(self.workspace)
        return _object(services, services.runs.begin(plan, self.file, workspace, connection.by))


class RunShow(OperatorRequest, frozen=True):
    """Shows a run; with `seen` it waits until the run differs from the answer that had it, or is over."""

    method: ClassVar[str] = "run.show"
    waits: ClassVar[bool] = True

    run: RunName
    seen: Annotated[str | None, about("the member `seen` of the last answer; default: answer at once")] = None

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        while True:
            run = services.runs.find(self.run)
            found = _object(services, run)
            seen = hashlib.sha256(json.dumps(found).encode()).hexdigest()
            if seen != self.seen or run.ended_at is not None:
                return {**found, "seen": seen}
            await services.runs.moved(self.run)


class RunList(OperatorRequest, frozen=True):
    """Lists the runs without their results, the newest first; those that are over have no texts of their agents.

    Of the runs that are over the newest 200 are kept.
    """

    method: ClassVar[str] = "run.list"

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        return [_listed(services, run, is_told=run.ended_at is None) for run in services.registry.store.runs()]


class RunEnd(OperatorRequest, frozen=True):
    """Ends a run, and its agents with all that descend from them. Of a run that is over the outcome stays."""

    method: ClassVar[str] = "run.end"
    waits: ClassVar[bool] = True

    run: RunName

    async def perform(self, services: Services, connection: ClientConnection, /) -> object:
        for agent in services.runs.end(self.run, connection.by):
            with suppress(NotFound):
                await wait_for_end(services, agent.id)
        return _object(services, services.runs.find(self.run))
