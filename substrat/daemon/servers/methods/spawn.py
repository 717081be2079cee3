"""`agent.spawn`: checks a new agent's places, chat and variables, and creates it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from sandbox.spec import Network
from substrat.core.agents import environment
from substrat.core.agents.records import AgentSettings, Priority, Restore
from substrat.core.families import budget
from substrat.core.programs.table import CURSOR, named
from substrat.daemon.agents.settings import others_of
from substrat.daemon.agents.spawning import SpawnRequest
from substrat.daemon.clones.wishes import CloneWish
from substrat.daemon.servers.methods.request import Command, OperatorRequest, Retries, Seconds, about
from substrat.errors import NotAvailable, SessionDamaged
from substrat.names import is_uuid

if TYPE_CHECKING:
    from substrat.daemon.servers.methods.services import Services
    from substrat.daemon.servers.rpc import ClientConnection


class AgentSpawn(OperatorRequest, frozen=True):
    """Creates an agent. With a prompt it has work at once."""

    method: ClassVar[str] = "agent.spawn"

    workspace: Annotated[str, about("the absolute path of the directory it works in")]
    name: Annotated[str | None, about("its name; one is made up when it is left out")] = None
    program: Annotated[str | None, about("the agent program; default: `agent.program` of the configuration")] = None
    model: Annotated[
        str | None, about("the model; default: `programs.NAME.model`, else `agent.model`, of the configuration")
    ] = None
    network: Annotated[
        Network | None, about("`none`, `filtered` or `host`; default: `sandbox.network` of the configuration")
    ] = None
    allow: Annotated[
        tuple[str, ...],
        about(
            "entries that `filtered` lets through besides the configured list: `HOST[:PORT][=private]`, `*.HOST` for the "
            "subdomains, a network, `@PRESET`; asks for `filtered` by itself"
        ),
    ] = ()
    bind: Annotated[tuple[str, ...], about("absolute paths of further files and directories that it may write to")] = ()
    bind_ro: Annotated[tuple[str, ...], about("absolute paths of further files and directories that it may read")] = ()
    prompt: Annotated[str | None, about("its first prompt")] = None
    session: Annotated[
        str | None, about("the id of a chat of this workspace that it takes over; its model is the default then")
    ] = None
    restore: Annotated[
        Restore | None,
        about(
            "its fate when its turn is lost: `hold` (it waits for a person) or `auto` (it goes on by itself); "
            "default: `agent.restore` of the configuration"
        ),
    ] = None
    priority: Annotated[
        Priority | None, about("`high`, `normal` (the default) or `low`: which agents that wait it goes before")
    ] = None
    env: Annotated[tuple[str, ...], about("variables of its own, `NAME=VALUE`; they go before those of `agent.env`")] = ()
    ssh_agent: Annotated[
        str | None, about("the absolute path of an ssh-agent's socket, which it may ask for signatures")
    ] = None

    time_limit: Annotated[
        Seconds | None, about("seconds that a turn of it may take, 0 for no limit; default: `turns.time_limit`")
    ] = None
    silence_limit: Annotated[
        Seconds | None,
        about(
            "seconds that it may print nothing while no tool call is open, 0 for no limit; default: `turns.silence_limit`"
        ),
    ] = None
    check: Annotated[
        Command | None, about("a shell command: the agent's work is done when it succeeds on the files of a turn's end")
    ] = None
    retries: Annotated[
        Retries | None, about("how often the agent is sent back when the check fails for its work; default 2")
    ] = None
    budget: Annotated[
        tuple[str, ...], about("what it may use with its descendants, `KEY=NUMBER`, as `limits` of `agent.budget`")
    ] = ()
    clone: Annotated[
        bool | None,
        about(
            "whether it works in a private clone of its own; default: `agent.workspace` of the configuration, and in place "
            "where no clone can be made or a chat is taken over"
        ),
    ] = None
    branch: Annotated[str | None, about("the branch of its clone, which may exist; default: `substrat/NAME`")] = None
    base: Annotated[str | None, about("the commit that its clone starts at; default: HEAD")] = None
    wip: Annotated[bool, about("whether its clone has your uncommitted changes, as a first commit")] = False

    async def perform(self, services: Services, connection: ClientConnection, /) -> object:
        requests, checks = services.requests, services.sandboxes.checks
        program = named(self.program or services.registry.config.agent.program)
        if self.session is not None and program is not CURSOR:
            raise NotAvailable(f"{program.name} can't take a chat over: leave the session out")
        await checks.check(program.id)
        workspace = await checks.check_workspace(self.workspace)
        continues = self.session is not None
        wish = CloneWish(clone=self.clone, branch=self.branch, base=self.base, wip=self.wip, continues_chat=continues)
        granted = await services.clones.wishes.check(workspace, wish, self.name or "")
        session, model = await self._adopted(services, workspace)
        binds = await checks.check_binds(self.bind, self.bind_ro, workspace)
        ssh_agent = self.ssh_agent
        if ssh_agent is not None:
            ssh_agent = await checks.check_ssh_agent(ssh_agent, workspace, binds)
        restore = self.restore or services.registry.config.agent.restore
        settings = AgentSettings(restore, environment.read(self.env), ssh_agent, program=program.id, **others_of(self))
        spawn = SpawnRequest(
            workspace, self.name, model, self.network, self.prompt, session=session, allow=self.allow, binds=binds,
            settings=settings, clone=granted.clone, by=connection.by, budget=budget.read(self.budget),
        )  # fmt: skip
        await services.sandboxes.preparer.protector.find_git(workspace)
        agent = requests.spawn(spawn)
        message = services.registry.store.newest_prompt(agent.id) if self.prompt is not None else None
        notes = await services.clones.spawn_notes.of(agent, granted)
        return {
            **services.objects.one(agent),
            **({"message": message} if message is not None else {}),
            **({"notes": notes} if notes else {}),
        }

    async def _adopted(self, services: Services, workspace: str) -> tuple[str | None, str | None]:
        """Return the chat that the agent takes over and the agent's model."""
        if self.session is None:
            return None, self.model
        session = self.session.lower()
        if is_uuid(session):
            await services.chats.sessions.rescue(workspace, session)
        head, _ = await services.chats.read(workspace, session)
        if head.damage is not None:
            raise SessionDamaged(f"the session {session} is damaged: {head.damage}; nothing was changed")
        return session, self.model or head.model
