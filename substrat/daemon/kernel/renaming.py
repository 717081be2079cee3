"""Renames that replace nothing: a new name, or two names exchanged (renameat2(2)); Python has no function for them."""

from __future__ import annotations

import ctypes
import os

_NOREPLACE, _EXCHANGE = 1, 2  # linux/fs.h


def to_new(old: str, new: str, directory: int) -> None:
    """Rename an entry of a directory; raises `FileExistsError` if the new name is taken."""
    _rename(old, new, directory, _NOREPLACE)


def exchange(first: str, second: str, directory: int) -> None:
    """Exchange two entries of a directory in one step.

    Raises:
        FileNotFoundError: one isn't there.
        OSError: EINVAL, the file system can't do it (some of those over a network).
    """
    _rename(first, second, directory, _EXCHANGE)


def _rename(old: str, new: str, directory: int, flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(directory, os.fsencode(old), directory, os.fsencode(new), ctypes.c_uint(flags)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), new)
