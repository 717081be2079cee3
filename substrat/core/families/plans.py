"""Says what a family from a file is: its agents, in which order they start, and which family can't be. Pure.

A member may stand for several agents, a group, by `count` or `each`. An example: `map` has `each = "ls src/*.py"`, and the
command prints two lines. Then `map.1` and `map.2` take its place, and what needs `map` needs both.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from sandbox.spec import Network
from substrat.core.agents import environment, result_schema
from substrat.core.agents.turn_check import LONGEST_COMMAND, MOST_RETRIES, RETRIES
from substrat.core.agents.turn_limits import LONGEST_S
from substrat.core.families.tasks import ATTEMPTS, NEEDED, NewTask, Origin, added, named_tasks
from substrat.core.netfilter.names import AllowList
from substrat.core.programs.table import named
from substrat.core.workspaces.clones import ref_problem
from substrat.errors import InvalidParams, SubstratError
from substrat.names import is_agent_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from substrat.core.agents.environment import Variables

PLACES = ("clone", "in-place", "scratch")
MOST_MEMBERS = 256
ROUNDS = 3
"""Rounds where a file says nothing."""
_MOST_ROUNDS = 100
_LONGEST_NUMBER = f".{MOST_MEMBERS}"
_NETWORKS = tuple(network.value for network in Network)


class Land(StrEnum):
    """What is done with the commits of a run that has succeeded."""

    ASK = "ask"
    """A person is asked, as for any agent's."""
    MERGE = "merge"
    """Those that a check has passed on land, each after the usual look at its files."""
    NEVER = "never"
    """They needn't land, and nobody is asked."""


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
        needs: the names of members that must succeed before it is started, and tasks, such as `task:t1`.
        program: its agent program; None: the lead's, or as configured. Likewise the model and the network.
        model: its model.
        network: its network.
        allow: the hosts that its `filtered` network lets through; None: all that the lead's does, or as configured.
        budget: its pool with its descendants (`core.families.budget`).
        time_limit: the seconds that a turn of it may take; None: as configured.
        result_schema: the JSON schema that its result must fit, as JSON.
        count: how many agents it stands for; None: for one, or as many as `each` says.
        each: the command that prints a line for each agent it stands for.
        returns_to: the member that is given its result as the next task while `agrees` is false in it.
        rounds: the most results that it gives before it has failed for that.
        group: the name in the file of what it is one of; None: it is by itself.
        number: its number there, from 1 on.
        item: the line of `each` that it is for.
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
    count: int | None = None
    each: str | None = None
    returns_to: str | None = None
    rounds: int = ROUNDS
    group: str | None = None
    number: int | None = None
    item: str | None = None

    @property
    def needed_agents(self) -> list[str]:
        """The names of the members that it needs."""
        return [need for need in self.needs if not need.startswith(NEEDED)]

    @property
    def needed_tasks(self) -> list[str]:
        """The ids of the tasks that it needs."""
        return [need.removeprefix(NEEDED) for need in self.needs if need.startswith(NEEDED)]

    @property
    def is_group(self) -> bool:
        """Whether it stands for several agents."""
        return self.count is not None or self.each is not None


@dataclass(frozen=True, slots=True)
class Plan:
    """A family, as its file describes it.

    Args:
        name: its name.
        members: its agents, in the file's order.
        lead: the member that is the others' parent, also before it has its task; None: each is by itself.
        place: where they work, of `PLACES`; None: as with `spawn`.
        budget: their common pool, which is the lead's budget.
        timeout: the seconds after which the run is over; None: it has no limit.
        variables: environment variables of all of them, whose values their prompts are filled with.
        land: what is done with their commits.
        tasks: the tasks that the family has from its beginning.
    """

    name: str
    members: tuple[Member, ...]
    lead: str | None = None
    place: str | None = None
    budget: dict[str, float] = field(default_factory=dict, hash=False)
    timeout: float | None = None
    variables: tuple[tuple[str, str], ...] = ()
    land: Land = Land.ASK
    tasks: tuple[NewTask, ...] = ()

    @property
    def is_lead_last(self) -> bool:
        """Whether the lead has its task only when others have succeeded."""
        return any(member.needs for member in self.members if member.name == self.lead)

    def hears(self, member: Member) -> bool:
        """Say whether the lead is told the result of a member: else it has that with its task, or in rounds."""
        return member.name != self.lead and member.returns_to is None and self.lead is not None and not self.is_lead_last


def with_group(plan: Plan, name: str, items: Sequence[str | None]) -> Plan:
    """Return a plan with an agent for each item in the place of a member that stands for several.

    Raises:
        InvalidParams: no family can be so.
    """
    numbered = [(f"{name}.{number}", number, item) for number, item in enumerate(items, 1)]
    members: list[Member] = []
    for member in plan.members:
        if member.name == name:
            alone = replace(member, count=None, each=None, group=name)
            members += [replace(alone, name=own, number=number, item=item) for own, number, item in numbered]
        else:
            needs = [[own for own, *_ in numbered] if need == name else [need] for need in member.needs]
            members.append(replace(member, needs=tuple(own for needed in needs for own in needed)))
    return consistent(replace(plan, members=tuple(members)))


def counted(plan: Plan) -> Plan:
    """Return a plan with as many agents as each `count` says; what has `each` stays until its command has run."""
    for member in plan.members:
        if member.count is not None:
            plan = with_group(plan, member.name, [None] * member.count)
    return plan


def environment_of(plan: Plan, member: Member) -> Variables:
    """Return the environment variables of a member: the file's, `N` and `ITEM`; raises `InvalidParams`."""
    own = {"N": str(member.number)} if member.number is not None else {}
    return environment.checked(
        {**dict(plan.variables), **own, **({"ITEM": member.item} if member.item is not None else {})}
    )


def ordered(plan: Plan) -> list[Member]:
    """Return the members in the order in which they can start, those that may start together as in the file.

    Raises:
        InvalidParams: some need each other.
    """
    members = {member.name: member for member in plan.members}
    sorter = TopologicalSorter({member.name: member.needs for member in plan.members})
    try:
        sorter.prepare()
    except CycleError as problem:
        circle = problem.args[1][:0:-1]
        raise InvalidParams(f"agents.{circle[0]}.needs: {' and '.join(circle)} need each other: one has to begin") from None
    found: list[Member] = []
    while sorter.is_active():
        ready = set(sorter.get_ready())
        found += [member for name, member in members.items() if name in ready]
        sorter.done(*ready)
    return found


def checked(plan: Plan) -> Plan:
    """Return the plan of a file, whose tasks have ids then, or raise `InvalidParams` if no family can be so."""
    if not plan.members:
        raise InvalidParams(f"agents: a family has 1 to {MOST_MEMBERS}, not 0")
    if plan.land is Land.MERGE and plan.place in {"in-place", "scratch"}:
        raise InvalidParams(f"land: only commits in clones can land, and the workspace is {plan.place}")
    landing = [member for member in plan.members if plan.lead in {None, member.name}]
    if plan.land is Land.MERGE and not any(member.check for member in landing):
        raise InvalidParams(f"land: merge lands what a check has passed on: give {plan.lead or 'an agent'} a check")
    if plan.tasks and plan.lead is None:
        raise InvalidParams("lead: tasks belong to the family of a lead, so name one")
    try:
        plan = replace(plan, tasks=tuple(named_tasks((), plan.tasks)))
        added({}, (), plan.tasks, Origin("", "", 0.0, ATTEMPTS))
    except SubstratError as problem:
        raise InvalidParams(f"tasks: {problem.message}") from None
    counted(consistent(plan))
    return plan


def consistent(plan: Plan) -> Plan:
    """Return a plan, with or without its groups, or raise `InvalidParams` if its parts don't go together."""
    names = Counter(member.name.lower() for member in plan.members)
    if plan.timeout is not None and not 0 < plan.timeout <= LONGEST_S:
        raise InvalidParams(f"timeout: can be a number up to {LONGEST_S}")
    if (number := sum(member.count or 1 for member in plan.members)) > MOST_MEMBERS:
        raise InvalidParams(f"agents: a family has 1 to {MOST_MEMBERS}, not {number}")
    longest = [(one.name, f"{one.name}{_LONGEST_NUMBER if one.is_group else ''}") for one in plan.members]
    for key, name in (("name", plan.name), *((f"agents.{name}", f"{plan.name}-999.{long}") for name, long in longest)):
        if not is_agent_name(name):
            raise InvalidParams(f"{key}: {name!r} can't be a name: letters, digits, '.', '_' and '-', 64 at most")
    if (double := next((one.name for one in plan.members if names[one.name.lower()] > 1), None)) is not None:
        raise InvalidParams(f"agents.{double}: two agents have this name: capitals don't tell them apart")
    members = {member.name: member for member in plan.members}
    if plan.lead is not None and plan.lead not in members:
        raise InvalidParams(f"lead: there is no agent {plan.lead!r}; there are {', '.join(members)}")
    if plan.place is not None and plan.place not in PLACES:
        raise InvalidParams(f"workspace: can be {', '.join(PLACES)}, not {plan.place!r}")
    if plan.budget and plan.lead is None:
        raise InvalidParams("budget: a family's is its lead's, so name a lead, or give each agent a budget of its own")
    needable = {*members, *(f"{NEEDED}{task.id}" for task in plan.tasks)}
    for member in plan.members:
        _check(member, plan.name)
        _check_among(member, plan, needable)
        _check_group(member, plan)
        _check_return(member, members)
    authors = Counter(member.returns_to for member in plan.members)
    if (several := next((one for one in plan.members if one.returns_to and authors[one.returns_to] > 1), None)) is not None:
        raise InvalidParams(f"agents.{several.name}.returns_to: one agent judges {several.returns_to!r}, not several")
    ordered(plan)
    return plan


def _check_among(member: Member, plan: Plan, needable: Collection[str]) -> None:
    """Raise `InvalidParams` for a member that can't be one of this family."""
    where = f"agents.{member.name}"
    if (unknown := next((name for name in member.needs if name not in needable or name == member.name), None)) is not None:
        kind = "task" if unknown.startswith(NEEDED) else "other agent"
        raise InvalidParams(f"{where}.needs: there is no {kind} {unknown.removeprefix(NEEDED)!r}")
    if member.name == plan.lead and member.budget and plan.budget:
        raise InvalidParams(f"{where}.budget: the lead's is the family's: leave one of them out")
    for key, limit in member.budget.items():
        if limit > plan.budget.get(key, limit):
            raise InvalidParams(f"{where}.budget: {key} can be {plan.budget[key]:g} at most, as the family's")


def _check_group(member: Member, plan: Plan) -> None:
    """Raise `InvalidParams` for a group, or one of a group, that can't be."""
    where = f"agents.{member.name}"
    if member.count is not None and not 1 <= member.count <= MOST_MEMBERS:
        raise InvalidParams(f"{where}.count: can be 1 to {MOST_MEMBERS}")
    if member.each is not None and not (1 <= len(member.each) <= LONGEST_COMMAND and "\0" not in member.each):
        raise InvalidParams(f"{where}.each: can have 1 to {LONGEST_COMMAND} characters, without NUL")
    if member.count is not None and member.each is not None:
        raise InvalidParams(f"{where}.count: with each there is an agent a line: leave one of them out")
    if member.is_group and member.name == plan.lead:
        raise InvalidParams(f"{where}: the lead is one agent: leave {'each' if member.each else 'count'} out")
    environment_of(plan, member)


def _check_return(member: Member, members: Mapping[str, Member]) -> None:
    """Raise `InvalidParams` for a member that can't give its result back."""
    where, author = f"agents.{member.name}", member.returns_to
    if not 1 <= member.rounds <= _MOST_ROUNDS:
        raise InvalidParams(f"{where}.rounds: can be 1 to {_MOST_ROUNDS}")
    if author is None:
        return
    if author not in member.needed_agents:
        raise InvalidParams(f"{where}.returns_to: {author!r} must be among its needs: its result is about their work")
    if members[author].is_group:
        raise InvalidParams(f"{where}.returns_to: {author!r} are several agents: name one")
    if member.is_group:
        raise InvalidParams(f"{where}.returns_to: one agent judges {author!r}, not several: leave count and each out")
    if member.on_fail is OnFail.ASK:
        raise InvalidParams(f"{where}.on_fail: with returns_to it can be stop or continue: nobody can accept a result")
    schema = json.loads(member.result_schema or "{}")
    kind = schema.get("properties", {}).get("agrees", {}).get("type")
    if kind != "boolean" or "agrees" not in schema.get("required", ()):
        raise InvalidParams(
            f"{where}.result_schema: returns_to goes by 'agrees' in the result: "
            'write { type = "object", properties = { agrees = { type = "boolean" } }, required = ["agrees"] }'
        )


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
    """Return how many turns a run can take by its file.

    They are a prompt's, each retry's and round's, one a child's report and one an attempt at a task. What has `each`
    counts as if its command printed as many lines as there may be.
    """
    single = sum(member.count or 1 for member in plan.members if member.each is None)
    sizes = {
        member.name: member.count or (MOST_MEMBERS - single if member.each is not None else 1) for member in plan.members
    }
    tries = {member.name: 1 + (member.retries if member.check is not None else 0) for member in plan.members}
    turns = dict(tries)
    for member in plan.members:
        if member.returns_to is not None:
            turns[member.name] += (member.rounds - 1) * tries[member.name]
            turns[member.returns_to] += (member.rounds - 1) * tries[member.returns_to]
    own = sum(sizes[member.name] * min(turns[member.name], member.budget.get("turns", math.inf)) for member in plan.members)
    own += sum(task.attempts or ATTEMPTS for task in plan.tasks)
    reports = sum(sizes[member.name] for member in plan.members if plan.hears(member))
    return int(min(own + reports, plan.budget.get("turns", own + reports)))
