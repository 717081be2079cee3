"""Small files of a repository's, read and written whole."""

from __future__ import annotations

import os


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
