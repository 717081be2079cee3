"""Fingerprints files that an agent may have made, so that a person accepts exactly the content that was found.

Each name is opened in the directory opened before, as a descriptor that stands for the file alone (`O_PATH`). Only a
regular file is then opened for reading, by that descriptor, so no swap of names in between opens a FIFO or a device. A link
counts with its text and, if it leads to where the agent may write, with what is there.
"""

from __future__ import annotations

import hashlib
import os
import stat
from itertools import dropwhile
from typing import TYPE_CHECKING, NamedTuple

from sandbox import protect
from substrat.daemon.kernel import descriptors, nofollow
from substrat.paths import is_within

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAGIC = ("/proc", "/sys", "/dev")
"""Their links lead elsewhere than their text says (proc(5))."""
_DEPTH = 24
"""Directories and links within one another: each holds a descriptor meanwhile."""


_LONGEST_PACKED = 64 << 20
"""Bytes of `packed-refs`: some 900,000 refs."""


class Budget:
    """How much is still read in one look, because an agent decides how much there is.

    Args:
        size: bytes; hashing takes a second for some 400 MiB.
        files: files, directories and links; each takes some 20 µs.
    """

    def __init__(self, size: int = 16 << 20, files: int = 4096) -> None:
        self.size = size
        self.files = files

    def take(self, size: int) -> None:
        """Count one file; raises `TooMuch` when there is too much."""
        self.size -= size
        self.files -= 1
        if self.size < 0 or self.files < 0:
            raise TooMuch


class TooMuch(Exception):
    """There is more than is read, or something whose content can't be read."""


class _Node(NamedTuple):
    """What is at a path: a hash of its content, and one that changes whenever somebody writes there."""

    content: bytes
    stamp: bytes


_ABSENT = _Node(b"absent", b"")
UNREAD = "?"
"""In the place of a hash of what can't be read."""


def of(paths: Iterable[str], roots: tuple[str, ...], budget: Budget | None = None) -> str | None:
    """Return a fingerprint of all that is at some paths, for example `9f86d0…:60303a…`.

    The first half stands for the content (`content_of`): names, modes, bytes, links. The second half stands for inodes and
    times of change, which an agent can't set, so it shows that content was changed and changed back. A placeholder of
    the daemon's counts as nothing.

    Args:
        paths: absolute paths.
        roots: the directories in which the agent may write.
        budget: how much is read.

    Returns:
        None when there is too much, or something that can't be read: a FIFO, a device, a closed directory.

    Raises:
        DescriptorsUsedUp: there are no descriptors left.
    """
    looked = _Look(roots, budget or Budget())
    content, stamp = hashlib.sha256(), hashlib.sha256()
    try:
        for path in paths:
            node = looked.at(path, 0)
            _add(content, os.fsencode(path), node.content)
            _add(stamp, node.stamp)
    except OSError as problem:
        descriptors.refuse_shortage(problem)
        return None
    except TooMuch:
        return None
    return f"{content.hexdigest()}:{stamp.hexdigest()}"


def content_at(path: str, roots: tuple[str, ...], budget: Budget) -> str:
    """Return a hash of what is at a path; empty where nothing is, `UNREAD` where it can't be read or is too much.

    Of git's `packed-refs` only the replaced objects count, because the other refs change with each `git gc`.

    Args:
        path: an absolute path.
        roots: the directories in which the agent may write.
        budget: how much is read.

    Raises:
        DescriptorsUsedUp: there are no descriptors left.
    """
    if path.endswith("/packed-refs"):
        return _replaced_objects(path)
    try:
        node = _Look(roots, budget).at(path, 0)
    except OSError as problem:
        descriptors.refuse_shortage(problem)
        return UNREAD
    except TooMuch:
        return UNREAD
    return "" if node is _ABSENT else node.content.hex()


def _replaced_objects(path: str) -> str:
    """Return a hash of the replaced objects in a `packed-refs`; empty: none."""
    data = nofollow.read_small(path, _LONGEST_PACKED)
    if data is None:
        return UNREAD if os.path.lexists(path) else ""
    lines = [line for line in data.splitlines() if b" refs/replace/" in line] if b" refs/replace/" in data else []
    return hashlib.sha256(b"\n".join(lines)).hexdigest() if lines else ""


def is_as_before(path: str, before: str, roots: tuple[str, ...], budget: Budget) -> bool:
    """Say whether nothing is at a path, or the content that it had before.

    Args:
        path: an absolute path.
        before: what `content_at` returned then, or the half of a fingerprint of this path that stands for the content.
        roots: the directories in which the agent may write.
        budget: how much is read.

    Raises:
        DescriptorsUsedUp: there are no descriptors left.
    """
    now = content_at(path, roots, budget)
    return not now or (now != UNREAD and before in {now, content_of(of((path,), roots, budget))})


def obeyed_in(git: str) -> tuple[str, ...]:
    """Return the paths in a git directory that git obeys, and that of its submodules' git directories."""
    return (*(f"{git}/{entry.name}" for entry in protect.GIT), f"{git}/modules")


def content_of(fingerprint: str | None) -> str | None:
    """Return the half of a fingerprint that stands for the content."""
    return fingerprint.partition(":")[0] if fingerprint is not None else None


class _Look:
    """One look at files.

    Args:
        roots: the directories in which the agent may write.
        budget: how much is read.
    """

    def __init__(self, roots: tuple[str, ...], budget: Budget) -> None:
        self._roots = roots
        self._budget = budget

    def at(self, path: str, depth: int) -> _Node:
        """Look at an absolute path; no link on the way is followed."""
        head, _, name = path.rpartition("/")
        try:
            with nofollow.opened(head or "/") as directory:
                return self._entry(name or ".", path, directory, depth)
        except (FileNotFoundError, NotADirectoryError):
            return _ABSENT

    def _entry(self, name: str, path: str, beneath: int, depth: int) -> _Node:
        if depth > _DEPTH:
            raise TooMuch
        one = nofollow.open_itself(name, beneath)
        try:
            found = os.fstat(one)
            match stat.S_IFMT(found.st_mode):
                case stat.S_IFREG:
                    node = self._file(one, found, path)
                case stat.S_IFDIR:
                    node = self._directory(one, path, depth)
                case stat.S_IFLNK:
                    node = self._link(one, path, depth)
                case _:
                    raise TooMuch
        finally:
            os.close(one)
        if node is _ABSENT:
            return node
        mode = f"{stat.S_IFMT(found.st_mode):o} {stat.S_IMODE(found.st_mode):o}".encode()
        seen = f"{found.st_dev} {found.st_ino} {found.st_ctime_ns}".encode()
        return _Node(_hash(mode, node.content), _hash(seen, node.stamp))

    def _file(self, one: int, found: os.stat_result, path: str) -> _Node:
        self._budget.take(found.st_size)
        data = nofollow.read_opened(one, found.st_size)
        if data is None:
            raise TooMuch  # it grows meanwhile
        return _ABSENT if protect.is_placeholder(path, data) else _Node(_hash(data), b"")

    def _directory(self, one: int, path: str, depth: int) -> _Node:
        self._budget.take(0)
        reading = nofollow.open_directory(".", one)
        try:
            with os.scandir(reading) as entries:
                names = []
                for entry in entries:
                    names.append(entry.name)
                    if len(names) > self._budget.files:
                        raise TooMuch
            nodes = [(name, self._entry(name, f"{path}/{name}", reading, depth + 1)) for name in sorted(names)]
        finally:
            os.close(reading)
        if not names and depth == 0:
            return _ABSENT  # a placeholder, or as good as none
        content = [part for name, node in nodes for part in (os.fsencode(name), node.content)]
        return _Node(_hash(*content), _hash(*(node.stamp for _, node in nodes)))

    def _link(self, one: int, path: str, depth: int) -> _Node:
        """Look at a link and, if it leads to where the agent may write, at that; the kernel follows none of it."""
        self._budget.take(0)
        text = os.readlink("", dir_fd=one)
        leads = _target(path, text)
        if any(is_within(leads, root) for root in self._roots):
            is_repository = path.lower().endswith("/.git") and _is_directory(leads)
            read = obeyed_in(leads) if is_repository else (leads,)  # a repository's objects change with each commit
        else:
            _is_directory(leads)  # raises where a link on the way may lead back
            read = ()
        nodes = [self.at(one, depth + 1) for one in read]
        return _Node(_hash(os.fsencode(text), *(one.content for one in nodes)), _hash(*(one.stamp for one in nodes)))


def _target(path: str, text: str) -> str:
    """Return where a link leads; raises `TooMuch` where only the kernel can tell, as through `/proc/self/cwd`."""
    names = [name for name in text.split("/") if name not in {"", "."}]
    upwards = len(names) - len(list(dropwhile(lambda name: name == "..", names)))
    leads = os.path.normpath(os.path.join(os.path.dirname(path), text))
    if ".." in names[upwards:] or leads.startswith(_MAGIC):
        raise TooMuch
    return leads


def _is_directory(path: str) -> bool:
    """Say whether there is a directory at a path; raises OSError where it is a link, or behind one."""
    try:
        with nofollow.opened(path) as found:
            return stat.S_ISDIR(os.fstat(found).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _add(into: hashlib._Hash, *parts: bytes) -> None:
    """Add parts to a hash so that no other parts give the same bytes."""
    for part in parts:
        into.update(len(part).to_bytes(8, "big"))
        into.update(part)


def _hash(*parts: bytes) -> bytes:
    made = hashlib.sha256()
    _add(made, *parts)
    return made.digest()
