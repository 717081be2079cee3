"""Says what a family from a file is: its agents, in which order they start, and which family can't be. Pure."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from sandbox.spec import Network
from substrat.core.agents import result_schema
from substrat.core.agents.turn_check import LONGEST_COMMAND, MOST_RETRIES, RETRIES
from substrat.core.agents.turn_limits import LONGEST_S
from substrat.core.netfilter.names import AllowList
from substrat.core.programs.table import named
from substrat.core.workspaces.clones import ref_problem
from substrat.errors import InvalidParams
from substrat.names import is_agent_name

if TYPE_CHECKING:
    from collections.abc import Sequence

PLACES = ("clone", "in-place", "scratch")
MOST_MEMBERS = 256
_NETWORKS = tuple(network.value for network in Network)


class OnFail(StrEnum):
    """The effect of an agent's failure on the others."""

    STOP = "stop"
    """No further agent starts, and the run has failed."""
    CONTINUE = "continue"
    """They go on as after a success."""
    ASK = "ask"
    """Those that need it wait until a person has let it go on, or has accepted the failure, which counts as a success."""


@dataclass(frozen=True, slots=True)
class Member:
    """An agent of a family, as its file describes it.

    Args:
        name: its name in the file; its agent is called `FAMILY.NAME`.
        prompt: its task.
        instructions: rules that it sees in each of its turns.
        check: the command that says whether its work is done.
        retries: how often it is sent back when the check fails.
        on_fail: the effect of its failure on the others.
        needs: the names of members that must succeed before it is started.
        program: its agent program; None: the lead's, or as configured. Likewise the model and the network.
        model: its model.
        network: its network.
        allow: the hosts that its `filtered` network lets through; None: all that the lead's does, or as configured.
        budget: its pool with its descendants (`core.families.budget`).
        time_limit: the seconds that a turn of it may take; None: as configured.
        result_schema: the JSON schema that its result must fit, as JSON.
    """

    name: str
    prompt: str
    instructions: str = ""
    check: str | None = None
    retries: int = RETRIES
    on_fail: OnFail = OnFail.STOP
    needs: tuple[str, ...] = ()
    program: str | None = None
    model: str | None = None
    network: str | None = None
    allow: tuple[str, ...] | None = None
    budget: dict[str, float] = field(default_factory=dict, hash=False)
    time_limit: float | None = None
    result_schema: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A family, as its file describes it.

    Args:
        name: its name.
        members: its agents, in the file's order.
        lead: the member that is the others' parent; None: each is by itself.
        place: where they work, of `PLACES`; None: as with `spawn`.
        budget: their common pool, which is the lead's budget.
        timeout: the seconds after which the run is over; None: it has no limit.
        variables: environment variables of all of them, with the values that the file's prompts were filled with.
    """

    name: str
    members: tuple[Member, ...]
    lead: str | None = None
    place: str | None = None
    budget: dict[str, float] = field(default_factory=dict, hash=False)
    timeout: float | None = None
    variables: tuple[tuple[str, str], ...] = ()


def ordered(plan: Plan) -> list[Member]:
    """Return the members in the order in which they start: the lead, then each after those that it needs."""
    left = sorted(plan.members, key=lambda member: member.name != plan.lead)
    found: list[Member] = []
    while left:
        known = {member.name for member in found}
        ready = [member for member in left if known.issuperset(member.needs)]
        if not ready:
            raise InvalidParams(f"agents.{left[0].name}.needs: {_circle(left)} need each other: one has to begin")
        found.append(ready[0])
        left.remove(ready[0])
    return found


def _circle(members: Sequence[Member]) -> str:
    """Name the members of a circle of needs; each of those given needs another one of them."""
    needs = {member.name: member.needs for member in members}
    path = [members[0].name]
    while (following := next(name for name in needs[path[-1]] if name in needs)) not in path:
        path.append(following)
    return " and ".join(path[path.index(following) :])


def checked(plan: Plan) -> Plan:
    """Return a plan, or raise `InvalidParams` if no family can be so."""
    names = [member.name for member in plan.members]
    if plan.timeout is not None and not 0 < plan.timeout <= LONGEST_S:
        raise InvalidParams(f"timeout: can be a number up to {LONGEST_S}")
    if not 1 <= len(names) <= MOST_MEMBERS:
        raise InvalidParams(f"agents: a family has 1 to {MOST_MEMBERS}, not {len(names)}")
    for key, name in (("name", plan.name), *((f"agents.{name}", f"{plan.name}-999.{name}") for name in names)):
        if not is_agent_name(name):
            raise InvalidParams(f"{key}: {name!r} can't be a name: letters, digits, '.', '_' and '-', 64 at most")
    if plan.lead is not None and plan.lead not in names:
        raise InvalidParams(f"lead: there is no agent {plan.lead!r}; there are {', '.join(names)}")
    if plan.place is not None and plan.place not in PLACES:
        raise InvalidParams(f"workspace: can be {', '.join(PLACES)}, not {plan.place!r}")
    if plan.budget and plan.lead is None:
        raise InvalidParams("budget: a family's is its lead's, so name a lead, or give each agent a budget of its own")
    for member in plan.members:
        _check(member, plan.name)
        _check_among(member, plan)
    ordered(plan)
    return plan


def _check_among(member: Member, plan: Plan) -> None:
    """Raise `InvalidParams` for a member that can't be one of this family."""
    where, names = f"agents.{member.name}", [other.name for other in plan.members]
    if sum(member.name.lower() == name.lower() for name in names) > 1:
        raise InvalidParams(f"{where}: two agents have this name: capitals don't tell them apart")
    if (unknown := next((name for name in member.needs if name not in names or name == member.name), None)) is not None:
        raise InvalidParams(f"{where}.needs: there is no other agent {unknown!r}")
    if member.name == plan.lead and member.needs:
        raise InvalidParams(f"{where}.needs: the lead starts the others, so it can need none of them")
    if member.name == plan.lead and member.budget and plan.budget:
        raise InvalidParams(f"{where}.budget: the lead's is the family's: leave one of them out")
    for key, limit in member.budget.items():
        if limit > plan.budget.get(key, limit):
            raise InvalidParams(f"{where}.budget: {key} can be {plan.budget[key]:g} at most, as the family's")


def _check(member: Member, family: str) -> None:
    """Raise `InvalidParams` for a member that `spawn` would refuse on any machine."""
    where = f"agents.{member.name}"
    if (problem := ref_problem(f"{family}.{member.name}")) is not None:
        raise InvalidParams(f"{where}: {problem}")
    if not member.prompt.strip() or "\0" in member.prompt + member.instructions:
        raise InvalidParams(f"{where}.prompt: can't be empty, and neither it nor the role can have a NUL")
    if member.check is not None and not (1 <= len(member.check) <= LONGEST_COMMAND and "\0" not in member.check):
        raise InvalidParams(f"{where}.check: can have 1 to {LONGEST_COMMAND} characters, without NUL")
    if not 0 <= member.retries <= MOST_RETRIES:
        raise InvalidParams(f"{where}.on_fail: an agent can be sent back up to {MOST_RETRIES} times")
    if member.time_limit is not None and not 0 < member.time_limit <= LONGEST_S:
        raise InvalidParams(f"{where}.time_limit: can be a number up to {LONGEST_S}")
    _check_network(where, member)
    try:
        named(member.program or "cursor")
    except InvalidParams as unknown:
        raise InvalidParams(f"{where}.program: {unknown.message}") from None
    if member.result_schema is not None and (said := _problem_of(member.result_schema)) is not None:
        raise InvalidParams(f"{where}.result_schema: {said}")


def _check_network(where: str, member: Member) -> None:
    if member.network not in {None, *_NETWORKS}:
        raise InvalidParams(f"{where}.network: can be {', '.join(_NETWORKS)}, not {member.network!r}")
    if member.allow is not None and member.network not in {None, "filtered"}:
        raise InvalidParams(f"{where}.allow: the network {member.network} has no list of what it allows")
    try:
        AllowList.asked_for(member.allow or ())
    except ValueError as problem:
        raise InvalidParams(f"{where}.allow: {problem}") from None


def _problem_of(schema: str) -> str | None:
    try:
        return result_schema.problem(json.loads(schema))
    except ValueError:
        return "the schema is no JSON"


def most_turns(plan: Plan) -> int:
    """Return how many turns a run can take by its file: a task's, each retry's, and one a child's report."""
    own = sum(
        min(1 + (member.retries if member.check is not None else 0), member.budget.get("turns", math.inf))
        for member in plan.members
    )
    reports = len(plan.members) - 1 if plan.lead is not None else 0
    return int(min(own + reports, plan.budget.get("turns", own + reports)))
