"""The mover's job and its answer."""

import os
from typing import NamedTuple

WHOLE = b"whole\0"
"""Ends a job: a daemon that is killed may leave a part of one."""


class Job(NamedTuple):
    """A move and its landing.

    Args:
        lasting: a descriptor that git inherits: while it is locked a git of this landing lives.
        number: the landing's number.
        top: the checkout.
        own: its git directory.
        branch: the branch that is checked out there.
        old: its commit; empty: it has none yet.
        new: the commit that it moves to.
    """

    lasting: int
    number: str
    top: str
    own: str
    branch: str
    old: str
    new: str

    def path(self, name: str) -> str:
        """Return the path of a file in the worktree's git directory."""
        return os.path.join(self.own, name)


class Answer(NamedTuple):
    """The program's answer.

    Args:
        moved: whether the branch is at the new commit.
        reason: why not, in git's words; of a branch that has moved, why the index hasn't followed; else empty.
        left: paths in the checkout that were neither as before nor as after the move: they stay as they are.
        elsewhere: whether HEAD or the index was another by then, so that nothing was begun.
    """

    moved: bool
    reason: str = ""
    left: tuple[str, ...] = ()
    elsewhere: bool = False

    def write(self) -> bytes:
        """Return it as the program prints it."""
        how = "moved" if self.moved else "elsewhere" if self.elsewhere else ""
        return os.fsencode("\0".join((how, self.reason, *self.left)))


class Failed(Exception):
    """Something can't be done; the message says why."""
