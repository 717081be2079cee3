"""Decides about landing an agent's work in a branch of the user's: which files a person must look at first. Pure.

Files that the host runs or obeys unasked are not protected in a clone, so they are looked at before they come into the
user's checkout: `.envrc`, `.vscode/tasks.json`, a `.gitattributes`, a link to `/etc/passwd`.
"""

from __future__ import annotations

import os
import posixpath
import re
import shlex
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from sandbox import protect
from substrat.core.programs.table import CURSOR
from substrat.core.workspaces.clones import ref_problem
from substrat.core.workspaces.diffs import LINK, SUBMODULE
from substrat.errors import InvalidParams

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from substrat.core.workspaces.clones import Clone
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
        intended_head: the agent's head that `intended` was made of.
        intended_in: the checkout in which it is about to be moved; None: the branch is checked out nowhere.
        at: the beginning of the head that a person has looked at; no other one lands. None: whichever there is.
        intended_from: the commit that it is about to be moved from, None where it is made.
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
    intended_head: str | None = None
    intended_in: str | None = None
    at: str | None = None
    intended_from: str | None = None


_DECIDING = frozenset({".gitmodules", ".gitattributes", ".lfsconfig", ".worktreeinclude"})
"""Names that decide about other files: which repositories, filters and addresses git uses, and which ignored files agents
see."""
_PLACES = CURSOR.places
_GENERATED = tuple(
    f"/{_PLACES.workspace}/{name}" for name in (_PLACES.mcp, _PLACES.rules, _PLACES.instructions, ".gitignore")
)
"""The files that an agent's sandbox shows beside those of its clone; only `git add --sparse -f` commits them."""
_INSTRUCTING = re.compile(r"(^|/)(AGENTS\.md|CLAUDE\.md|\.cursor/rules/.*)", re.IGNORECASE)
_LONGEST_NAME, _LONGEST_PATH = 255, 4095
"""Bytes, in Linux (limits.h)."""
_MOST_LINKS = 40
"""Links that a path may lead through; the kernel follows no more (path_resolution(7))."""
_MOST_NAMED = 5
"""Files that a sentence names before it only counts."""
_MOST_LISTED = 100
"""Files in conflict that the agent is told by name; `git status` shows it all of them."""


def target_of(clone: Clone, wanted: str | None) -> str:
    """Return the branch that a clone's work is to land in, the wanted one or the clone's own; raises `InvalidParams`."""
    target = wanted or clone.target
    if target is None:
        raise InvalidParams(f"no branch was checked out when {clone.name} was spawned: name one with --into")
    if (problem := ref_problem(target)) is not None:
        raise InvalidParams(f"{target!r} can't be a branch: {problem}")
    return target


def unwritable(files: Iterable[ChangedFile]) -> str | None:
    """Say which file of a landing no disk takes; None: there is none."""
    for file in files:
        name = max((os.fsencode(part) for part in file.path.split("/")), key=len)
        if file.status != "deleted" and (len(name) > _LONGEST_NAME or len(os.fsencode(file.path)) > _LONGEST_PATH):
            shown = name[:40].decode("utf-8", "replace")
            return (
                f"it has a file {shown}…, whose name is longer than {_LONGEST_NAME} bytes, or its path than {_LONGEST_PATH}"
            )
    return None


def told(files: Iterable[ChangedFile], people: Iterable[str], known: Collection[str]) -> tuple[str, ...]:
    """Return sentences that a person is told beside a landing, which don't hold it up.

    Args:
        files: the files that the landing changes.
        people: the authors and committers of its commits, each as `name <address>`.
        known: the person, and the names that agents were given.
    """
    instructing = [file.path for file in files if _INSTRUCTING.search(file.path)]
    others = list(dict.fromkeys(one for one in people if one not in known))
    changes = "changes" if len(instructing) == 1 else "change"
    return (
        *([f"{_counted(instructing)} {changes} what agents are told"] if instructing else []),
        *(
            [f"some of its commits are by {_counted(others)}, not by you or your agents: agents can write any name"]
            if others
            else []
        ),
    )


def _counted(words: Sequence[str]) -> str:
    """List the first of some words, of printable letters."""
    shown = ", ".join("".join(letter if letter.isprintable() else "?" for letter in word) for word in words[:_MOST_NAMED])
    return shown + (f" and {len(words) - _MOST_NAMED} more" if len(words) > _MOST_NAMED else "")


class Suspect(NamedTuple):
    """A file that a person must look at before it lands, and the reason."""

    path: str
    reason: str


class Surroundings(NamedTuple):
    """All that decides, besides its name and mode, whether a file must be looked at.

    Args:
        links: where each symbolic link of the merged files points, by its path.
        heads: the merged files of the name `HEAD`.
        programs: files and directories that the user's git configuration makes git run or read, from the top level.
    """

    links: Mapping[str, str]
    heads: Collection[str] = ()
    programs: Collection[str] = ()


def suspects(files: Iterable[ChangedFile], around: Surroundings) -> tuple[Suspect, ...]:
    """Return the files of a landing that a person must look at.

    A deleted file needs no look, unless it decides about others: without `.gitattributes` a secret is committed as it is.
    """
    marked = _marked(around)
    reasons = ((file.path, _reason(file, around.links, marked)) for file in files)
    return tuple(Suspect(path, reason) for path, reason in reasons if reason is not None)


def _marked(around: Surroundings) -> dict[str, str]:
    """Return places of the merged files in which each file must be looked at, and the reasons."""
    found = dict.fromkeys(around.programs, "your git configuration makes git run or read it")
    for path in around.heads:
        if place := posixpath.dirname(path):
            found[place] = f"git may take {place} for a repository, and obey the configuration there"
    for path in around.links:
        names = path.split("/")
        if _obeyed(names) is not None or any(protect.folded(name) in _DECIDING for name in names):
            for place in _followed(path, around.links).places:
                found.setdefault(place, f"the link {path} leads to it, which the host may run or obey unasked")
    return found


def _obeyed(names: list[str]) -> str | None:
    """Return the first part of a path that is a protected name."""
    return next((name for outer, name in pairwise(("", *names)) if protect.is_protected(name, outer)), None)


def _reason(file: ChangedFile, links: Mapping[str, str], marked: Mapping[str, str]) -> str | None:
    """Say why a file must be looked at; None: it needn't."""
    names = file.path.split("/")
    if file.status == "added" and f"/{file.path}".endswith(_GENERATED):
        return "Substrat's own, made for the agent's sandbox: no commit needs it"
    if name := next((name for name in names if protect.folded(name) in _DECIDING), None):
        return f"{name} decides about other files" if file.status != "deleted" else f"without {name} git treats others anew"
    if file.status == "deleted":
        return None
    if name := _obeyed(names):
        return f"the host may run or obey {name} unasked"
    if protect.folded(names[-1]) == "head":
        return "with other files beside it, git takes its directory for a repository and obeys the configuration there"
    places = (".", *("/".join(names[:number]) for number in range(1, len(names) + 1)))
    if reason := next((marked[place] for place in places if place in marked), None):
        return reason
    if file.mode == SUBMODULE:
        return "a commit of another repository, of which nothing is shown here"
    if file.mode == LINK and not (file.path in links and _followed(file.path, links).stays):
        return f"a link that may lead out of the repository, to {links.get(file.path) or 'nowhere known'}"
    return None


class _Followed(NamedTuple):
    """The way that a symbolic link takes: the places it leads to, one after the other, and whether it stays in the tree."""

    places: tuple[str, ...]
    stays: bool


def _followed(path: str, links: Mapping[str, str]) -> _Followed:
    """Follow a symbolic link through a tree as the kernel does: `..` after a link isn't the place that it stands in."""
    place: list[str] = []
    places: list[str] = []
    names = path.split("/")[::-1]
    while names:
        name = names.pop()
        if name == ".." and place:
            place.pop()
        elif name == ".." or protect.folded(name) == ".git":
            return _Followed(tuple(places), stays=False)
        elif name not in {"", "."}:
            place.append(name)
            here = "/".join(place)
            if (target := links.get(here)) is not None:
                places.append(here)
                if posixpath.isabs(target) or _climbs(target) or len(places) > _MOST_LINKS:
                    return _Followed(tuple(places), stays=False)
                place.pop()
                names += target.split("/")[::-1]
    return _Followed((*places, "/".join(place)), stays=True)


def _climbs(target: str) -> bool:
    """Say whether `..` comes after a name, which may be a link that isn't among the committed files."""
    parts = [part for part in target.split("/") if part not in {"", "."}]
    return ".." in parts[next((number for number, part in enumerate(parts) if part != ".."), len(parts)) :]


def unaccepted(found: Iterable[Suspect], accepted: Collection[str]) -> tuple[Suspect, ...]:
    """Return the files that a person hasn't accepted.

    Args:
        found: the files that must be looked at.
        accepted: the names that a person has accepted; a directory's accepts all in it, `.` all there are.
    """
    return tuple(
        one
        for one in found
        if not any(name in {".", one.path} or one.path.startswith(f"{name.rstrip('/')}/") for name in accepted)
    )


def listed(held: Sequence[Suspect]) -> tuple[str, str]:
    """Return files that a person must look at, in words, and the options that accept them all."""
    words = "; ".join(f"{one.path} ({one.reason})" for one in held[:_MOST_NAMED])
    if (more := len(held) - _MOST_NAMED) > 0:
        return f"{words} and {more} more", "--accept ."
    if not all(one.path.isprintable() for one in held):  # nobody could type it, or paste it
        return words, "--accept ."
    return words, " ".join(f"--accept {shlex.quote(one.path)}" for one in held)


def command(name: str, landing: Landing, usual: str | None, accepting: str) -> str:
    """Return the command that asks for a landing once more, of what was looked at."""
    more = [accepting] if accepting else []
    if landing.target != usual:
        more.append(f"--into {shlex.quote(landing.target)}")
    if landing.mode is not LandingMode.MERGE:
        more.append(f"--{landing.mode.value}")
    if landing.message is not None:
        more.append(f"-m {shlex.quote(landing.message)}")
    if landing.check_command is not None:
        more.append(f"--check {shlex.quote(landing.check_command)}")
    return " ".join((f"substratctl merge {name}", *more))


def conflict_prompt(target: str, files: Iterable[str]) -> str:
    """Return the prompt that asks an agent to bring its branch up to the target."""
    names = list(files)
    listed = "\n".join(f"- {path}" for path in names[:_MOST_LISTED])
    if len(names) > _MOST_LISTED:
        listed += f"\n- and {len(names) - _MOST_LISTED} more"
    return (
        f"From Substrat: your work can't be landed in {target}: it conflicts with changes that came there meanwhile. "
        f"Nothing was changed. Rebase your branch onto workspace/{target} "
        f"(`git rebase {shlex.quote(f'workspace/{target}')}`), resolve the "
        f"conflicts, and see that the tests pass. Files in conflict:\n{listed}"
    )
