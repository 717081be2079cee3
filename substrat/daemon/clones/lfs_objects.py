"""Copies the objects of git-lfs in a clone to those of the user's repository, and names files that lack theirs.

Each is copied after its hash was checked.
Such an object is a file that is named after its SHA-256, for example `lfs/objects/ab/cd/abcd…` (git-lfs, docs/spec.md). The
clone is an agent's: no link in it is followed, and only plain files are read.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import structlog

from substrat.core.workspaces import drivers, landing_outcome
from substrat.daemon.kernel import nofollow
from substrat.errors import SubstratError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from substrat.daemon.kernel.files import Files

log = structlog.get_logger("substrat.landing")

_HASH = re.compile(r"[0-9a-f]{64}")
_PIECE = 1 << 20
_POINTER = 1024
"""Bytes; a pointer has fewer (git-lfs, docs/spec.md)."""
_MOST = 10_000
"""Objects that are looked at: reading the names of more takes longer than a turn's end should wait."""


def copy_all(git_dir: str, clone: str, most_bytes: int) -> int:
    """Copy the objects that the user doesn't have.

    Returns:
        How many are still only in the clone: those that aren't what their names say, or for which there is no room.
    """
    left, missing = most_bytes, 0
    try:
        with ExitStack() as stack:
            source = nofollow.open_path(f"{clone}/lfs/objects")
            stack.callback(os.close, source)
            beneath = nofollow.open_path(git_dir)
            stack.callback(os.close, beneath)
            target = None
            with suppress(OSError):  # a link or a file is there: all objects are only in the clone
                target = _made("lfs/objects", beneath)
                stack.callback(os.close, target)
            for number, name in enumerate(_objects(source)):
                path = f"{name[:2]}/{name[2:4]}/{name}"
                if target is None:
                    missing += 1
                    continue
                if number >= _MOST or _is_there(path, target):
                    missing += number >= _MOST
                    continue
                size = _copy(path, source, target, left)
                missing += size is None
                left -= size or 0
    except OSError:
        missing += 1
    return missing


async def pointers(files: Files, written: tuple[str, Sequence[str]]) -> str | None:
    """Say which of some files, written in a checkout, are pointers; None: there are none, or that isn't known."""
    top, paths = written
    try:
        found = await files.run(top, without_object, top, paths) if paths else []
    except SubstratError as problem:
        log.warning("which files are pointers of git-lfs's isn't known", reason=problem.message)
        return None  # they are written, which must be told
    return landing_outcome.pointers(top, found)


def without_object(top: str, paths: Iterable[str]) -> list[str]:
    """Return the files of a checkout that git-lfs has written as pointers, because the repository lacks their objects."""
    begin = drivers.FORMS["lfs"]
    return [path for path in paths if (nofollow.read_small(f"{top}/{path}", _POINTER) or b"").startswith(begin)]


def _objects(directory: int) -> Iterator[str]:
    for first in _names(directory, ""):
        for second in _names(directory, first):
            yield from (name for name in _names(directory, f"{first}/{second}") if _HASH.fullmatch(name))


def _names(directory: int, path: str) -> list[str]:
    with suppress(OSError), nofollow.opened(path, directory) as opened:
        listed = nofollow.open_directory(".", opened)
        try:
            return sorted(os.listdir(listed))
        finally:
            os.close(listed)
    return []


def _is_there(path: str, beneath: int) -> bool:
    try:
        with nofollow.opened(path, beneath) as found:
            return stat.S_ISREG(os.fstat(found).st_mode)
    except OSError:
        return False


def _copy(path: str, source: int, target: int, most: int) -> int | None:
    """Copy one object, and return its bytes; None: it can't be, or its hash isn't its name."""
    folder, _, name = path.rpartition("/")
    made = f"{name}.{secrets.token_hex(4)}"
    with ExitStack() as stack:
        try:
            reading = nofollow.open_beneath(path, source)
            stack.callback(os.close, reading)
            if not stat.S_ISREG(os.fstat(reading).st_mode) or os.fstat(reading).st_size > most:
                return None
            into = _made(folder, target)
            stack.callback(os.close, into)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(made, flags, 0o444, dir_fd=into), "wb") as writing:
                stack.callback(_remove, made, into)
                found, size = hashlib.sha256(), 0
                while (piece := os.read(reading, _PIECE)) and size <= most:
                    found.update(piece)
                    writing.write(piece)
                    size += len(piece)
                os.fsync(writing.fileno())
            if found.hexdigest() != name:
                return None
            os.rename(made, name, src_dir_fd=into, dst_dir_fd=into)
        except OSError:
            return None
        return size


def _made(folder: str, beneath: int) -> int:
    opened = os.dup(beneath)
    for name in folder.split("/"):
        try:
            with suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=opened)
            inner = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=opened)
        finally:
            os.close(opened)
        opened = inner
    return opened


def _remove(name: str, directory: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)
