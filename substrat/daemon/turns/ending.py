"""The end of a turn: a step of it, the turn as the steps are given it, and the steps of which the turns know all.

`app` makes the list: looking at the workspace (`workspace_look`), telling shortages, settling the chat, keeping the clone
(`clones.keeping`), accounting, removing the cgroup. Whatever can be known of a turn's work is recorded before it is
accounted for, because a person who waits for the turn looks at it then, and the agent's next turn may begin.
"""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import attrs
import structlog
import trio

from substrat.core.agents import cgroup_limits
from substrat.core.agents.records import Outcome
from substrat.core.agents.verdict import NOTHING_SEEN, Verdict
from substrat.daemon.state.storing import Patience, until_stored

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from substrat.core.agents.records import Agent, Turn
    from substrat.core.agents.verdict import TurnObservation
    from substrat.daemon.agents.accounting import Accounting
    from substrat.daemon.agents.state import State
    from substrat.daemon.chats.sessions import Sessions
    from substrat.daemon.kernel.cgroups import Cgroups
    from substrat.daemon.turns.running_turns import RunningTurns

log = structlog.get_logger("substrat.ending")

_TRY_AGAIN = 5.0
"""Seconds until an account that has failed is tried again: no event tells when it can succeed."""


class EndedTurn(NamedTuple):
    """A turn whose sandbox has ended.

    Args:
        agent: its agent, as it was when the turn began.
        turn: the turn, as it was then.
        seen: its observation.
        verdict: its outcome.
    """

    agent: Agent
    turn: Turn
    seen: TurnObservation
    verdict: Verdict


class EndStep(NamedTuple):
    """A step of a turn's end: its name, for the log, and the function that takes it."""

    name: str
    take: Callable[[EndedTurn], Awaitable[object]]


@attrs.define(eq=False)
class TurnEnd:
    """The steps of a turn's end that concern its records and its cgroup."""

    _state: State
    _accounting: Accounting
    _sessions: Sessions
    _groups: Cgroups
    _turns: RunningTurns

    async def tell_shortage(self, ended: EndedTurn) -> None:
        """Tell which resources the turn ran out of, also when it succeeded all the same."""
        found = ended.seen.ran_out
        for told in (cgroup_limits.out_of_memory(found), cgroup_limits.refused_forks(found)):
            if told is not None:
                await self._note(ended.turn, "turn:ran-out", told)

    async def settle_chat(self, ended: EndedTurn) -> None:
        """Move the chat that the turn has begun to the user's chats; one that can't be moved is tried again."""
        said = await self._sessions.settle(self._state.registry.find(ended.agent.id))
        if said is not None:
            await self._note(ended.turn, "session:refused", said)

    async def _note(self, turn: Turn, kind: str, text: str) -> None:
        await until_stored(partial(self._accounting.turn_note, turn.id, kind, text, Patience.TURNS_END))

    async def account(self, ended: EndedTurn) -> None:
        """Record a turn's end, as often as it takes: an agent whose turn has no task must not be `running` for ever."""
        turn, seen, verdict = ended.turn, ended.seen, ended.verdict
        while True:
            try:
                agent = self._state.registry.get(ended.agent.id)
                if agent is not None and verdict.outcome is Outcome.SUCCESS:
                    seen = seen._replace(is_stored=await self._sessions.is_stored(agent))
                await until_stored(partial(self._accounting.turn_over, turn.id, verdict, seen))
            except Exception:
                # Perhaps because of what was seen of it, so the next try does without, and comes at once.
                pause = _TRY_AGAIN if seen is NOTHING_SEEN else 0
                seen, verdict = NOTHING_SEEN, broken("a turn can't be accounted for", ended.agent, turn)
                await trio.sleep(pause)
            else:
                break
        self._turns.accounted_for(turn.id)

    async def remove_cgroup(self, ended: EndedTurn) -> None:
        """Remove the turn's cgroup, and have old turns looked at."""
        self._groups.remove(ended.turn.id)
        self._state.trash.sweep_soon()


def broken(what: str, agent: Agent, turn: Turn) -> Verdict:
    """Log the exception that is being handled, and return the verdict on a turn that broke by it."""
    error_id = secrets.token_hex(4)
    log.exception(what, agent=agent.name, turn=turn.number, error_id=error_id)
    return Verdict(Outcome.ERROR, f"an internal error, {error_id} in substratd's log")
