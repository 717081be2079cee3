"""The files of a move in the git directory: the copy of the index, and the lock that says whose it is."""

import errno
import os
import stat
from contextlib import suppress

from substrat.inside.branch.git import COPY, INDEX, LOCK, LOOK
from substrat.inside.branch.job import Failed, Job

_ROOM = 1 << 16
"""Bytes beside another index that taking a move back needs on a full disk."""
PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
HELD = "{} is there: a git works there, or one that was killed left it; then remove it"


def stamp(job: Job) -> tuple[int, ...] | None:
    """Return numbers that are others when the index has been written; None: there is none."""
    try:
        about = os.lstat(job.path(INDEX))
    except FileNotFoundError:
        return None
    return about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def take_lock(job: Job) -> int:
    """Make `index.lock` with the landing's number; return it, open."""
    path = job.path(LOCK)
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise Failed(HELD.format(path)) from None
    try:
        os.write(lock, lock_line(job))
        reserve(job)
    except OSError:
        release(job, lock)
        raise
    return lock


def reserve(job: Job) -> None:
    """Take the room that taking the move back needs on a full disk: that of another index, and of some trees."""
    remove(job, LOOK)
    size = os.stat(job.path(INDEX)).st_size if os.path.exists(job.path(INDEX)) else 0
    file = os.open(job.path(LOOK), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(file, 0, size + _ROOM)
    except OSError as problem:
        if problem.errno not in {errno.EOPNOTSUPP, errno.EINVAL}:  # else the file system has nothing like it
            raise
    finally:
        os.close(file)


def remove(job: Job, *names: str) -> None:
    """Remove files of the git directory that are there."""
    for name in names:
        with suppress(FileNotFoundError):
            os.unlink(job.path(name))


def release(job: Job, lock: int) -> None:
    """Remove the files of a move that is over, the lock last and in any case."""
    for name in (LOOK, f"{LOOK}.lock", f"{COPY}.lock", COPY):
        with suppress(OSError):
            remove(job, name)
    with suppress(FileNotFoundError):  # a person has removed it, and may have made another
        if os.path.samestat(os.fstat(lock), os.lstat(job.path(LOCK))):
            os.unlink(job.path(LOCK))
    os.close(lock)


def lock_line(job: Job) -> bytes:
    """Return the first line of a landing's lock; git's own lock is empty at first, and begins with `DIRC` like an index."""
    return f"landing {job.number} {job.new}\n".encode()


def copy_index(job: Job) -> None:
    """Make the copy of the index anew; a branch without a commit may have no index."""
    remove(job, COPY, f"{COPY}.lock")
    with suppress(FileNotFoundError), open(os.open(job.path(INDEX), PLAIN), "rb") as source:
        about = os.fstat(source.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise Failed(f"{job.path('index')} is no plain file: put one in its place")
        opened = os.open(job.path(COPY), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(opened, "wb") as copy:
            os.fchmod(opened, stat.S_IMODE(about.st_mode))
            while piece := source.read(1 << 20):
                copy.write(piece)
        # git takes a file that is as old as the index for one that may have changed since.
        os.utime(job.path(COPY), ns=(about.st_atime_ns, about.st_mtime_ns))
