"""Decides when a person is told that an agent needs one: once for each cause, whatever dies in between. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.core.agents.attention import AttentionKind, Level
from substrat.core.agents.lifecycle import HELD_PHASES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from substrat.core.agents.attention import Attention
    from substrat.core.agents.lifecycle import Phase

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 30.0, 3600.0
"""Seconds until a command that failed is tried again: a mail server is back soon, a wrong path stays wrong."""


def cause(attention: Attention) -> str | None:
    """Return the cause that a person is told, for example `answer 1767225600.000`; None: there is none.

    The same cause is told once. Another question, another failed turn or a later keep is another cause.
    """
    return None if attention.level is Level.INFO else f"{attention.kind} {attention.since:.3f}"


def is_due(attention: Attention, told: str | None, phase: Phase) -> bool:
    """Say whether a person is to be told.

    Args:
        attention: the agent's attention.
        told: the cause that was told last.
        phase: where the agent is: a person who has suspended it knows that, and what it leaves can wait for its resume.
    """
    if phase in HELD_PHASES and attention.level is not Level.URGENT:
        return False
    return (found := cause(attention)) is not None and found != told


def is_known(attention: Attention, others: Iterable[tuple[Attention, str | None]]) -> bool:
    """Say whether a person was told of an agent's family for the same reason, and so knows of the agent: one bell a family.

    Each question and each finding rings: every one wants an answer of its own, and another agent's text doesn't tell it.

    Args:
        attention: the agent's attention.
        others: the attention of each other member of its family, and the cause that was told last.
    """
    if attention.kind in {AttentionKind.ANSWER, AttentionKind.UNSAFE}:
        return False
    return any(other.kind == attention.kind and told == cause(other) for other, told in others)


def pause(failures: int) -> float:
    """Return the seconds until the command is tried again, given how often it has failed one time after the other."""
    return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(failures - 1, 10))
