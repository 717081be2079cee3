"""Looks at a workspace after a turn: the findings in it, the locks that a killed git has left, its index."""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING

import attrs
import structlog

from substrat.daemon.agents.findings import UNPROTECTED, Found, found_at
from substrat.daemon.state.storing import Patience, until_stored
from substrat.daemon.turns.shortage import patiently
from substrat.daemon.workspaces import protected_paths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from substrat.core.agents.records import Agent, Turn
    from substrat.daemon.agents.accounting import Accounting
    from substrat.daemon.agents.state import State
    from substrat.daemon.sandboxes.turn_git import TurnGit
    from substrat.daemon.turns.ending import EndedTurn
    from substrat.daemon.workspaces.protected_paths import ProtectedPaths
    from substrat.daemon.workspaces.protector import WorkspaceProtector

log = structlog.get_logger("substrat.look")


@attrs.define(kw_only=True, eq=False)
class WorkspaceLook:
    """Looks at the workspaces of one daemon's agents after their turns."""

    _state: State
    _accounting: Accounting
    _protector: WorkspaceProtector
    _git: TurnGit

    async def look(self, ended: EndedTurn) -> None:
        """Look at a workspace after a turn; an oddity in it, perhaps the agent's work, doesn't keep the turn running."""
        agent, turn = ended.agent, ended.turn
        try:
            place = self._state.layout.agent(agent.id).turn(turn.number)
            before = protected_paths.decode(await patiently(place.read_protected))
            if before is not None:
                await self._remove_locks(agent, turn, before)
                await self._tell_news(agent, turn, before)
                # The person who waits for the turn may ask git next.
                await self._git.freshen_index(agent, before)
        except Exception:
            error_id = secrets.token_hex(4)
            log.exception("a workspace couldn't be looked at", agent=agent.name, turn=turn.number, error_id=error_id)
            text = f"what the turn has made couldn't be looked through ({error_id} in substratd's log): look yourself"
            await until_stored(partial(self._note_findings, turn, [Found(agent.workspace, text)], text))

    async def _remove_locks(self, agent: Agent, turn: Turn, before: ProtectedPaths) -> None:
        """Remove the locks of git's that the turn has left, so that other gits can write."""
        for lock in await self._protector.remove_locks(agent, before.unfinished):
            text = f"a git of the turn's was killed and had left {lock}, which is removed; its other work stays as it is"
            note = partial(self._accounting.turn_note, turn.id, "workspace:unlocked", text, Patience.TURNS_END)
            await until_stored(note)

    async def _tell_news(self, agent: Agent, turn: Turn, before: ProtectedPaths) -> None:
        """Tell which files that the host obeys the turn has changed, and which were committed without a filter."""
        found, noted = await self._protector.find_changes(agent, before)
        found += await self._git.find_unfiltered(agent, before)
        now = self._state.registry.find(agent.id).turn
        if now is not None and now.id == turn.id and now.replaced:
            found.append(_replaced(agent, before, now.replaced))
        for kind in dict.fromkeys(one.kind for one in found):
            some = [one for one in found if one.kind == kind]
            text = "; ".join(one.text for one in some)
            await until_stored(partial(self._note_findings, turn, some, text, kind))
        if noted:
            await until_stored(partial(self._note_new_findings, turn, noted))

    def _note_findings(self, turn: Turn, found: Sequence[Found], text: str, kind: str = UNPROTECTED) -> None:
        """Record findings of a turn's end, and tell them."""
        with self._state.registry.change("finding recorded", Patience.TURNS_END, turn.id):
            self._accounting.turn_note(turn.id, kind, text)
            self._state.findings.record(turn.agent, turn.id, found)

    def _note_new_findings(self, turn: Turn, found: Sequence[Found]) -> None:
        """Record findings of a turn's end, and tell those that are new."""
        with self._state.registry.change("finding recorded", Patience.TURNS_END, turn.id):
            for one in self._state.findings.record(turn.agent, turn.id, found):
                self._accounting.turn_note(turn.id, UNPROTECTED, one.text)


def _replaced(agent: Agent, before: ProtectedPaths, paths: tuple[str, ...]) -> Found:
    """Return a finding about all paths for which a turn was frozen or ended."""
    were = protected_paths.were([*paths])
    text = f"the turn hasn't gone on since {were} replaced on the host: look at what is there"
    found = found_at(agent, text, paths, paths)
    return found._replace(was=before.hashes_of(found.files))
