"""Failures of turns: their form, those that no program names itself, and how standard error is read. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_MAX_REASON = 400
"""Characters: as much as fits on a few lines of a terminal."""


class Failure(NamedTuple):
    """A failure that has a name.

    Args:
        name: its name in events and errors, such as `disk-full`.
        sentence: the failure and its remedy; `{said}` stands for the program's own words.
        passes: whether it passes by itself, so that trying again later makes sense.
        subject: the thing at fault as the program names it, such as an option; empty when it names none.
    """

    name: str
    sentence: str
    passes: bool = False
    subject: str = ""


class Known(NamedTuple):
    """One row of a program's table of failures.

    Args:
        failure: the failure; its sentence has `{said}` and `{subject}` for the words and the group of that name.
        text: the words that show it.
        statuses: the HTTP statuses that show it where no row's words do.
        last: whether it doesn't count when another error came after it, because then it had passed.
    """

    failure: Failure
    text: re.Pattern[str]
    statuses: frozenset[int]
    last: bool


def known(name: str, text: str, sentence: str, *statuses: int, passes: bool = False, last: bool = False) -> Known:
    """Return a row of a table; arguments as for `Known` and `Failure`."""
    pattern = re.compile(text, re.IGNORECASE | re.MULTILINE)
    return Known(Failure(name, sentence, passes), pattern, frozenset(statuses), last)


def recognise(table: Iterable[Known], words: str, status: int | None = None) -> Failure | None:
    """Name the failure that a program's own words show.

    Args:
        table: the program's; the first match counts, so that the more exact row stands first, and words before the status.
        words: a failed result's text, or the end of standard error, with or without terminal codes.
        status: the HTTP status that the result names, None when it names none.

    Returns:
        The failure with its sentence filled in, or None when nothing known is in it.
    """
    plain = without_codes(words)
    for row in table:
        found = _last_match(row.text, plain) if row.last else row.text.search(plain)
        if found is not None:
            return _told(row.failure, plain, found.groupdict().get("subject", "").strip())
    return next((_told(row.failure, plain) for row in table if status in row.statuses), None)


def _told(failure: Failure, plain: str, subject: str = "") -> Failure:
    return failure._replace(sentence=failure.sentence.format(said=last_words(plain), subject=subject), subject=subject)


_ANOTHER_ERROR = re.compile(r"\s*(?:Uncaught |Unhandled )?(?:[A-Z]\w*)?(?:Error|Exception)\b")


def _last_match(text: re.Pattern[str], errors: str) -> re.Match[str] | None:
    """Find a pattern's last match, unless another error follows it."""
    for line in reversed(errors.splitlines()):
        if (found := text.search(line)) is not None:
            return found
        if _ANOTHER_ERROR.match(line):
            return None
    return None


USAGE_LIMIT = "usage-limit"
"""The name of every program's failure that means that the account has used up what it may."""
DISK_FULL = Failure("disk-full", "the turn's files can't be made, because the disk is full: make room", passes=True)
"""The daemon's own: a turn that wasn't started for want of room."""
DESCRIPTORS_USED_UP = Failure(
    "descriptors-used-up",
    "the limit of open files is used up: raise it (LimitNOFILE= of the unit, `ulimit -n`)",
    passes=True,
)
"""The daemon's own: a turn that wasn't started because no descriptor was left for it."""

DISK_FULL_IN_TURN = Failure(
    "disk-full", "the agent program found no room for its output, because the disk is full: make room", passes=True
)
"""Of a turn whose program ended because the disk that its output goes to is full."""
_NO_ROOM = re.compile(r"\b(?:ENOSPC|EDQUOT)\b|No space left on device|Disk quota exceeded", re.IGNORECASE)


def says_no_room(errors: str) -> bool:
    """Say whether a program's standard error says that there was no room to write something.

    Args:
        errors: its end, with or without terminal codes.
    """
    return _NO_ROOM.search(without_codes(errors)) is not None


def out_of_memory(sentence: str) -> Failure:
    """Return the failure of a turn whose processes the kernel killed for want of memory, as the sentence says."""
    return Failure("out-of-memory", sentence, passes=False)


# bubblewrap compares its mounts with the files that were opened before, and says one of the first three when they differ.
# The fourth it says when a file of the system that was to be covered is gone, as after an upgrade of its package. The last
# comes from a sandbox whose late mounts could not be made (`bwrap.GATE`), because an agent has put a link there.
_REPLACED = re.compile(
    r"bwrap: (?:Race condition binding dirfd|Can't find source path /proc/self/fd/|Can't get type of source"
    r"|Can't create \w+ contents for)"
    r"|substrat: can't mount"
)


def sandbox_failed(words: str) -> Failure:
    """Return the failure of a turn whose sandbox couldn't be made; nothing of the agent's has run then.

    Args:
        words: the standard error of bubblewrap or of the network's launcher.
    """
    if _REPLACED.match(words):
        return replaced_at_start(f"a file was replaced on the host while the sandbox was being made: {words}")
    return Failure("sandbox-failed", f"the sandbox couldn't be made: {words}; `substratctl doctor` looks for the cause")


def replaced_at_start(sentence: str) -> Failure:
    """Return the failure of a turn whose sandbox couldn't be made because a person changed a file of it meanwhile."""
    return Failure("replaced-at-start", sentence, passes=True)


def look_cut_short(sentence: str) -> Failure:
    """Return the failure of a turn that wasn't started because the machine was too busy to say what sandboxes it allows."""
    return Failure("look-cut-short", sentence, passes=True)


def without_codes(text: str) -> str:
    """Remove terminal codes; cursor-agent writes them even where there is no terminal."""
    return _ANSI.sub("", text)


def last_words(errors: str) -> str:
    """Return a program's standard error as one line without terminal codes; of a long one its end."""
    lines = [" ".join(line.split()) for line in without_codes(errors).splitlines()]
    text = " ".join(line for line in lines if line)
    return text if len(text) <= _MAX_REASON else "…" + text[-_MAX_REASON:]
