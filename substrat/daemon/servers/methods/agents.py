"""The methods that list, show and remove agents."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar

import structlog

from substrat.core.agents.lifecycle import RUNNING_PHASES, Phase
from substrat.core.agents.records import Completion
from substrat.core.workspaces import git_leftovers
from substrat.daemon.families.overview import finding_object
from substrat.daemon.kernel.files import NoAnswer
from substrat.daemon.servers import slices
from substrat.daemon.servers.methods.request import After, AgentName, Encoded, Integer, Limit, OperatorRequest, about
from substrat.daemon.workspaces import git_places, protected_paths
from substrat.errors import InvalidParams, SubstratError, WorkspaceUnusable
from substrat.protocol import vocabulary

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.registry import Registry
    from substrat.daemon.servers.methods.services import Services
    from substrat.daemon.servers.rpc import ClientConnection
    from substrat.daemon.state.layout import Layout

log = structlog.get_logger("substrat.agents")

_MAX_SHARES = 100
"""Agents that share a directory with one, in its object: a list that a person can still read."""


class AgentList(OperatorRequest, frozen=True):
    """Lists agents.

    If a page has `limit` agents, ask for the next one with `after`, the id of its last agent. That agent may be removed
    meanwhile: then that fails with `NotFound`, and the list is read from its beginning.
    """

    method: ClassVar[str] = "agent.list"

    fields: Annotated[
        tuple[str, ...],
        about(
            "the members each object is to have; default: all. A name that is none of an agent object's fails with "
            "`InvalidParams`. Only here there are `heard_at` too, when a running turn last had an event, null for any "
            "other agent; and `together`, whether it was suspended with all others rather than by its name"
        ),
    ] = ()
    names: Annotated[
        tuple[str, ...], about("only these agents, by name or id; those that there aren't are left out; default: all")
    ] = ()
    family: Annotated[bool, about("whether those that descend from `names` are listed too")] = False
    after: After = None
    limit: Limit = None

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        wanted = dict.fromkeys(self.fields)
        known = (*vocabulary.AGENT_FIELDS, vocabulary.HEARD_AT, vocabulary.TOGETHER)
        if odd := [name for name in wanted if name not in known]:
            raise InvalidParams(f"agent.list: {odd[0]!r} is no member of an agent object; there are {', '.join(known)}")
        await services.families.targets.look()
        limit = max(1, self.limit) if self.limit is not None else None
        found = services.registry.page(self.after, limit, self._chosen(services.registry) if self.names else None)
        return await services.objects.encode(found, wanted)

    def _chosen(self, registry: Registry) -> set[str]:
        named = [agent for name in self.names if (agent := registry.named(name)) is not None]
        return {one.id for agent in named for one in (registry.family(agent) if self.family else (agent,))}


class AgentShow(OperatorRequest, frozen=True):
    """Shows one agent."""

    method: ClassVar[str] = "agent.show"

    agent: AgentName

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        person = None
        with suppress(NoAnswer):
            person = await services.sandboxes.preparer.person.read(services.requests.find(self.agent))
        await services.families.targets.look()
        agent = services.requests.find(self.agent)
        use = services.turns.questions.use(agent)
        shares = services.registry.index.shared(agent)[:_MAX_SHARES] if agent.phase != Phase.ENDED else []
        more: dict[str, object] = {
            "shares": [
                {"agent": share.other.name, "path": share.path, "network": share.other.policy.network.value}
                for share in shares
            ],
            "binds": [bind._asdict() for bind in agent.policy.binds],
            "environment": [name for name, _ in agent.settings.environment],
            "ssh_agent": agent.settings.ssh_agent,
            "use": use._asdict() if use is not None else None,
            "without": list(person.absent) if person is not None and agent.phase != Phase.ENDED else [],
            "read_only": _read_only(services.state.layout, agent),
            "completed": _completed(services, agent),
        }
        if agent.phase not in RUNNING_PHASES:
            more["unfinished"] = [
                *_moved(agent), *git_leftovers.sentences(await services.sandboxes.preparer.protector.unfinished(agent))
            ]  # fmt: skip
        turns = services.registry.config.turns
        limits = {
            name: value if (value := getattr(agent.settings, name)) is not None else getattr(turns, name)
            for name in ("time_limit", "silence_limit")
        }
        given = {name: value for name, value in more.items() if value not in ([], None)}
        found = slices.encoded({**services.objects.with_result(agent), **limits, **given})
        if not agent.findings:
            return Encoded([found])
        findings = await slices.encode_list([finding_object(finding)] for finding in agent.findings)
        return Encoded([found[:-1], b',"findings":', *findings, b"}"])


def _moved(agent: Agent) -> list[str]:
    """Return a sentence about the repository of an agent's clone, where it isn't in its place."""
    if agent.clone is None:
        return []
    try:
        for path in (agent.clone.git_dir, agent.clone.repository):
            git_places.check_there(path, agent.name)
    except WorkspaceUnusable as problem:
        return [problem.message]
    return []


def _read_only(layout: Layout, agent: Agent) -> list[str]:
    """Return the git directories that are read-only as wholes in an agent's newest turn."""
    if agent.turn is None:
        return []
    found = protected_paths.decode(layout.agent(agent.id).turn(agent.turn.number).read_protected())
    return list(found.whole) if found is not None else []


def _completed(services: Services, agent: Agent) -> dict[str, object] | None:
    """Return what an agent gave to `complete` in its newest turn; None: it gave nothing."""
    if agent.turn is None or agent.turn.completion not in {Completion.SUCCEEDED, Completion.FAILED}:
        return None
    turn = services.registry.store.turn(agent.turn.id)  # only the store holds its words
    return {"status": agent.turn.completion.value, "text": turn.report} if turn is not None else None


class AgentRm(OperatorRequest, frozen=True):
    """Forgets an agent: its files, its events, its name.

    Its workspace and its chat stay. Its children have no parent any more. The work in its private clone is kept once more,
    and the clone's tree is removed if nothing is only there.
    """

    method: ClassVar[str] = "agent.rm"
    waits: ClassVar[bool] = True

    agent: AgentName

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        agent = services.requests.find(self.agent)
        services.exec_sessions.check_none(agent)
        services.requests.check_removable(agent)
        services.registry.holds.check(agent.id)
        await services.chats.sessions.keep(agent)
        removed = await services.clones.pruning.remove(agent, partial(services.requests.remove, agent.id))
        return {"agent": agent.name, "tree": removed.tree, "text": removed.text}


class AgentExplain(OperatorRequest, frozen=True):
    """Says how the agent's next turn would be started."""

    method: ClassVar[str] = "agent.explain"

    agent: AgentName

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        return (await services.sandboxes.preparer.explain(services.requests.find(self.agent)))._asdict()


class AgentAccept(OperatorRequest, frozen=True):
    """Notes that a person has seen the reasons for attention.

    It accepts the content that each finding was recorded with: where the files differ by now, nothing is accepted and they
    are found anew, with another number. Other content later is found again.
    """

    method: ClassVar[str] = "agent.accept"

    agent: AgentName
    what: Annotated[
        tuple[Integer, ...],
        about("the numbers of the findings; default: all of them, the failed turn, and work that has not landed"),
    ] = ()

    async def perform(self, services: Services, connection: ClientConnection, /) -> object:
        accepted = await services.state.findings.accept(self.agent, self.what, connection.by)
        try:
            await services.sandboxes.preparer.protector.note_borrowed_anew(accepted)
        except SubstratError as problem:  # what was accepted stays so; a list that isn't noted only lends nothing
            log.warning("what is borrowed isn't noted", agent=accepted.name, reason=problem.message)
        return services.objects.one(accepted)
