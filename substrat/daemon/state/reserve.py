"""Room on the disk for commits that must succeed when it is full: blocks allocated behind the end of SQLite's log.

SQLite's write-ahead log grows at its end (sqlite.org/walformat.html) and is overwritten from its beginning after a
checkpoint. Blocks that are allocated behind its end with FALLOC_FL_KEEP_SIZE (fallocate(2)) therefore take the
frames of the next commits without asking the file system for anything, so a process that fills the disk can't come
between. Ordinary commits are made only while the reserve is whole; urgent ones may use it up.

An orderly stop of the daemon deletes the log but not its blocks: they have a second name, `<state>/reserve`, and the next
daemon gives it the log's name again before SQLite opens the database. Example: `substrat.db-wal` and `reserve` are
one inode with 4 MiB in it and 8 MiB behind them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from contextlib import suppress

import structlog

from substrat.daemon.state.storing import disk_is_full

log = structlog.get_logger("substrat.reserve")

SIZE = 8 * 1024 * 1024
"""Bytes. A commit that stops or accounts for a turn writes about 12 pages of 4 KiB, and a turn takes two to six of
them: enough to stop some forty turns even if SQLite can't fold the log into the database meanwhile, and hardly a
loss on any disk."""
_STEP = 64 * 1024
"""Bytes allocated beyond `SIZE`, so that not every commit that makes the log longer costs a system call."""
_UNCERTAIN = 64 * 1024
"""Bytes by which a file's count of blocks may be more than its data: file systems count their own blocks for it too."""
_INDEX = 128 * 1024
"""Bytes of the log's index: four times 32 KiB (sqlite.org/walformat.html), each for some 4,000 pages in the log. SQLite
makes it longer when the log grows, and gets SIGBUS or an error from that on a full disk."""
_LOG_HEADER = 32
_FALLOC_FL_KEEP_SIZE = 1


class Reserve:
    """The reserve of an open database.

    Args:
        path: the database's file; its log is there already.
        size: how many bytes are kept.
        has_index: whether the log has an index on the disk.
    """

    def __init__(self, path: str, size: int = SIZE, *, has_index: bool = True) -> None:
        self._size = size
        self._log = os.open(path + "-wal", os.O_RDWR | os.O_CLOEXEC)
        # Closing a descriptor of this file would drop SQLite's locks on it (fcntl(2)), so it stays open until `close`.
        self._index = os.open(path + "-shm", os.O_RDWR | os.O_CLOEXEC) if has_index else None
        found = os.fstat(self._log)
        self._end = max(found.st_size, found.st_blocks * 512 - _UNCERTAIN)
        self.is_possible = True
        """Whether the file system can allocate blocks ahead."""
        self._is_whole = True
        _give_second_name(path)
        self.keep()

    def close(self) -> None:
        """Close its files; to be called after the database is closed."""
        os.close(self._log)
        if self._index is not None:
            os.close(self._index)

    @property
    def held(self) -> int:
        """How many bytes there are for urgent commits, at the least."""
        return max(0, min(self._size, self._end - os.fstat(self._log).st_size))

    def keep(self) -> bool:
        """Make the reserve whole again if it isn't.

        Returns:
            Whether ordinary commits may be made: the reserve is whole, or there can be none on this file system.
        """
        size = os.fstat(self._log).st_size
        if self._is_whole and (size + self._size <= self._end or not self.is_possible):
            return True
        wanted = size + self._size + _STEP
        try:
            if self._index is not None:
                _allocate(self._index, 0, _INDEX, keep_size=False)
            # Only blocks that aren't allocated yet: when tmpfs finds no room, it frees all unwritten blocks of the range.
            if (start := max(size, self._end)) < wanted:
                _allocate(self._log, start, wanted - start, keep_size=True)
        except OSError as problem:
            if not disk_is_full(problem):
                log.warning("no reserve can be kept for stopping turns on a full disk", reason=problem.strerror)
                self.is_possible, self._is_whole = False, True
                return True
            if self._is_whole:
                log.error("the disk is full: only turns can be stopped", reserve=self.held)  # noqa: TRY400 - it says it all
            self._is_whole = False
            return False
        if not self._is_whole:
            log.info("the reserve for stopping turns is whole again")
        self._end, self._is_whole = max(wanted, self._end), True
        return True


def take_over(path: str) -> None:
    """Give the blocks that the daemon before has kept to the log that SQLite is about to begin.

    The log's header is overwritten with zeros first, so that SQLite takes it for an empty one and never reads the
    frames in it. A log that is still there is left alone: it holds commits.

    Args:
        path: the database's file.
    """
    reserve, own = _second_name(path), path + "-wal"
    with suppress(FileNotFoundError):
        found = os.lstat(reserve)
        if os.path.lexists(own) or not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            # Another name for a log that is in use, or was set aside with its database: only this name goes.
            if not os.path.lexists(own) or not os.path.samefile(own, reserve):
                with suppress(OSError):
                    os.unlink(reserve)
            return
        descriptor = os.open(reserve, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, bytes(min(_LOG_HEADER, found.st_size)), 0)
        finally:
            os.close(descriptor)
        # Both names from here on: when the database can't be opened, SQLite may delete the log.
        os.link(reserve, own)


def allocate_beforehand(descriptor: int, size: int) -> None:
    """Allocate blocks for bytes to be written to a file later, where the file system can; the file's size stays.

    Raises:
        OSError: there is no room for them.
    """
    try:
        _allocate(descriptor, 0, size, keep_size=True)
    except OSError as problem:
        if disk_is_full(problem):
            raise


def _give_second_name(path: str) -> None:
    """Let the log's blocks outlive the log; without hard links the reserve must be made anew at each start."""
    try:
        os.link(path + "-wal", _second_name(path))
    except FileExistsError:
        return
    except OSError as problem:
        log.info("the reserve doesn't outlive the daemon", reason=problem.strerror)


def _second_name(path: str) -> str:
    return os.path.join(os.path.dirname(path), "reserve")


def _allocate(descriptor: int, start: int, length: int, *, keep_size: bool) -> None:
    """Allocate blocks for a range of a file (fallocate(2)); glibc's `posix_fallocate` has no way to keep the size."""
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    while fallocate(descriptor, _FALLOC_FL_KEEP_SIZE if keep_size else 0, start, length) != 0:
        number = ctypes.get_errno()
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))
