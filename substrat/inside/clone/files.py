"""Small files of a repository's, read and written whole, and the size of all."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress

DISK_USE = ("du", "-s", "-B1", "--")
"""Says how many bytes on disk a directory takes, no link followed."""
DISK_USE_SECONDS = 10.0
"""It takes as long for some millions of files, or on a slow disk; then the size isn't known."""
_AT_A_TURNS_END_SECONDS = 2.0
"""The end of a turn waits for it."""


def size(directory: str) -> int | None:
    """Return the bytes on disk that a directory takes; None: it takes too long to tell."""
    with suppress(subprocess.TimeoutExpired, OSError):
        done = subprocess.run((*DISK_USE, directory), capture_output=True, timeout=_AT_A_TURNS_END_SECONDS, check=False)
        return size_said(done.stdout)
    return None


def size_said(output: bytes) -> int | None:
    """Read the output of `DISK_USE`; None: it is none."""
    words = output.split(maxsplit=1)
    return int(words[0]) if words and words[0].isdigit() else None


def read(path: str) -> str:
    """Return a file's text; empty: there is none."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def write(path: str, text: str) -> None:
    """Write a file anew."""
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)


def copy_index(source: str, target: str) -> None:
    """Copy an index of git's with its time.

    git takes a file for unchanged that has the size and times of its entry, unless it was changed as late as the index was
    written (git's Documentation/technical/racy-git): a copy that is younger would make it miss such a change.
    """
    with open(source, "rb") as given, open(target, "wb") as made:
        while piece := given.read(1 << 20):
            made.write(piece)
    time = os.stat(source).st_mtime_ns
    os.utime(target, ns=(time, time))
