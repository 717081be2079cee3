"""Opens files that an agent may have replaced: no link is followed on the way, and no open can block.

A path is taken apart and opened a name at a time, each in the directory opened before (open(2), `O_NOFOLLOW`). openat2(2)
does the same in one call with `RESOLVE_NO_SYMLINKS`, but Python has no function for it.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from substrat.daemon.kernel import descriptors

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
# A FIFO without a writer would hold the opener up, a device might do anything when it is opened for more.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def open_path(path: str, beneath: int | None = None) -> int:
    """Return a descriptor that stands for a file or directory, without opening it for reading; the caller closes it.

    Args:
        path: an absolute path, or with `beneath` one from there; it has no `..`.
        beneath: the directory it starts in.

    Raises:
        OSError: it isn't there; ELOOP: it, or a part of the way, is a link.
        DescriptorsUsedUp: there are no descriptors left; protection must not take that for "not there".
    """
    names = [name for name in path.split("/") if name not in {"", "."}]
    if ".." in names:
        raise OSError(errno.EINVAL, "the path leads upwards", path)
    at = _open("/" if beneath is None else ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, beneath)
    for name in names:
        try:
            inner = _open(name, _PATH, at)
        except OSError as problem:
            raise OSError(problem.errno, problem.strerror, path) from None
        finally:
            os.close(at)
        at = inner
        if stat.S_ISLNK(os.fstat(at).st_mode):
            os.close(at)
            raise OSError(errno.ELOOP, "is a link, or lies behind one", path)
    return at


@contextmanager
def opened(path: str, beneath: int | None = None) -> Iterator[int]:
    """Open a path as `open_path` does, for a while."""
    descriptor = open_path(path, beneath)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_directory(name: str, beneath: int | None = None) -> int:
    """Return a descriptor of a directory whose entries can be listed; the caller closes it.

    Args:
        name: a name in `beneath`, or an absolute path, of which only the last part may not be a link.
        beneath: the directory it is in.

    Raises:
        OSError: it isn't there, or no directory.
        DescriptorsUsedUp: there are no descriptors left.
    """
    return _open(name, _READ | os.O_DIRECTORY, beneath)


def open_itself(name: str, beneath: int) -> int:
    """Return a descriptor that stands for a name in a directory, a link itself included; the caller closes it.

    Args:
        name: the name.
        beneath: the directory it is in.

    Raises:
        OSError: it isn't there.
        DescriptorsUsedUp: there are no descriptors left.
    """
    return _open(name, _PATH, beneath)


def read_opened(descriptor: int, most: int) -> bytes | None:
    """Return the content of the regular file that a descriptor of `open_itself` stands for, None when it is larger.

    The descriptor decides which file is opened, so nobody can put a FIFO or a device there meanwhile.

    Args:
        descriptor: it stands for a regular file.
        most: bytes.

    Raises:
        OSError: it can't be read.
        DescriptorsUsedUp: there are no descriptors left.
    """
    reading = _READ & ~os.O_NOFOLLOW  # the name below /proc is a link to the very file
    return _read_regular(_open(f"/proc/self/fd/{descriptor}", reading, None), most)


def _open(name: str, flags: int, beneath: int | None) -> int:
    try:
        return os.open(name, flags, dir_fd=beneath)
    except ValueError:  # a NUL, in a name that was read from a file
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), name) from None
    except OSError as problem:
        descriptors.refuse_shortage(problem)
        raise


def open_beneath(path: str, beneath: int | None = None) -> int:
    """Return a descriptor for reading a file, without waiting for a FIFO's writer; the caller closes it.

    Args:
        path: as for `open_path`.
        beneath: the directory it starts in.

    Raises:
        OSError: it isn't there; ELOOP: it, or a part of the way, is a link.
    """
    head, _, name = path.rpartition("/")
    with opened(head or ("/" if beneath is None else "."), beneath) as directory:
        return _open(name, _READ, directory)


def read_small(path: str, most: int, beneath: int | None = None) -> bytes | None:
    """Return the content of a small regular file, or None when there is none, or it is something else or larger.

    Args:
        path: the file, as for `open_path`.
        most: bytes.
        beneath: the directory it starts in.

    Raises:
        DescriptorsUsedUp: there are no descriptors left.
    """
    head, _, name = path.rpartition("/")
    with suppress(OSError), opened(head or ("/" if beneath is None else "."), beneath) as directory:
        return _read_regular(_open(name, _READ, directory), most)
    return None


def read_own(path: str, most: int) -> bytes | None:
    """Return the content of one of the daemon's own files, or None when there is no such regular file or it is too large.

    Only the last part of the path isn't followed: the directories are the daemon's.

    Args:
        path: the file.
        most: bytes; a larger one isn't read.

    Raises:
        OSError: there are no descriptors left, and nothing else.
    """
    try:
        return _read_regular(open_file(path), most)
    except OSError as problem:
        if descriptors.is_short(problem):
            raise
        return None


def read_end(path: str, most: int) -> bytes:
    """Return the last bytes of one of the daemon's own files; nothing when there is none, or it is no regular file.

    Raises:
        OSError: there are no descriptors left, and nothing else.
    """
    try:
        descriptor = open_file(path)
        try:
            found = os.fstat(descriptor)
            return os.pread(descriptor, most, max(0, found.st_size - most)) if stat.S_ISREG(found.st_mode) else b""
        finally:
            os.close(descriptor)
    except OSError as problem:
        if descriptors.is_short(problem):
            raise
        return b""


def _read_regular(descriptor: int, most: int) -> bytes | None:
    """Read a regular file whole, unless it is larger than asked for, and close the descriptor in any case.

    Wrapping the descriptor of a directory in a file object fails and leaves the descriptor open (io.FileIO), so its kind is
    looked at first.
    """
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > most:
            return None
        parts, left = [], most + 1
        while left > 0 and (part := os.read(descriptor, left)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts) if left > 0 else None
    finally:
        os.close(descriptor)


_MAGIC = ("/proc", "/sys", "/dev")
"""Directories with links that lead elsewhere than their text says: to a process's open files or its root (proc(5))."""


def physical(path: str) -> str:
    """Return where a path that a person gave leads to, every link followed.

    Raises:
        OSError: EACCES: it leads to a directory of the system, or through a link that only the kernel can follow, such as
            `/proc/1/root`.
    """
    _refuse_magic(path)
    # At a link that can't be read, realpath raises PermissionError up to Python 3.12; later it returns the link's own path.
    real = os.path.realpath(path)
    _refuse_magic(real)
    return real


def _refuse_magic(path: str) -> None:
    plain = "/" + os.path.normpath(path).lstrip("/")  # normpath keeps the two slashes of `//proc`
    if plain.startswith(tuple(f"{place}/" for place in _MAGIC)):
        raise OSError(errno.EACCES, "it belongs to the system", path)


def open_file(path: str, flags: int = _READ, mode: int = 0o600) -> int:
    """Return a descriptor of a file whose last part isn't followed if it is a link; the caller closes it.

    It fits `opener` of the built-in `open`, which owns the descriptor from the first instant; `open(os.open(...))` leaves a
    directory's open.
    """
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, mode)
