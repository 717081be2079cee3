"""Spawns agents: checks a request against limits, names and the parent's rights, and commits the new agent."""

from __future__ import annotations

import os
import re
import secrets
import uuid
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from mcp_server.tools import CALLS_PER_SECOND
from sandbox.spec import Network
from substrat.core.agents.lifecycle import Event, Phase
from substrat.core.agents.records import (
    BY_OPERATOR,
    OPERATOR,
    RESERVED_NAMES,
    Agent,
    AgentSettings,
    ItemKind,
    Session,
    by_agent,
    open_turn_id,
)
from substrat.core.agents.rights import Policy, SharedPath
from substrat.core.families import budget
from substrat.core.families.budget import USD
from substrat.core.netfilter.names import AllowList
from substrat.core.workspaces import overlap
from substrat.core.workspaces.clone_life import CloneEvent
from substrat.core.workspaces.clones import Clone, ref_problem
from substrat.core.workspaces.overlap import Claim, Overlap
from substrat.daemon.agents import pools
from substrat.daemon.state.events import DaemonEvent
from substrat.errors import InvalidParams, LimitReached, NameTaken, PolicyDenied, Refused
from substrat.names import is_agent_name, is_uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from substrat.daemon.agents.change import Change
    from substrat.daemon.agents.registry import Registry

SHARE, CLONE, SCRATCH = "share", "clone", "scratch"
"""Where a child can work: in its parent's directory, in a clone of its own, in an empty directory of its own."""
_MAX_MODEL = 200
"""Characters: each agent object carries its model's slug, and every list of agents all of them."""


class SpawnRequest(NamedTuple):
    """The properties of a new agent; None means the configured default, or a name that is made up.

    Args:
        workspace: the directory that it works in.
        name: its name.
        model: the model that its turns run with.
        network: its network; its parent's by default.
        prompt: its first prompt; None: it has none yet.
        session: a stored chat that it takes over.
        allow: patterns besides its parent's or the configured list; they ask for `filtered` by themselves.
        binds: the paths that its sandbox shares besides its workspace, checked; its parent's by default.
        settings: its optional settings, checked but for the length of its instructions.
        clone: the private clone that it gets, checked, all but its tree's name; None: it works in place.
        scratch: the workspace, given the agent's id, of one that gets an empty directory of its own.
        needs: the ids of agents that must succeed before its first turn, checked.
        by: who asks, where no agent does (`records.BY_OPERATOR`).
        only: all that its `filtered` network lets through, a part of its parent's; None: all of that.
        budget: limits of what it may use with its descendants; empty: it has no budget of its own.
        also: adds to the commit that makes it.
        is_operators: whether its task is the operator's although it has a parent, who isn't told its result then.
    """

    workspace: str
    name: str | None = None
    model: str | None = None
    network: Network | None = None
    prompt: str | None = None
    session: str | None = None
    allow: tuple[str, ...] = ()
    binds: tuple[SharedPath, ...] | None = None
    settings: AgentSettings = AgentSettings()
    clone: CloneRequest | None = None
    scratch: Callable[[str], str] | None = None
    needs: tuple[str, ...] = ()
    by: str = BY_OPERATOR
    only: tuple[str, ...] | None = None
    budget: Mapping[str, float] = MappingProxyType({})
    also: Callable[[Change, Agent], None] | None = None
    is_operators: bool = False


class CloneRequest(NamedTuple):
    """The properties of a new agent's private clone (`clones.Clone`).

    Args:
        directory: where trees lie.
        repository: the top level of the user's checkout.
        git_dir: the git directory that all worktrees of the user's repository share.
        branch: None: `substrat/NAME`.
        target: the branch that its work is landed in; None: HEAD is detached.
        base: the commit that it starts at; None for a repository without commits.
        with_wip: whether the user's uncommitted changes are taken along.
        source: the id of the parent whose head it starts at; None: it starts at a commit of the user's.
        may_lack: whether there may be submodules or files of git-lfs where it begins.
        is_strange: whether it begins at a commit that is in no branch or tag of the user's.
    """

    directory: str
    repository: str
    git_dir: str
    branch: str | None
    target: str | None
    base: str | None
    with_wip: bool = False
    source: str | None = None
    may_lack: bool = False
    is_strange: bool = False


class ChildPlace(NamedTuple):
    """Where a child works.

    Args:
        kind: `SHARE`, `CLONE` or `SCRATCH`.
        words: where that is, for its parent: `in a clone that starts at your HEAD, 1234567890ab`.
        clone: its clone.
        scratch: its workspace, given its id.
    """

    kind: str
    words: str
    clone: CloneRequest | None = None
    scratch: Callable[[str], str] | None = None


def spawn(registry: Registry, request: SpawnRequest, parent: Agent | None = None) -> Agent:
    """Create an agent and queue its first prompt, if there is one.

    Args:
        registry: the agents.
        request: its properties; the workspace has been checked.
        parent: the agent that asks, or None for the operator.

    Raises:
        NameTaken: another agent has the name.
        InvalidParams: the name can't be one.
        PolicyDenied: it would have more than its parent, shares a directory that it may not share, or runs a program that
            its parent may not start.
        LimitReached: there are too many.
        Refused: another agent holds the session.
    """
    check_room(registry, parent)
    _check_session(registry, request.session)
    name = request.name if request.name is not None else _new_name(registry, in_clone=request.clone is not None)
    check_name(registry, name, parent)
    most = _most(registry, parent, request.settings.program) if parent is not None else None
    policy = _policy(registry, request, most)
    _check_rights(policy, most, parent)
    lent = overlap.lent(request.settings.environment, request.settings.ssh_agent)
    agent_id = str(uuid.uuid4())
    if request.scratch is not None:
        request = request._replace(workspace=request.scratch(agent_id))
    _check_instructions(registry, request.settings.instructions)
    _check_budget(registry, request.budget, parent)
    clone = _clone(agent_id, name, request)
    git = registry.index.git_of(request.workspace) if clone is None else ()
    claim = Claim(name, clone.tree if clone is not None else request.workspace, policy, git, lent)
    shared = _check_shared(registry, claim)
    is_alike = parent is not None and parent.settings.program == request.settings.program
    model = request.model or (parent.model if parent and is_alike else registry.config.model_of(request.settings.program))
    check_model(model)
    above = pools.owners(registry, parent) if parent is not None else []
    if USD in request.budget or any(USD in owner.budget.limits for owner in above if owner.budget is not None):
        pools.check_price(registry, model)
    now = registry.now()
    agent = Agent(
        id=agent_id, name=name, phase=Phase.IDLE, workspace=request.workspace, model=model, policy=policy,
        created_at=now, since=now, parent=parent.id if parent else None,
        session=Session(request.session, stored=True) if request.session is not None else None,
        settings=request.settings, needs=request.needs,
        shared=registry.shared_of(parent) if parent else agent_id,
        budget=budget.with_limits(None, request.budget).noted(now) if request.budget else None,
    )  # fmt: skip
    with registry.change("agent spawned") as change:
        agent = change.put(agent) if clone is None else change.put_clone(agent, clone)
        if clone is not None:
            change.step_clone(clone, CloneEvent.ASKED)
        sender = (parent.id, parent.name) if parent is not None and not request.is_operators else (OPERATOR, OPERATOR)
        by = f"agent {parent.name}" if parent else "the operator"
        where = f"a clone of {clone.repository}" if clone is not None else agent.workspace
        data = {"by": by_agent(parent) if parent else request.by, "workspace": agent.workspace}
        since = registry.store.start_of_turn(open_turn_id(parent)) if parent else None
        (cause,) = change.record(
            DaemonEvent(agent.id, None, "agent:spawned", f"{name} spawned by {by} in {where}", data, since)
        )
        for note in _notes(agent, shared):
            change.record(DaemonEvent(agent.id, None, "workspace:shared", note))
        if request.prompt is not None:
            change.add_item(agent, ItemKind.PROMPT, request.prompt, sender, Event.PROMPT, cause)
        if request.also is not None:
            request.also(change, agent)
    return registry.find(agent.id)


def _check_budget(registry: Registry, limits: Mapping[str, float], parent: Agent | None) -> None:
    budget.checked(limits)
    for owner, above in pools.of(registry, parent) if parent is not None else ():
        if (problem := budget.too_much(limits, owner.name, above)) is not None:
            raise PolicyDenied(problem)


def check_model(model: str) -> None:
    """Raise `InvalidParams` if a text can't be a model's slug."""
    if not model or len(model) > _MAX_MODEL or not model.isprintable():
        raise InvalidParams(f"{model[:40]!r} can't be a model: use a slug that `cursor-agent models` lists")


def _check_instructions(registry: Registry, instructions: str) -> None:
    most = registry.config.limits.message_bytes
    if len(instructions.encode("utf-8", "replace")) > most:
        raise InvalidParams(f"instructions may have {most} bytes: write the rest to a file, and let them name it")


def _clone(agent_id: str, name: str, request: SpawnRequest) -> Clone | None:
    """Return a new agent's clone; raises `InvalidParams` if its refs can't be named after the agent."""
    wanted = request.clone
    if wanted is None:
        return None
    if (problem := ref_problem(name)) is not None:
        raise InvalidParams(f"no clone's refs can be named after {name!r}: {problem}; choose another name")
    return Clone(
        agent_id, name, os.path.join(wanted.directory, agent_id), wanted.repository, wanted.git_dir, request.workspace,
        wanted.branch or f"substrat/{name}", wanted.target, wanted.base, with_wip=wanted.with_wip, source=wanted.source,
        is_strange=wanted.is_strange,
    )  # fmt: skip


def _check_shared(registry: Registry, claim: Claim) -> tuple[Overlap, ...]:
    """Find out which directories a new agent shares; raises `PolicyDenied` if it may not."""
    others = registry.index.claims.beside(claim)
    shared = overlap.overlaps(claim, others)
    refused = overlap.refusal_of_new(claim, others)
    if refused is None and not registry.config.sandbox.shared_networks:
        refused = overlap.refusal_of_mixed(claim, shared)
    if refused is not None:
        raise PolicyDenied(refused)
    return shared


def _most(registry: Registry, parent: Agent, program: str) -> Policy:
    """Return the most that a parent's child may have; raises `PolicyDenied` if it may have none of that program."""
    if program != parent.settings.program and not registry.config.program(program).children:
        raise PolicyDenied(
            f"{parent.name} may not start agents of {program}, because it runs {parent.settings.program}: the operator "
            f"allows it with programs.{program}.children = true in config.toml"
        )
    return registry.most_of_child(parent, program)


def _policy(registry: Registry, request: SpawnRequest, most: Policy | None) -> Policy:
    """Return the rights of a new agent: as requested, else the most that a child may have, else as configured."""
    binds = request.binds if request.binds is not None else most.binds if most is not None else ()
    network = request.network or (Network.FILTERED if request.allow or request.only is not None else None)
    if network is None:
        network = most.network if most is not None else registry.config.sandbox.network
    if network is not Network.FILTERED:
        if request.allow or request.only is not None:
            raise InvalidParams(f"the network {network.value!r} has no list of what it allows: leave allow out")
        return Policy(network, binds=binds)
    if request.only is not None:
        return Policy(network, AllowList.asked_for(request.only).texts, binds)
    above = most if most is not None and most.network is network else None
    allow = above.allow if above is not None else registry.config.allow_of(request.settings.program)
    return Policy(network, AllowList.of((*allow, *AllowList.asked_for(request.allow).texts)).texts, binds)


def _check_session(registry: Registry, session: str | None) -> None:
    """Raise `Refused` if another agent holds a session."""
    holder = registry.index.of_session(session) if session is not None else None
    if holder is not None:
        how = f"`substratctl {'rm' if holder.phase == Phase.ENDED else 'send'} {holder.name}`"
        effect = "forgets that ended agent" if holder.phase == Phase.ENDED else "continues it"
        raise Refused(f"the session {session} is {holder.name}'s: {how} {effect}")


def _check_rights(policy: Policy, most: Policy | None, parent: Agent | None) -> None:
    """Raise `PolicyDenied` if a child would have more rights than the most that its parent's children may have."""
    if parent is None or most is None:
        return
    if not most.shows(policy):
        raise PolicyDenied(f"a child can't be shown more than its parent {parent.name}: leave the binds out")
    if not most.allows(policy):
        more = "" if policy.network is not parent.policy.network else ", with more allowed,"
        raise PolicyDenied(
            f"a child can't have the network {policy.network.value!r}{more} when its parent {parent.name} has "
            f"{parent.policy.network.value!r}"
        )


def check_room(registry: Registry, parent: Agent | None) -> None:
    """Raise `LimitReached` if there is no room for another agent, or another child of a parent."""
    limits = registry.config.limits
    if len(registry.agents) >= limits.agents:
        raise LimitReached(f"there are {len(registry.agents)} agents already (limits.agents): `substratctl rm` some")
    if parent is None:
        return
    if not limits.children:
        raise LimitReached("no agent may start children here: do the work yourself")
    busy, idle = _children(registry, parent)
    if len(busy) >= limits.children:
        names = f", for example {idle[0]}, one of yours that is idle" if idle else ""
        raise LimitReached(
            f"{len(busy)} children of yours are at work, as many as may be: end your turn with wait_agents, mode any, and "
            f"start it then; or give the task with send_message to a child that has finished{names}"
        )
    depth, root = len(registry.lineage(parent)), registry.root_of(parent)
    if depth > limits.depth:
        raise LimitReached(
            f"{parent.name} is in generation {depth - 1}, the last: do the work yourself or tell your parent"
        )
    # So that one agent of the operator's can't use up all there may be.
    members = [member for member in registry.family(root) if member.phase != Phase.ENDED]
    if len(members) > limits.family:
        raise LimitReached(
            f"{root.name} has {limits.family} descendants already, as many as may be: end_agent those that have finished"
        )


def _children(registry: Registry, parent: Agent) -> tuple[list[str], list[str]]:
    """Return the names of an agent's children that are at work, or wait or ask, and of those that have finished."""
    children = [agent for agent in registry.children(parent.id) if agent.phase != Phase.ENDED]
    ids = [agent.id for agent in children]
    going_on = registry.store.askers(ids) | registry.store.waiters(ids)
    idle = [agent.name for agent in children if agent.phase in {Phase.IDLE, Phase.FAILED} and agent.id not in going_on]
    return [agent.name for agent in children if agent.name not in idle], idle


def check_time_limit(registry: Registry, parent: Agent, seconds: float) -> None:
    """Raise `PolicyDenied` if a child can't have a time limit, because its parent's is shorter."""
    most = limits_of(registry, parent)["turn_s"]
    if most is not None and seconds > most:
        raise PolicyDenied(f"its time limit can be {most:g} s at most, as {parent.name}'s, not {seconds:g} s")


def limits_of(registry: Registry, agent: Agent) -> dict[str, float | None]:
    """Return an agent's limits: what it may still start and how deep, sizes, times in seconds; None: there is none."""
    limits, turns, own = registry.config.limits, registry.config.turns, agent.settings
    turn_s = turns.time_limit if own.time_limit is None else own.time_limit
    silence_s = turns.silence_limit if own.silence_limit is None else own.silence_limit
    return {
        "children_left": max(0, limits.children - len(_children(registry, agent)[0])),
        "depth_left": max(0, limits.depth - len(registry.lineage(agent)) + 1),
        "message_bytes": limits.message_bytes, "turn_s": turn_s or None, "silence_s": silence_s or None,
        "calls_per_s": CALLS_PER_SECOND,
    }  # fmt: skip


def check_name(registry: Registry, name: str, parent: Agent | None, renamed: Agent | None = None) -> None:
    """Check a name that an agent is to get.

    Args:
        registry: the agents.
        name: the name.
        parent: the agent's parent.
        renamed: the agent, if it has a name.

    Raises:
        InvalidParams: it can't be a name.
        NameTaken: another agent has it, or for a child one that looks like it.
    """
    if not is_agent_name(name):
        raise InvalidParams(f"{name!r} can't be a name: use up to 64 letters, digits, dots, dashes and underscores")
    if re.sub(r"[._-]", "", name.lower()) in RESERVED_NAMES or is_uuid(name.lower()):
        raise InvalidParams(f"the name {name!r} is reserved: choose another")
    if registry.has_name(name):
        way = f"rename that agent first, `substratctl set {name} name=NEW`" if renamed else f"`substratctl rm {name}` it"
        raise NameTaken(f"there is an agent {name!r} already: choose another name, or {way}")
    alike = registry.index.like(name)
    if any(agent.clone is not None and agent.clone.former_name == name for agent in alike):
        raise NameTaken(f"{name!r} is the former name of an agent whose refs are being deleted: try again in a moment")
    others = (agent.name for agent in alike if renamed is None or agent.id != renamed.id)
    other = next((other for other in others if other.lower() == name.lower()), None)
    if parent is not None and other is not None:
        raise NameTaken(f"the name {name!r} can be taken for {other!r}: choose another")


def _new_name(registry: Registry, *, in_clone: bool) -> str:
    number = len(registry.agents) + 1
    while registry.has_name(f"agent-{number}"):
        number += 1
    # The refs of a removed agent stay, with its work, so a clone's agent gets a name that none has had.
    return f"agent-{number}-{secrets.token_hex(3)}" if in_clone else f"agent-{number}"


def _notes(agent: Agent, shared: Iterable[Overlap]) -> tuple[str, ...]:
    """Return the notes on shared directories; a child that works where its parent does is no news."""
    is_told = [found for found in shared if found.is_mixed or not found.is_same or agent.parent is None]
    return tuple(overlap.notes(is_told))
