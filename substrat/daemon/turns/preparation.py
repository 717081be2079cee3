"""Prepares a turn's sandbox: checks that the turn may start, writes its files, and protects its workspace's paths."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import attrs
import msgspec
import structlog
import trio

from substrat.core.families import budget
from substrat.core.programs.table import program_of
from substrat.core.workspaces import git_leftovers, overlap
from substrat.daemon.agents import pools
from substrat.daemon.agents.findings import roots_of
from substrat.daemon.agents.turn_prompts import prompt_of
from substrat.daemon.turns.shortage import patiently
from substrat.daemon.workspaces import checking, protected_paths
from substrat.daemon.workspaces.lost_mounts import ProtectedSandbox
from substrat.errors import PolicyDenied, SubstratError, WorkspaceUnusable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager, AsyncExitStack

    from substrat.core.agents.records import Agent, Turn
    from substrat.daemon.agents.accounting import Accounting
    from substrat.daemon.agents.state import State
    from substrat.daemon.chats.sessions import Sessions
    from substrat.daemon.network.filtered import TurnNetwork
    from substrat.daemon.sandboxes.launch_plan import LaunchPlan
    from substrat.daemon.sandboxes.sandboxes import Sandboxes
    from substrat.daemon.state.layout import TurnDir
    from substrat.daemon.turns.running import RunningTurn
    from substrat.daemon.workspaces.protected_paths import ProtectedPaths


log = structlog.get_logger("substrat.preparation")


@attrs.define(kw_only=True, eq=False)
class TurnPreparation:
    """Prepares the sandboxes of one daemon's turns.

    Args:
        state: the agents, and the places of their files.
        accounting: records the notes.
        sandboxes: prepares and protects sandboxes.
        sessions: moves agents' chats.
        refresh: brings an agent's clone up to date.
    """

    _state: State
    _accounting: Accounting
    _sandboxes: Sandboxes
    _sessions: Sessions
    _refresh: Callable[[Agent], Awaitable[None]]

    async def prepare(
        self,
        agent: Agent,
        turn: Turn,
        place: TurnDir,
        network: TurnNetwork | None,
        running: RunningTurn,
        protected: AsyncExitStack,
    ) -> LaunchPlan | None:
        """Prepare a turn's sandbox and protect its paths; None: the turn was stopped meanwhile."""
        if not await running.stop_request.unless_asked(partial(self._sandboxes.preparer.machine.network_mode, agent)):
            return None
        if agent.session is not None and not agent.session.stored:
            # It couldn't be moved before, or is an older version's; if it can't be moved now, the turn's end tells that.
            await self._sessions.settle(agent)
        await self._sessions.check_resumable(agent)
        self._check_rules(agent)
        await self._refresh_clone(agent, turn)
        directory = await self._checked_directory(agent)
        known = self._state.registry.index.git_of(agent.workspace)
        prepared = await self._sandboxes.preparer.prepare(agent, self._state.layout.agent(agent.id), turn.id)
        self._check_git(agent, turn, known)
        if (reminder := self._state.findings.reminder(self._state.registry.find(agent.id))) is not None:
            self._accounting.turn_note(turn.id, "workspace:unprotected", reminder)
        for kind, note in prepared.notes:
            self._accounting.turn_note(turn.id, kind, note)
        self._state.findings.record(agent.id, turn.id, prepared.found)
        self._state.registry.points.before("prompt written")
        unfinished = await self._sandboxes.preparer.protector.unfinished(agent)
        guarded = msgspec.structs.replace(prepared.protected, unfinished=unfinished)
        record = protected_paths.encode(guarded)
        notices = [git_leftovers.notice(unfinished)] if unfinished else []
        found = pools.of(self._state.registry, agent)
        notices += [said for owner, own in found if (said := budget.words(owner.name, own)) is not None]
        prompt = "\n\n".join([*notices, prompt_of(self._state.registry, turn)])
        prompt = program_of(agent).prompt(prompt)
        make = partial(place.make, prompt, record, prepared.network_mode, own_chats=True, turn=turn.id)
        await trio.to_thread.run_sync(make)
        self._state.registry.points.after("prompt written")
        await protected.enter_async_context(self._protect(agent, turn, place, guarded, running))
        plan = await self._sandboxes.preparer.launch(prepared, network, self._sandboxes.cgroups.group(turn.id))
        return plan._replace(directory=directory)

    async def _checked_directory(self, agent: Agent) -> str | None:
        """Return which directory an agent's workspace is, None for one of its own; raises `WorkspaceUnusable`.

        Where a disk isn't mounted, an empty directory is there. A turn in it would write below the mount point.
        """
        if agent.clone is not None or agent.workspace == self._state.layout.agent(agent.id).scratch:
            return None
        found = await self._state.files.run(agent.workspace, checking.lasting_id, agent.workspace)
        if None not in {found, agent.directory} and found != agent.directory:
            raise WorkspaceUnusable(
                f"{agent.workspace} is another directory than in its last turn, as if its disk weren't mounted: mount it, "
                f"or if this is the right one, `substratctl accept {agent.name}` and then `substratctl resume {agent.name}`"
            )
        return found

    async def _refresh_clone(self, agent: Agent, turn: Turn) -> None:
        """Bring the user's branches of now into an agent's clone; where that fails the agent works on with the old ones."""
        try:
            await self._refresh(agent)
        except SubstratError as problem:
            text = f"your branches of now are not in its clone: {problem.message}"
            self._accounting.turn_note(turn.id, "workspace:left-out", text)

    async def adopt(
        self, agent: Agent, turn: Turn, place: TurnDir, running: RunningTurn, protected: AsyncExitStack
    ) -> None:
        """Protect the paths of a turn that an earlier daemon started."""
        left = protected_paths.decode(await patiently(place.read_protected))
        if left is not None and left.contents is not None:
            await running.hold_from_adoption()
            await protected.enter_async_context(self._protect(agent, turn, place, left, running, adopted=True))

    def _protect(
        self,
        agent: Agent,
        turn: Turn,
        place: TurnDir,
        protected: ProtectedPaths,
        running: RunningTurn,
        *,
        adopted: bool = False,
    ) -> AbstractAsyncContextManager[None]:
        """Protect a workspace's paths for as long as the returned context lasts."""

        def save(inodes: dict[str, int], contents: dict[str, str]) -> None:
            protected.inodes.update(inodes)
            for path in inodes:  # of what can't be compared now, an older fingerprint says nothing
                protected.mounted_anew.pop(path, None)
            protected.mounted_anew.update(contents)
            with suppress(OSError):  # on a full disk: the look at the turn's end tells them once more
                place.write_protected(protected_paths.encode(protected))

        sandbox = ProtectedSandbox(turn.id, agent.id, turn.id, protected, roots=roots_of(agent), control=running, save=save)
        return self._sandboxes.protection.protecting(sandbox, adopted=adopted)

    def _check_rules(self, agent: Agent) -> None:
        """Raise `PolicyDenied` if an agent that has less can write the rules this one starts with.

        Neither could be spawned so, but allow-lists change afterwards.
        """
        index = self._state.registry.index
        claim = index.claim(self._state.registry.find(agent.id))
        if (refused := overlap.refusal(claim, index.claims.beside(claim, agent.id))) is not None:
            raise PolicyDenied(refused)

    def _check_git(self, agent: Agent, turn: Turn, known: tuple[str, ...]) -> None:
        """Raise `PolicyDenied` if an agent may not share the git directory that its sandbox is about to show.

        Only now is it certain which one that is: a workspace may have become a linked worktree since the spawn.
        About git directories that were known before nothing more is told.
        """
        index = self._state.registry.index
        claim = index.claim(self._state.registry.find(agent.id))
        found = [one for one in overlap.overlaps(claim, index.claims.beside(claim, agent.id)) if one.is_git]
        refused = overlap.refusal_of_mixed(claim, found)
        if refused is not None and not self._state.registry.config.sandbox.shared_networks:
            raise PolicyDenied(refused)
        if not set(claim.git) <= set(known):
            for note in overlap.notes(found):
                self._accounting.turn_note(turn.id, "workspace:shared", note)
