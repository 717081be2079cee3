"""inotify: tells a task that something in a directory changed; one descriptor for the whole daemon, nothing polled."""

from __future__ import annotations

import ctypes
import errno
import math
import os
import struct
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import trio

from substrat.daemon.kernel.ratelimit import TokenBucket

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from substrat.daemon.kernel.files import Files

# linux/inotify.h
_IN_MODIFY = 0x2
_IN_CREATE = 0x100
_IN_Q_OVERFLOW = 0x4000
_IN_NONBLOCK = os.O_NONBLOCK
_IN_CLOEXEC = os.O_CLOEXEC
_IN_MOVED_FROM = 0x40
_IN_MOVED_TO = 0x80
_IN_DELETE = 0x200
_IN_DELETE_SELF = 0x400
_IN_MOVE_SELF = 0x800
_IN_ONLYDIR = 0x01000000
_IN_DONT_FOLLOW = 0x02000000
_EVENT = struct.Struct("iIII")
_READ = 64 * 1024
"""Bytes read at once: some 2,000 changes, handled in about 2 ms."""
_PART, _BURST = 0.2, 0.2
"""How much of a processor telling of changes takes, and its seconds at once. An agent makes a million changes a second by
writing single bytes to its output and its errors by turns; a reaction to each then costs about as much again."""
_MOST_READS = 16
"""The kernel's queue has 16,384 changes by default, of some 32 bytes: eight reads, which take some 15 ms."""


class WatchesUsedUp(OSError):
    """The user's inotify watches are used up (fs.inotify.max_user_watches): ENOSPC, which here says nothing of the disk."""


class ChangeFlag:
    """A flag that is raised by changes and lowered by looking."""

    def __init__(self) -> None:
        self._raised = trio.Event()
        self.raised_at = -math.inf
        """When it was last raised, on the loop's clock."""

    def set(self) -> None:
        """Raise it."""
        self.raised_at = trio.current_time()
        self._raised.set()

    async def wait(self) -> None:
        """Wait until it is raised, and lower it."""
        await self._raised.wait()
        self._raised = trio.Event()


class Watcher:
    """Watches directories for the daemon.

    Run `deliver` in a task of the owner's; `close` ends the descriptor.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._call("inotify_init1", _IN_NONBLOCK | _IN_CLOEXEC)
        self._changes: dict[int, set[ChangeFlag]] = {}

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._fd)

    @contextmanager
    def watching(self, directory: str) -> Iterator[ChangeFlag]:
        """Watch the files of one directory while the context lasts.

        Raises:
            WatchesUsedUp: there are no more watches.
            OSError: it can't be watched.
        """
        number = self._call("inotify_add_watch", self._fd, os.fsencode(directory), _IN_MODIFY | _IN_CREATE)
        change = ChangeFlag()
        # The kernel gives one number for one directory, however often it is watched.
        watchers = self._changes.setdefault(number, set())
        watchers.add(change)
        try:
            yield change
        finally:
            watchers.discard(change)
            if not watchers:
                del self._changes[number]
                self._libc.inotify_rm_watch(self._fd, number)

    async def deliver(self) -> None:
        """Pass the kernel's events on until cancelled; in a flood of them at some milliseconds' distance."""
        share = TokenBucket(_PART, _BURST)
        while True:
            await share.wait(0)
            await trio.lowlevel.wait_readable(self._fd)
            began = time.thread_time()
            self._deliver()
            share.spend(time.thread_time() - began)

    def _deliver(self) -> None:
        data = os.read(self._fd, _READ)
        changed: set[int] = set()
        at = 0
        while at < len(data):
            number, mask, _, name_length = _EVENT.unpack_from(data, at)
            at += _EVENT.size + name_length
            changed.update(self._changes if mask & _IN_Q_OVERFLOW else (number,))
        for number in changed:
            for change in self._changes.get(number, ()):
                change.set()

    def _call(self, function: str, *arguments: object) -> int:
        return _called(self._libc, function, *arguments)


class EntryChange(NamedTuple):
    """Something happened to a name in a watched directory.

    Args:
        directory: the directory's number, as `EntryWatcher.watch` returned it; -1 when the kernel dropped changes.
        name: the name; empty: the directory itself was moved or removed.
    """

    directory: int
    name: bytes


DROPPED = EntryChange(-1, b"")


class EntryWatcher:
    """Tells which names in directories are made, removed or renamed.

    Only that takes a mount away. Writes to a file, and its mode and times, aren't asked for: an agent can change
    those of a directory that is its own hundreds of thousands of times a second, and each would cost the daemon.

    It has a queue of its own in the kernel (inotify(7), fs.inotify.max_queued_events), so that an agent that floods it
    drops its own changes, not those of turns' output.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = _called(self._libc, "inotify_init1", _IN_NONBLOCK | _IN_CLOEXEC)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._fd)

    async def watch(self, files: Files, place: str, directories: Iterable[str]) -> dict[str, int | OSError]:
        """Watch the names in directories.

        Args:
            files: touches the directories.
            place: the workspace that they belong to.
            directories: the directories.

        Returns:
            Their numbers; one that is watched already keeps its number. Or why one can't be watched: it isn't there, is a
            link, or there are no more watches (`WatchesUsedUp`).
        """
        return await files.run(place, watch_names, tuple(directories), given=(self._fd,))

    def forget(self, number: int) -> None:
        """Stop watching a directory; one that is gone is fine."""
        self._libc.inotify_rm_watch(self._fd, number)

    async def wait(self) -> None:
        """Wait until there are changes."""
        await trio.lowlevel.wait_readable(self._fd)

    def changes(self, names: Container[bytes]) -> set[EntryChange]:
        """Return the changes that have come by now: those of certain names, and of directories themselves.

        Args:
            names: the names that matter; there may be thousands of changes of others, or of one of these.
        """
        found: set[EntryChange] = set()
        try:
            for _ in range(_MOST_READS):
                self._read(names, found)
        except BlockingIOError:
            return found
        return found | {DROPPED}

    def _read(self, names: Container[bytes], found: set[EntryChange]) -> None:
        data = os.read(self._fd, _READ)
        at = 0
        while at < len(data):
            number, mask, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size + length
            name = data[at - length : at].rstrip(b"\0")
            if mask & _IN_Q_OVERFLOW:
                found.add(DROPPED)
            elif name in names or mask & (_IN_DELETE_SELF | _IN_MOVE_SELF):
                found.add(EntryChange(number, name))


def watch_names(directories: tuple[str, ...], descriptor: int) -> dict[str, int | OSError]:
    """Watch the names in directories with a watcher's descriptor, as `EntryWatcher.watch`."""
    names = _IN_CREATE | _IN_DELETE | _IN_MOVED_FROM | _IN_MOVED_TO
    mask = names | _IN_DELETE_SELF | _IN_MOVE_SELF | _IN_ONLYDIR | _IN_DONT_FOLLOW
    libc, found = ctypes.CDLL(None, use_errno=True), dict[str, int | OSError]()
    for directory in directories:
        try:
            found[directory] = _called(libc, "inotify_add_watch", descriptor, os.fsencode(directory), mask)
        except OSError as problem:
            found[directory] = problem
    return found


def _called(libc: ctypes.CDLL, function: str, *arguments: object) -> int:
    result: int = getattr(libc, function)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        said = f"{function}: {os.strerror(number)}"
        raise WatchesUsedUp(number, said) if number == errno.ENOSPC else OSError(number, said)
    return result
