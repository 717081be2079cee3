"""Defines the follow-ups of changes: what stands above single agents takes part in each change through them.

For example, when a child's turn ends, `settle` asks which waits that ends, and their agents' wakes are part of the change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from substrat.core.agents.records import Agent, Item, Turn
    from substrat.core.agents.verdict import Verdict
    from substrat.daemon.agents.change import Change


class FollowUps(NamedTuple):
    """Those that take part in changes, in order for each occasion; all but the last two are part of the change's commit.

    Args:
        tool_called: a turn has called tools, so many.
        turn_ended: a turn has ended, with its verdict and the cursor of the event of its end.
        work_ended: the work of a turn isn't tried again; its agent is ending, or has gone on after the turn.
        question_closed: a question or message to the operator was closed without an answer.
        taken: items were taken off an agent's inbox, by a tool or a person, without a turn that delivers them.
        removing: an agent is about to be removed.
        settle: the change is about to be committed.
        apply: the change is committed, and in memory.
        admit: a turn may be able to begin.
    """

    tool_called: tuple[Callable[[Change, Turn, int], None], ...] = ()
    turn_ended: tuple[Callable[[Change, Agent, Turn, Verdict, int], None], ...] = ()
    work_ended: tuple[Callable[[Change, Agent, Turn, int | None], None], ...] = ()
    question_closed: tuple[Callable[[Change, Agent], None], ...] = ()
    taken: tuple[Callable[[Change, str, Iterable[Item]], None], ...] = ()
    removing: tuple[Callable[[Change, Agent], None], ...] = ()
    settle: tuple[Callable[[Change], None], ...] = ()
    apply: tuple[Callable[[Change], None], ...] = ()
    admit: tuple[Callable[[], None], ...] = ()
