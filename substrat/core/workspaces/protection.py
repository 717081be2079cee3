"""Decides how to treat a protected path whose mount has gone while an agent runs. Pure.

A person's ordinary work removes such mounts: `git config` writes a new file and renames it over `.git/config`, which takes
the mount along. The agent can write there until the path is mounted again. So the daemon compares the path with the copy
that it kept, and decides whether the person alone can have changed it (`AGAIN`) or the agent may have (`REACHED`).
"""

from __future__ import annotations

from enum import Enum

import msgspec

from substrat.core.workspaces import git_config


class CopiedFile(msgspec.Struct, frozen=True, array_like=True):
    """A regular file: its permission bits and its content."""

    mode: int
    data: bytes


class Copy(msgspec.Struct, frozen=True, array_like=True):
    """A file or a directory as it was at one time.

    Args:
        kind: `absent`, `file`, `directory`, or `unknown`: something that can't be copied, or too much of it.
        files: the regular files by their path from there; "" is the file itself.
        directories: the directories in it.
    """

    kind: str
    files: dict[str, CopiedFile] = {}
    directories: tuple[str, ...] = ()

    @property
    def data(self) -> bytes:
        """A file's content, b"" for anything else."""
        return self.files[""].data if "" in self.files else b""

    def contents(self) -> dict[str, bytes]:
        """Return each file's content by its path."""
        return {path: file.data for path, file in self.files.items()}


ABSENT = Copy("absent")
UNKNOWN = Copy("unknown")


_EXECUTABLE = 0o6111
"""The bits by which a file runs, or runs as somebody else."""


class Treatment(Enum):
    """The treatment of a protected path."""

    AGAIN = "protect it again as it is now"
    PLACEHOLDER = "nothing is there any more: protect the name with a placeholder"
    REACHED = "the agent may have changed it: stop the turn and put the kept copy back"


def decide(before: Copy, now: Copy, *, is_known: bool, is_git_config: bool, placeholder: Copy) -> Treatment:
    """Decide how to treat one path, by its content alone.

    That a finished file was renamed there shows nothing: an agent can open or link the file before (git's `config.lock`
    lies where it may write), and inotify doesn't report writes by a mapping or another name (inotify(7), "Limitations
    and caveats").

    Args:
        before: the copy that was kept.
        now: the copy of the present state.
        is_known: whether all of it was there at the turn's start, as after `git stash pop`, or was in the repository before
            any agent worked there, as after `git checkout`.
        is_git_config: whether it is a file that git reads as configuration, so that it can be judged by its settings.
        placeholder: the path's placeholder, an empty directory or a small file.
    """
    is_placeholder = now.contents() == placeholder.contents() and now.directories == placeholder.directories
    if now.kind == "absent" or (before.kind == "absent" and now.kind == placeholder.kind and is_placeholder):
        return Treatment.PLACEHOLDER
    if now.kind == "unknown":
        return Treatment.REACHED
    if is_known or _is_part_of(now, before):
        return Treatment.AGAIN
    if is_git_config and now.kind == "file" and git_config.adds_nothing_that_runs(before.data, now.data):
        return Treatment.AGAIN
    return Treatment.REACHED


def _is_part_of(now: Copy, before: Copy) -> bool:
    """Say whether there is nothing now that wasn't there before, and nothing can be executed that couldn't be."""
    if now.kind != before.kind or not now.contents().items() <= before.contents().items():
        return False
    return not any(file.mode & ~before.files[path].mode & _EXECUTABLE for path, file in now.files.items())
