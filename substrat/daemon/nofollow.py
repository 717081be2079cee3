"""Opens what an agent may have replaced: no link is followed on the way, and nothing that is opened can block.

A path is taken apart and opened a name at a time, each in the directory opened before (open(2), `O_NOFOLLOW`); what
openat2(2) does with `RESOLVE_NO_SYMLINKS` in one call, Python has no function for.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

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
    """
    names = [name for name in path.split("/") if name not in {"", "."}]
    if ".." in names:
        raise OSError(errno.EINVAL, "the path leads upwards", path)
    at = os.open("/" if beneath is None else ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=beneath)
    for name in names:
        try:
            inner = os.open(name, _PATH, dir_fd=at)
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
    """
    return os.open(name, _READ | os.O_DIRECTORY, dir_fd=beneath)


def read_small(path: str, most: int, beneath: int | None = None) -> bytes | None:
    """Return what a small regular file holds, or None when there is no such file, or it is something else or larger.

    Args:
        path: the file, as for `open_path`.
        most: bytes.
        beneath: the directory it starts in.
    """
    head, _, name = path.rpartition("/")
    with suppress(OSError), opened(head or ("/" if beneath is None else "."), beneath) as directory:
        descriptor = os.open(name, _READ, dir_fd=directory)
        with open(descriptor, "rb") as file:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                data = file.read(most + 1)
                return data if len(data) <= most else None
    return None
