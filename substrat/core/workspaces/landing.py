"""Decides about landing an agent's work in a branch of the user's: which files a person must look at first. Pure.

Files that the host runs or obeys unasked are not protected in a clone, so they are looked at before they come into the
user's checkout: `.envrc`, `.vscode/tasks.json`, a `.gitattributes`, a link to `/etc/passwd`.
"""

from __future__ import annotations

import posixpath
import shlex
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from sandbox import protect
from substrat.core.workspaces.diffs import LINK

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from substrat.core.workspaces.diffs import ChangedFile


class LandingMode(StrEnum):
    """How work is landed."""

    MERGE = "merge"
    """By a merge commit, or none where the target is an ancestor."""
    SQUASH = "squash"
    """As one commit."""
    FF_ONLY = "ff-only"
    """Only where the target is an ancestor."""


@dataclass(frozen=True, slots=True)
class Landing:
    """A landing that was asked for.

    Args:
        id: its number; landings in one branch are decided in this order.
        agent: the id of the agent whose work is landed.
        target: the branch.
        mode: how.
        message: the message of the commit; None: one is made up.
        check_command: a command that must succeed on the merged files; None: none.
        accepted: files that a person has looked at.
        unattended: whether no person waits for the answer at a terminal.
        time: when it was asked for, in seconds since the epoch.
        request: the client's own id of the request, by which it may ask again.
        intended: the commit that the branch is about to be moved to, None before that.
        outcome: its outcome as JSON, None while it isn't decided.
        item: the number of the operator's inbox item that tells the outcome.
    """

    id: int
    agent: str
    target: str
    mode: LandingMode = LandingMode.MERGE
    message: str | None = None
    check_command: str | None = None
    accepted: tuple[str, ...] = ()
    unattended: bool = True
    time: float = 0.0
    request: str = ""
    intended: str | None = None
    outcome: str | None = None
    item: int | None = None


_DECIDING = frozenset({".gitmodules", ".gitattributes", ".worktreeinclude"})
"""Names that decide about other files: which repositories and filters git uses, and which ignored files agents see."""


_MOST_NAMED = 5
"""Files that a sentence names before it only counts."""
_MOST_LISTED = 100
"""Files in conflict that the agent is told by name; `git status` shows it all of them."""


class Suspect(NamedTuple):
    """A file that a person must look at before it lands, and the reason."""

    path: str
    reason: str


def suspects(files: Iterable[ChangedFile], links: Mapping[str, str], programs: Collection[str] = ()) -> tuple[Suspect, ...]:
    """Return the files of a landing that a person must look at; deleted files need no look.

    Args:
        files: the files that the landing adds or changes.
        links: where each changed symbolic link points, by its path.
        programs: files and directories that the user's git configuration makes git run or read, from the top level.
    """
    found = []
    for file in files:
        if file.status == "deleted":
            continue
        reason = _reason(file, links.get(file.path), programs)
        if reason is not None:
            found.append(Suspect(file.path, reason))
    return tuple(found)


def _reason(file: ChangedFile, target: str | None, programs: Collection[str]) -> str | None:
    if any(file.path == program or file.path.startswith(f"{program}/") for program in programs):
        return "your git configuration makes git run or read it"
    if posixpath.basename(file.path).lower() == "head":
        return "with other files beside it, git takes its directory for a repository and obeys the configuration there"
    for name in file.path.split("/"):
        if protect.is_protected(name):
            return f"the host may run or obey {name} unasked"
        if name.lower() in _DECIDING:
            return f"{name} decides about other files"
    if file.mode == LINK and (target is None or _leads_out(file.path, target)):
        return f"a link that leads out of the repository, to {target or 'nowhere known'}"
    return None


def _leads_out(path: str, target: str) -> bool:
    if posixpath.isabs(target):
        return True
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), target)).split("/")[0] == ".."


def unaccepted(found: Iterable[Suspect], accepted: Collection[str]) -> tuple[Suspect, ...]:
    """Return the files that a person hasn't accepted; a directory's name accepts all in it, `.` the top level's."""
    if "." in accepted:
        return ()
    return tuple(
        one
        for one in found
        if not any(one.path == name or one.path.startswith(f"{name.rstrip('/')}/") for name in accepted)
    )


def listed(held: Sequence[Suspect]) -> tuple[str, str]:
    """Return files that a person must look at, in words, and the options that accept them all."""
    words = "; ".join(f"{one.path} ({one.reason})" for one in held[:_MOST_NAMED])
    if (more := len(held) - _MOST_NAMED) > 0:
        return f"{words} and {more} more", "--accept ."
    return words, " ".join(f"--accept {shlex.quote(one.path)}" for one in held)


def conflict_prompt(target: str, files: Iterable[str]) -> str:
    """Return the prompt that asks an agent to bring its branch up to the target."""
    names = list(files)
    listed = "\n".join(f"- {path}" for path in names[:_MOST_LISTED])
    if len(names) > _MOST_LISTED:
        listed += f"\n- and {len(names) - _MOST_LISTED} more"
    return (
        f"Your work can't be landed in {target}: it conflicts with changes that came there meanwhile. Nothing was changed. "
        f"Rebase your branch onto workspace/{target} (`git rebase {shlex.quote(f'workspace/{target}')}`), resolve the "
        f"conflicts, and see that the tests pass. Files in conflict:\n{listed}"
    )
