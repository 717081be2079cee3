"""Decides when a person is told that an agent needs one: once for each cause, whatever dies in between. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.core.agents.attention import Level

if TYPE_CHECKING:
    from substrat.core.agents.attention import Attention


def cause(attention: Attention) -> str | None:
    """Return what a person is told because of, for example `answer 1767225600.000`; None where nobody has to be told.

    The same cause is told once. Another question, another failed turn or a later keep is another cause.
    """
    return None if attention.level is Level.INFO else f"{attention.kind} {attention.since:.3f}"


def is_due(attention: Attention, told: str | None) -> bool:
    """Say whether a person is to be told, given the cause that was told last."""
    return (found := cause(attention)) is not None and found != told
