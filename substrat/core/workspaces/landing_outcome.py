"""The outcome of a landing: landed, nothing to land, in conflict, held for a look, refused, or still queued. Pure."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, NamedTuple

from substrat.core.workspaces import landing as decisions
from substrat.core.workspaces.checks import Check
from substrat.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from substrat.core.workspaces.clones import Clone
    from substrat.core.workspaces.landing import Landing, Suspect
    from substrat.core.workspaces.standing import Standing

LANDED = "landed"
NOTHING = "nothing"
CONFLICT = "conflict"
HELD = "held"
REFUSED = "refused"
QUEUED = "queued"
FINE = frozenset({LANDED, NOTHING})
"""The outcomes after which nothing is left to land."""

_SHORT = 12
"""Digits of a commit that people copy: git itself shows 7 to 12 of them."""
_MOST_FILES = 64 * 1024
"""Characters of the files' names in an outcome; a person looks at some hundred of them."""


class Outcome(NamedTuple):
    """The outcome of a landing.

    Args:
        kind: `landed`, `nothing` (all of it is in the branch), `conflict`, `held` (files must be looked at first),
            `refused`, or `queued` while it isn't decided.
        text: one sentence.
        commit: the branch's commit afterwards, if the work landed; the agent's that must be looked at, if it is held.
        files: the files in conflict, or those to be looked at.
        notes: further sentences.
        head: the agent's head that this is about; None: the landing came to none.
        was: the branch's commit before, if the work landed; None: it isn't known, or there was no branch.
        check: what the check has said; None: there was none.
    """

    kind: str
    text: str
    commit: str | None = None
    files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    head: str | None = None
    was: str | None = None
    check: Check | None = None

    def write(self) -> str:
        """Return it as JSON, with as many files as fit; names that are no text have `?` for their odd bytes."""
        files, size = [], 0
        for path in self.files:
            size += len(path)
            if size > _MOST_FILES:
                break
            files.append(_tame(path))
        members = {**self._asdict(), "text": _tame(self.text), "files": files, "notes": list(map(_tame, self.notes))}
        return json.dumps(members)


def of(landing: Landing, waits: str | None = None, step: str | None = None) -> Outcome:
    """Return the outcome that a landing has by now.

    Args:
        landing: the landing.
        waits: for which sandbox it waits; None: for none.
        step: what is being done for it; None: others come first.
    """
    if landing.outcome is None:
        text = f"its landing in {landing.target} is still to come, whether a command waits for it or not"
        return Outcome(QUEUED, waits or f"{text}: {step or 'others come first'}")
    members = json.loads(landing.outcome)
    check = Check(*members["check"]) if members.get("check") else None
    return Outcome(**{**members, "files": tuple(members["files"]), "notes": tuple(members["notes"]), "check": check})


def waits_for(turns: Sequence[str], commands: Sequence[str], checkout: str) -> str:
    """Say that a landing waits until no sandbox runs that can write in its checkout."""
    who = [f"{listed(turns)} {'works' if len(turns) == 1 else 'work'} in {checkout}"] if turns else []
    if commands:
        who.append(f"a command that can write in {checkout} runs in the sandbox of {listed(commands)} (`substratctl exec`)")
    if commands:
        return f"{', and '.join(who)}: it lands when {'both end' if turns else 'that ends'}"
    ends = "that turn ends" if len(turns) == 1 else "those turns end"
    return f"{who[0]}: it lands when {ends}; `substratctl suspend {shlex.join(turns)}` lets it land now"


def waits_for_check(turns: Sequence[str], commands: Sequence[str]) -> str:
    """Say that a check waits until no sandbox writes in its agent's clone, whose files it sees (`waits_for`)."""
    names = listed((*turns, *commands))
    if commands:
        return f"a command that can write in its clone runs in the sandbox of {names}: its check begins when that ends"
    now = f"`substratctl suspend {shlex.join(turns)}` lets it begin now"
    return f"{names} works in its clone: its check begins when that turn ends; {now}"


def uncommitted(files: int) -> str:
    """Say that uncommitted files don't land, as the end of a sentence; empty when there are none."""
    return f"; {files} uncommitted file{'s stay' if files != 1 else ' stays'} in its clone" if files else ""


def known(clone: Clone, landing: Landing, found: Standing, head: str) -> Outcome | None:
    """Return the outcome of work that the branch has already; None: it lacks some of it, or is to be made.

    Raises:
        NotFound: the clone's own branch isn't there any more.
    """
    has_all = f"{landing.target} has all of {clone.name}'s"
    if found.tip is None:
        if clone.base is not None and landing.target == clone.target:
            mend = "`--into BRANCH` names another"
            raise NotFound(f"there is no branch {landing.target} in {clone.repository}: {mend}")
        return None
    if landing.intended is not None and found.has_intended:
        return landed(clone, landing, landing.intended, landing.intended_head or head)
    if found.has_work(clone, head):
        return Outcome(NOTHING, f"{has_all} commits already{uncommitted(clone.kept.files)}")
    if found.has_content:
        return Outcome(NOTHING, f"{has_all} changes already{uncommitted(clone.kept.files)}", head=head)
    return None


def landed(clone: Clone, landing: Landing, commit: str, head: str) -> Outcome:
    """Return the outcome of work that has landed as a commit."""
    rest = uncommitted(clone.kept.files)
    return Outcome(LANDED, f"{clone.name}'s work is in {landing.target} at {commit[:12]}{rest}", commit, head=head)


def conflict(name: str, target: str, files: tuple[str, ...], why: str = "") -> Outcome:
    """Return the outcome of work that conflicts with its branch; `why` says more, or nothing."""
    more = f" ({why})" if why else ""
    text = f"{name}'s work conflicts with {target} in {listed(files)}{more}; nothing was changed"
    return Outcome(CONFLICT, text, files=files)


def pointers(top: str, paths: Sequence[str]) -> str | None:
    """Say which files of a checkout are pointers of git-lfs's, with the command that fetches them; None: there are none."""
    if not paths:
        return None
    are = "is a pointer" if len(paths) == 1 else "are pointers"
    return f"{listed(paths)} {are}, because the repository lacks its content: `git -C {shlex.quote(top)} lfs pull`"


def held(name: str, usual: str | None, landing: Landing, head: str, suspects: Sequence[Suspect]) -> Outcome:
    """Return the outcome of work that a person must look at first: some files of it, or with none another commit."""
    named, options = decisions.listed(suspects)
    accepting = f"{options} --at {head[:_SHORT]}".strip()
    moved_on = landing.at is not None and not head.startswith(landing.at)
    which = f"{name}'s work is at {head[:_SHORT]}, not at {landing.at}" if moved_on else ""
    files = f"{name}'s work has files that you must look at before they land in {landing.target}: {named}" if named else ""
    again = decisions.command(name, landing, usual, accepting)
    text = f"{': '.join(filter(None, (which, files)))}; `substratctl diff {name}` shows them; to land them: {again}"
    return Outcome(HELD, text, head, tuple(one.path for one in suspects), head=head)


def failed_check(name: str, head: str, check: Check) -> Outcome:
    """Return the outcome of work whose check has failed on the merged files."""
    return Outcome(REFUSED, f"{check.text}, on {name}'s merged files; nothing was changed", head=head, check=check)


def listed(words: Iterable[str], most: int = 5) -> str:
    """List the first of some words: `a, b and 3 more`."""
    every = list(words)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(map(_tame, every[:most])) + more


def _tame(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
