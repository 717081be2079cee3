"""Decides whose work commits are that an agent's ancestor has merged: the ancestor's, which is to land them. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from substrat.core.workspaces.clones import Clone


def pairs(clone: Clone, above: Iterable[Clone], below: Iterable[Clone]) -> list[tuple[Clone, Clone]]:
    """Return of which clones' heads git has to say whether the second one's has the first one's.

    Args:
        clone: the clone whose work was kept.
        above: its agent's ancestors' clones, the nearest first.
        below: its agent's descendants' clones.
    """
    found = [(clone, one) for one in above]
    found += [(one, clone) for one in below if one.holder in {None, clone.agent}]
    return [
        (lower, upper)
        for lower, upper in found
        if lower.git_dir == upper.git_dir and None not in {lower.kept.head, upper.kept.head}
        and lower.kept.ahead and not lower.kept.landed
    ]  # fmt: skip


def settled(asked: Sequence[tuple[Clone, Clone]], answers: Sequence[bool]) -> list[Clone]:
    """Return the first clones of pairs, each once, with the first of those that have its head as its holder."""
    found: dict[str, Clone] = {}
    for (lower, upper), has in zip(asked, answers, strict=True):
        if lower.agent not in found or found[lower.agent].holder is None:
            found[lower.agent] = replace(lower, held_by=upper.agent if has else None, held_head=lower.kept.head)
    return list(found.values())
