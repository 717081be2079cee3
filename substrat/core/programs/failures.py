"""Failures of turns: their form, those that no program names itself, and how standard error is read. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

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


def without_codes(text: str) -> str:
    """Remove terminal codes; cursor-agent writes them even where there is no terminal."""
    return _ANSI.sub("", text)


def last_words(errors: str) -> str:
    """Return a program's standard error as one line without terminal codes; of a long one its end."""
    lines = [" ".join(line.split()) for line in without_codes(errors).splitlines()]
    text = " ".join(line for line in lines if line)
    return text if len(text) <= _MAX_REASON else "…" + text[-_MAX_REASON:]
