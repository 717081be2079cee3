"""The methods that change what an agent is called and the settings of its next turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from sandbox.spec import Network
from substrat.core.agents import environment
from substrat.core.agents.records import Priority
from substrat.core.programs.table import named
from substrat.daemon.agents.settings import WantedSettings, others_of
from substrat.daemon.servers.methods.request import AgentName, Command, OperatorRequest, Retries, Seconds, about
from substrat.errors import InvalidParams

if TYPE_CHECKING:
    from substrat.daemon.servers.methods.services import Services
    from substrat.daemon.servers.rpc import ClientConnection


class AgentRename(OperatorRequest, frozen=True):
    """Gives an agent another name; the refs of its clone in the user's repository move along.

    Fails with `NameTaken`, with `InvalidParams` for a name that can't be one, and with `Refused` while a turn or a command
    runs in its sandbox, its clone is being made or its work is being landed, and where refs of that name hold other work.
    """

    method: ClassVar[str] = "agent.rename"
    waits: ClassVar[bool] = True

    agent: AgentName
    name: Annotated[str, about("the new name")]

    async def perform(self, services: Services, connection: ClientConnection, /) -> object:
        return services.objects.one(await services.clones.renaming.rename(self.agent, self.name, connection.by))


class AgentSet(OperatorRequest, frozen=True):
    """Changes an agent's settings, all or none, from its next turn on.

    A running turn is held to a changed allow-list at once. Rights that an agent loses its descendants lose too, and it
    never gets more than its parent has (`PolicyDenied`). Fails with `Refused` for an ended agent, and for another network
    while a turn of it, or of a descendant that loses by it, runs. `workspace` comes alone, and fails with `Refused` while a
    turn runs, for an agent in no clone, and where the repository there lacks the agent's work.
    """

    method: ClassVar[str] = "agent.set"

    agent: AgentName
    program: Annotated[
        str | None, about("the agent program: a new chat begins, with its model and its hosts unless others are given")
    ] = None
    model: Annotated[str | None, about("the model")] = None
    network: Annotated[Network | None, about("`none`, `filtered` or `host`")] = None
    allow: Annotated[
        tuple[str, ...] | None, about("all that `filtered` lets through, in place of the list that it has")
    ] = None
    priority: Annotated[Priority | None, about("`high`, `normal` or `low`: which agents that wait it goes before")] = None
    time_limit: Annotated[Seconds | None, about("seconds that a turn of it may take; 0: no limit")] = None
    silence_limit: Annotated[
        Seconds | None, about("seconds that it may print nothing while no tool call is open; 0: no limit")
    ] = None
    check: Annotated[Command | None, about("a shell command that says whether its work is done")] = None
    retries: Annotated[Retries | None, about("how often it is sent back when the check fails for its work")] = None
    defaults: Annotated[
        tuple[str, ...],
        about(
            "which of `model`, `network`, `allow`, `priority`, `time_limit`, `silence_limit`, `check`, `retries` go back "
            "to their defaults"
        ),
    ] = ()
    env: Annotated[tuple[str, ...], about("variables of its own, `NAME=VALUE`, besides those it has")] = ()
    without: Annotated[tuple[str, ...], about("the names of variables that it loses")] = ()
    workspace: Annotated[str | None, about("where the repository is now that its clone is of")] = None

    async def perform(self, services: Services, connection: ClientConnection, /) -> object:
        if self.workspace is not None:
            if self != AgentSet(agent=self.agent, workspace=self.workspace):
                raise InvalidParams("'workspace' comes alone: change the other settings by another request")
            return services.objects.one(
                await services.clones.relocating.relocate(self.agent, self.workspace, connection.by)
            )
        variables = environment.read(self.env)
        program = named(self.program).id if self.program is not None else None
        if program is not None:
            await services.sandboxes.checks.check(program)
        wanted = WantedSettings(
            self.model, self.network, self.allow, variables, self.without, defaults=self.defaults,
            others=others_of(self), program=program,
        )  # fmt: skip
        return services.objects.one(services.agents.settings.change(self.agent, wanted, connection.by))
