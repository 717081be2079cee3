"""Says what work an agent's clone holds, as of its last keep, in one line that people and agents read. Pure.

For example `+2 commits, a1b2c3d · 3 files uncommitted (wip 96ebd2a) · 1 commit on topic · not landed`. Both commits are in
the user's repository, so an agent in a clone of it can merge them by these ids at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from substrat.core.workspaces.clones import Clone, Kept

_SHORT = 7
"""Digits of a commit, as many as git shows."""
_NAMED = 3
"""Branches that a line names."""


def describe(clone: Clone | None, holder: str | None = None, checked: str = "") -> str:
    """Say what a clone holds; empty: no work that isn't in the user's branches, or there is no clone.

    Args:
        clone: the clone.
        holder: the name of the ancestor that has its commits (`Clone.holder`): `+2 commits, a1b2c3d · in lead`.
        checked: which of it its check has passed on (`turn_check.said_of`).
    """
    parts = list(_parts(clone, holder)) if clone is not None else []
    text = " · ".join([*parts, checked] if parts and checked else parts)
    return "".join(character if character.isprintable() else "?" for character in text)


def beside_head(kept: Kept, wip: str = "") -> Iterator[str]:
    """Say what work no landing takes along, in words such as `1 file uncommitted` and `2 commits on topic`."""
    if kept.files:
        hidden = f", {kept.hidden} of which `git status` doesn't show" if kept.hidden else ""
        yield f"{_count(kept.files, 'file', 'files')} uncommitted{wip}{hidden}"
    for name, number in kept.branches[:_NAMED]:
        yield f"{_count(number, 'commit', 'commits')} on {name}"
    if (more := len(kept.branches) - _NAMED) > 0:
        yield f"commits on {_count(more, 'further branch', 'further branches')}"
    if kept.stashes:
        yield _count(kept.stashes, "stash", "stashes")


def _parts(clone: Clone, holder: str | None) -> Iterator[str]:
    kept = clone.kept
    if clone.unkept is not None:
        yield f"not kept: {clone.unkept}"
    if kept.ahead and kept.head is not None:
        yield f"+{_count(kept.ahead, 'commit', 'commits')}, {kept.head[:_SHORT]}"
    yield from beside_head(kept, f" (wip {kept.wip[:_SHORT]})" if kept.wip is not None else "")
    if kept.ahead:
        yield "landed" if kept.landed else f"in {holder}" if holder is not None else "not landed"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
