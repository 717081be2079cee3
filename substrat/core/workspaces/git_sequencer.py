"""Finds the programs that git runs when a person goes on with a rebase or a cherry-pick (`git rebase --continue`). Pure.

An example: a line `exec make test` in `rebase-merge/git-rebase-todo` is run by `git rebase --continue` (git-rebase(1)).
An unknown command counts as one that runs a program, so a command of a newer git does.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from substrat.core.workspaces import git_config

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DIRECTORIES = {
    "rebase-merge": ("git-rebase-todo", "strategy"),
    "rebase-apply": ("strategy",),
    "sequencer": ("todo", "opts"),
}
"""The files of a git directory that say so, by the directory they are in."""

_HARMLESS = frozenset(
    {
        "pick",
        "p",
        "revert",
        "edit",
        "e",
        "reword",
        "r",
        "fixup",
        "f",
        "squash",
        "s",
        "label",
        "l",
        "reset",
        "t",
        "merge",
        "m",
        "update-ref",
        "u",
        "break",
        "b",
        "drop",
        "d",
        "noop",
    }
)
_STRATEGIES = frozenset({"", "ort", "recursive", "recur", "resolve", "octopus", "ours", "subtree"})
"""git runs `git-merge-NAME` for any other, also one in the worktree if there is a slash in the name."""
_TOLD, _LONGEST = 3, 120
"""Lines that a sentence names, and characters of each: a person reads it in a terminal."""


def runs(name: str, data: bytes) -> tuple[str, ...]:
    """Return the lines of a file by which git runs a program.

    Args:
        name: one of those in `DIRECTORIES`.
        data: the file's content.
    """
    if name == "opts":
        settings = git_config.parse(data).settings
        found = [one.value or "" for one in settings if (one.section, one.key) == ("options", "strategy")]
        return tuple(f"strategy {value}" for value in found if value not in _STRATEGIES)
    text = data.decode("utf-8", "backslashreplace")
    if name == "strategy":
        return (f"strategy {text.strip()}",) if text.strip() not in _STRATEGIES else ()
    lines = (line.strip(" \t\r") for line in text.split("\n"))
    return tuple(line for line in lines if line and not line.startswith("#") and line.split()[0] not in _HARMLESS)


def changes(before: Mapping[str, tuple[str, ...]], after: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    """Yield the files by which git runs more than before, each with a sentence.

    Args:
        before: the lines from `runs` at a turn's start, by path.
        after: the same at its end.
    """
    for path, lines in after.items():
        new = list((Counter(lines) - Counter(before.get(path, ()))).elements())
        if new:
            shown = ", ".join(f"'{line[:_LONGEST]}{'…' if len(line) > _LONGEST else ''}'" for line in new[:_TOLD])
            more = f" and {len(new) - _TOLD} more" if len(new) > _TOLD else ""
            yield path, f"{path} was changed during the turn: `git rebase --continue` or its like would run {shown}{more}"
