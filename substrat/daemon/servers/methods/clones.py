"""The methods of agents' private clones: their differences, and landing them."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Annotated, ClassVar

import trio

from substrat.core.workspaces import diffs, git_leftovers, landing
from substrat.core.workspaces.landing import Landing, LandingMode
from substrat.daemon.clones import setup_log
from substrat.daemon.clones.landing import failure_of
from substrat.daemon.servers.methods.request import AgentName, Integer, OperatorRequest, about
from substrat.errors import InvalidParams, Refused

if TYPE_CHECKING:
    from substrat.core.agents.records import Agent
    from substrat.core.workspaces.clones import Clone
    from substrat.daemon.servers.methods.services import Services
    from substrat.daemon.servers.rpc import ClientConnection

_HEAD = re.compile("[0-9a-f]{7,64}")
_NAMED = 10
"""Descendants that a note names: `ls` shows them all."""


class AgentDiff(OperatorRequest, frozen=True):
    """Compares the work in an agent's private clone, as of the last keep, with its base, or where a rebase has put it.

    Fails with `Refused` for an agent that works in the user's checkout, and before anything is kept; with `NotFound` for a
    turn whose work isn't kept.
    """

    method: ClassVar[str] = "agent.diff"
    waits: ClassVar[bool] = True

    agent: AgentName
    wip: Annotated[bool, about("whether uncommitted files count")] = False
    turn: Annotated[Integer | None, about("the number of the turn whose changes alone are wanted")] = None
    text: Annotated[bool, about("whether the patch is wanted")] = False

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        agent = services.requests.find(self.agent)
        clone = clone_of(agent, "git diff shows it")
        found = await services.clones.diffing.difference(clone, wip=self.wip, turn=self.turn, with_text=self.text)
        return {
            "agent": agent.name,
            "from": found.from_commit,
            "to": found.to_commit,
            "files": [diffs.as_object(file) for file in found.files],
            "added": sum(file.added or 0 for file in found.files),
            "deleted": sum(file.deleted or 0 for file in found.files),
            "text": found.text,
            "cut": found.cut,
        }


class AgentSetup(OperatorRequest, frozen=True):
    """Reads the output of the commands that set an agent's private clone up, its beginning and its end.

    Fails with `Refused` for an agent that works in the user's checkout.
    """

    method: ClassVar[str] = "agent.setup"

    agent: AgentName

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        agent = services.requests.find(self.agent)
        clone_of(agent, "it has no set-up")
        text = await trio.to_thread.run_sync(setup_log.read, services.state.layout.agent(agent.id).setup_log)
        return {"agent": agent.name, "text": text}


class AgentMerge(OperatorRequest, frozen=True):
    """Lands the commits of agents' private clones in a branch of the user's, one after the other, the oldest agent first.

    A person looks first: files that the host runs or obeys unasked, and links out of the repository, land only if `accept`
    names them, and `at` the commit at which they were looked at. A conflict changes nothing; the agent is asked once to
    rebase its work. Work isn't landed in a checkout while a sandbox runs that can write there: it is `queued`, and lands
    before that agent's next turn. For a single agent, anything but `landed`, `nothing` and `queued` is the error
    `Conflict`.
    """

    method: ClassVar[str] = "agent.merge"
    waits: ClassVar[bool] = True

    agents: Annotated[tuple[str, ...], about("the agents' names or ids")]
    into: Annotated[str | None, about("the branch; default: the one that was checked out when the agent was spawned")] = (
        None
    )
    squash: Annotated[bool, about("whether the work becomes one commit")] = False
    ff_only: Annotated[bool, about("whether it lands only where the branch is an ancestor of it")] = False
    message: Annotated[str | None, about("the message of the commit")] = None
    check: Annotated[
        str | None,
        about(
            "a shell command that must succeed on the merged files, in a sandbox without network and login; default: the "
            "agent's own. Where that has passed on the very files that land it isn't run again"
        ),
    ] = None
    accept: Annotated[tuple[str, ...], about("files, or directories of files, that a person has looked at, at `at`")] = ()
    at: Annotated[
        str | None,
        about("the agent's head that a person has looked at, at least 7 digits of it; with another one the work is `held`"),
    ] = None
    unattended: Annotated[bool, about("whether a refusal goes to the operator's inbox too")] = False
    request: Annotated[
        str | None,
        about("an id of the client's own; asking again with it, for example after a restart, hears the same outcomes"),
    ] = None
    outcomes: Annotated[bool, about("whether a refusal of a single agent's work is an outcome too, not an error")] = False
    wait: Annotated[bool, about("whether to wait until each is decided; one that isn't has the outcome `queued` else")] = (
        True
    )

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        if self.squash and self.ff_only:
            raise InvalidParams("squash and ff_only contradict each other: leave one of them out")
        if not self.agents:
            raise InvalidParams("'agents' names no agent")
        if self.accept and self.at is None:
            raise InvalidParams("'accept' needs 'at', the commit at which the files were looked at")
        if self.at is not None and not _HEAD.fullmatch(self.at):
            raise InvalidParams(f"{self.at!r} isn't a commit: 'at' has 7 to 64 hexadecimal digits")
        if self.at is not None and len(self.agents) > 1:
            raise InvalidParams("'accept' and 'at' are about one agent's work: ask for each by itself")
        found = [services.requests.find(name) for name in dict.fromkeys(self.agents)]
        wishes = [self._landing(services, agent) for agent in sorted(found, key=lambda agent: agent.created_at)]
        outcomes = await services.clones.landings.land(self.request or secrets.token_hex(16), wishes, wait=self.wait)
        # A rebase that its agent hasn't ended keeps commits back, and descendants may: nothing else tells of either.
        left = {
            agent.id: [
                *git_leftovers.sentences(await services.sandboxes.preparer.protector.unfinished(agent)),
                *self._untaken(services, agent, {one.id for one in found}),
            ]
            for agent in found
        }
        if len(wishes) == 1 and not self.outcomes and (failure := failure_of(outcomes[wishes[0].agent])) is not None:
            raise failure
        return [
            {"agent": services.registry.name_of(wish.agent), "into": wish.target, "outcome": outcome.kind,
             "commit": outcome.commit, "files": list(outcome.files), "text": outcome.text, "head": outcome.head,
             "was": outcome.was, "check": outcome.check and outcome.check.public,
             "notes": [*outcome.notes, *left[wish.agent]]}
            for wish in wishes
            for outcome in (outcomes[wish.agent],)
        ]  # fmt: skip

    def _untaken(self, services: Services, agent: Agent, asked: set[str]) -> list[str]:
        names = [clone.name for clone in services.registry.untaken(agent) if clone.agent not in asked]
        if not names:
            return []
        told, more = ", ".join(names[:_NAMED]), f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return [f"{told}{more}: commits that {agent.name} hasn't taken and that `substratctl merge` lands by these names"]

    def _landing(self, services: Services, agent: Agent) -> Landing:
        clone = clone_of(agent, "your own git has its commits already")
        mode = LandingMode.SQUASH if self.squash else LandingMode.FF_ONLY if self.ff_only else LandingMode.MERGE
        check = self.check if self.check is not None else agent.settings.check
        return Landing(
            0, agent.id, landing.target_of(clone, self.into), mode, self.message, check, self.accept,
            unattended=self.unattended, time=services.registry.now(), at=self.at,
        )  # fmt: skip


class AgentRestore(OperatorRequest, frozen=True):
    """Puts an agent's private clone back to how a turn left it; what is there is kept first.

    The branch that is checked out goes to that turn's last commit, the files to those of its end; ignored files and the
    session stay, and the agent's next prompt tells it. Fails with `Refused` while a turn or a command of `agent.exec` runs,
    and for an agent that has ended or works in the user's checkout; with `NotFound` for a turn whose work isn't kept; with
    `SandboxFailed` where the present work can't be kept, or a file that git ignores is in the way.
    """

    method: ClassVar[str] = "agent.restore"
    waits: ClassVar[bool] = True

    agent: AgentName
    turn: Annotated[Integer, about("the number of the turn")]

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        agent = services.requests.find(self.agent)
        clone_of(agent, "your own git brings earlier files back")
        try:
            done = await services.clones.restoring.restore(agent, self.turn)
        finally:
            services.registry.admit()
        return {"agent": agent.name, "turn": self.turn, "head": done.head, "wip": done.wip, "kept_as": done.kept_as}


class AgentCheckout(OperatorRequest, frozen=True):
    """Makes a working copy of the commits of an agent's private clone, as a linked worktree of the user's repository.

    Files that the host runs or obeys unasked, links out of the repository and their like, where they differ from the user's
    own branch, are in it only if `accept` names them; the outcome is `held` otherwise. Fails with `Refused` where an agent
    may write in the directory, or something is there already; with `Conflict` where git refuses.
    """

    method: ClassVar[str] = "agent.checkout"
    waits: ClassVar[bool] = True

    agent: AgentName
    directory: Annotated[str, about("the absolute path of the working copy")]
    accept: Annotated[tuple[str, ...], about("files, or directories of files, that a person has looked at")] = ()

    async def perform(self, services: Services, _: ClientConnection, /) -> object:
        agent = services.requests.find(self.agent)
        clone = clone_of(agent, "its files are there")
        done = await services.clones.checkouts.make(clone, self.directory, self.accept)
        return {"agent": agent.name, **done._asdict(), "files": list(done.files)}


def clone_of(agent: Agent, instead: str) -> Clone:
    """Return an agent's clone; raises `Refused`, with what to do instead, if it works in the user's checkout."""
    if agent.clone is None:
        raise Refused(f"{agent.name} works in your checkout: {instead}")
    return agent.clone
