"""inotify: tells a task that something in a directory changed; one descriptor for the whole daemon, nothing polled."""

from __future__ import annotations

import ctypes
import os
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import Iterator

# linux/inotify.h
_IN_MODIFY = 0x2
_IN_CREATE = 0x100
_IN_Q_OVERFLOW = 0x4000
_IN_NONBLOCK = os.O_NONBLOCK
_IN_CLOEXEC = os.O_CLOEXEC
_EVENT = struct.Struct("iIII")


class Change:
    """A flag that is raised by changes and lowered by looking."""

    def __init__(self) -> None:
        self._raised = trio.Event()

    def set(self) -> None:
        """Raise it."""
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
        self._changes: dict[int, set[Change]] = {}

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._fd)

    @contextmanager
    def watching(self, directory: str) -> Iterator[Change]:
        """Watch the files of one directory while the context lasts.

        Raises:
            OSError: it can't be watched (ENOSPC: fs.inotify.max_user_watches is used up).
        """
        number = self._call("inotify_add_watch", self._fd, os.fsencode(directory), _IN_MODIFY | _IN_CREATE)
        change = Change()
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
        """Pass the kernel's events on until cancelled."""
        while True:
            await trio.lowlevel.wait_readable(self._fd)
            data = os.read(self._fd, 64 * 1024)
            at = 0
            while at < len(data):
                number, mask, _, name_length = _EVENT.unpack_from(data, at)
                at += _EVENT.size + name_length
                if mask & _IN_Q_OVERFLOW:
                    concerned = [change for watchers in self._changes.values() for change in watchers]
                else:
                    concerned = list(self._changes.get(number, ()))
                for change in concerned:
                    change.set()

    def _call(self, function: str, *arguments: object) -> int:
        result: int = getattr(self._libc, function)(*arguments)
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{function}: {os.strerror(number)}")
        return result
