"""Copies one chat into an empty directory; run by the daemon in a sandbox that sees nothing but these two directories.

An agent has written the chat, so nothing in it is believed: only plain files and directories are copied, within bounds, and
no link is followed. A chat that holds anything else is refused as a whole. It runs with any Python that the system has, so
it imports next to nothing; `substrat.daemon.chats.sessions` runs it.

Usage: `FROM TO`. Exit status 0: copied; 3: refused; 4: it can't be read or written. Then stderr says why, in one line.
"""

from __future__ import annotations

import os
import resource
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

REFUSED, FAILED = 3, 4
"""Exit statuses: of a chat that is never copied, and of one that may be copied later."""

MOST_ENTRIES = 1000
"""cursor-agent keeps two to five files in a chat; more entries are no chat's, and each costs the user's disk an inode."""
MOST_BYTES = 1 << 30
"""A chat of a few hundred turns has some 100 MiB; more isn't copied within the time that the daemon gives."""
MOST_DEPTH = 4
"""cursor-agent makes no directories in a chat; the bound keeps the recursion short."""
_CPU_SECONDS = 8
_MEMORY = 1 << 30
_PART = 1 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ChatRefused(Exception):
    """The chat holds something that isn't copied; the message names it, in one line."""


class _Budget:
    """How much is still copied."""

    def __init__(self) -> None:
        self.entries = MOST_ENTRIES
        self.bytes = MOST_BYTES

    def take_entry(self) -> None:
        self.entries -= 1
        if self.entries < 0:
            raise ChatRefused(f"it has more than {MOST_ENTRIES} files")

    def take_bytes(self, count: int) -> None:
        self.bytes -= count
        if self.bytes < 0:
            raise ChatRefused(f"it has more than {MOST_BYTES >> 20} MiB")


def main(line: Sequence[str]) -> int:
    """Copy the chat that the command line names; returns the exit status."""
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    try:
        copy(line[0], line[1])
    except ChatRefused as problem:
        sys.stderr.write(f"{problem}\n")
        return REFUSED
    except OSError as problem:
        sys.stderr.write(f"{problem.strerror}\n")
        return FAILED
    return 0


def copy(source: str, target: str) -> None:
    """Copy a chat.

    Args:
        source: the chat's directory.
        target: an empty directory.

    Raises:
        ChatRefused: it holds something else than plain files and directories, or too much; a part may be copied.
        OSError: something can't be read or written; a part may be copied.
    """
    budget = _Budget()
    reading = os.open(source, _DIRECTORY)
    try:
        writing = os.open(target, _DIRECTORY)
        try:
            _copy_directory(reading, writing, budget, 0)
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _copy_directory(reading: int, writing: int, budget: _Budget, depth: int) -> None:
    with os.scandir(reading) as entries:
        for entry in entries:
            budget.take_entry()
            _copy_entry(entry.name, reading, writing, budget, depth)
    os.fsync(writing)


def _copy_entry(name: str, reading: int, writing: int, budget: _Budget, depth: int) -> None:
    # Looked at before it is opened, because opening a FIFO or a device may do something, and again afterwards.
    _check(os.stat(name, dir_fd=reading, follow_symlinks=False), depth)
    try:
        source = os.open(name, _READ, dir_fd=reading)
    except OSError as problem:
        raise ChatRefused(f"an entry changed while it was read: {problem.strerror}") from None
    try:
        found = os.fstat(source)
        _check(found, depth)
        if stat.S_ISDIR(found.st_mode):
            os.mkdir(name, 0o700, dir_fd=writing)
            target = os.open(name, _DIRECTORY, dir_fd=writing)
        else:
            target = os.open(name, _WRITE, 0o600, dir_fd=writing)
        try:
            if stat.S_ISDIR(found.st_mode):
                _copy_directory(source, target, budget, depth + 1)
            else:
                _copy_file(source, target, budget)
            os.fchmod(target, stat.S_IMODE(found.st_mode) & 0o755 | (0o700 if stat.S_ISDIR(found.st_mode) else 0o600))
            os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))
        finally:
            os.close(target)
    finally:
        os.close(source)


def _check(found: os.stat_result, depth: int) -> None:
    if stat.S_ISDIR(found.st_mode):
        if depth >= MOST_DEPTH:
            raise ChatRefused(f"it has directories more than {MOST_DEPTH} deep")
    elif not stat.S_ISREG(found.st_mode):
        raise ChatRefused("it holds a link, a pipe, a socket or a device")
    elif found.st_mode & (stat.S_ISUID | stat.S_ISGID):
        raise ChatRefused("it holds a file with a set-id bit")


def _copy_file(source: int, target: int, budget: _Budget) -> None:
    while part := os.read(source, _PART):
        budget.take_bytes(len(part))
        rest = memoryview(part)
        while rest:
            rest = rest[os.write(target, rest) :]
    os.fsync(target)
