"""Decides whether an agent that others need has succeeded, failed for good, or is still to be waited for. Pure.

An agent can be spawned with `needs`: the agents that must succeed before its first turn. Success is the end of the work
with a result, as `results.outcome_of` names it; an agent that stopped with nothing said hasn't succeeded. A turn that a
person has interrupted, or an agent that is suspended, says nothing yet: they will decide how it goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from substrat.core.agents import turn_check
from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.records import Outcome
from substrat.core.families import results

if TYPE_CHECKING:
    from collections.abc import Sequence

    from substrat.core.agents.records import Agent, Turn

MOST = 16
"""Agents that one may need: as many as a parent may have children."""


class Need(NamedTuple):
    """The state of something that is needed.

    Args:
        met: whether it has succeeded; None: it isn't decided yet.
        why: why it never will, as the end of a sentence about it: `has failed: …`.
    """

    met: bool | None
    why: str = ""


PENDING = Need(None)
MET = Need(met=True)


def state_of(agent: Agent | None, turn: Turn | None, *, has_finished: bool) -> Need:
    """Return the state of a need.

    Args:
        agent: the agent that is needed; None: it was removed.
        turn: its newest turn, with its result; None before the first.
        has_finished: whether it goes on by itself no more (`waits.is_finished`).
    """
    if agent is None:
        return Need(met=False, why="was removed before it had succeeded")
    if not has_finished:
        return PENDING
    if agent.phase == Phase.FAILED and agent.unmet is not None:
        return Need(met=False, why="hasn't run, because something that it needs has not succeeded")
    if turn is None or turn.outcome is None:
        if agent.phase == Phase.ENDED:
            return Need(met=False, why="has ended without a turn")
        if agent.phase == Phase.FAILED:
            return Need(met=False, why="has failed without a turn")
        return PENDING
    outcome = results.outcome_of(turn, refused=turn_check.refusal(agent.checked, turn))
    if outcome == Outcome.SUCCESS.value:
        return MET
    is_stopped = outcome == Outcome.INTERRUPTED.value or turn_check.was_stopped(agent.checked, turn)
    if is_stopped and agent.phase == Phase.IDLE:
        return PENDING
    return Need(met=False, why=f"has not succeeded ({outcome})")


def unmet(failed: Sequence[tuple[str, str]]) -> str:
    """Say why an agent doesn't run: `it needs author, which has not succeeded (error)`.

    Args:
        failed: the names of those that it needs and that haven't succeeded, and why.
    """
    return "it doesn't run, because it needs " + ", and ".join(f"{name}, which {why}" for name, why in failed)
