"""Copies protected files, compares copies with a repository's objects, and puts them back as new files."""

from __future__ import annotations

import difflib
import errno
import fcntl
import hashlib
import os
import secrets
import stat
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from substrat.core.workspaces.protection import ABSENT, UNKNOWN, CopiedFile, Copy
from substrat.daemon.kernel import nofollow
from substrat.daemon.kernel.fingerprint import Budget, TooMuch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ONE_BYTES = 1024 * 1024
"""The largest file or directory that is copied: hooks and editors' settings have some kilobytes."""
_ONE_FILES = 256
"""Files of one directory: the hooks that `git init` makes are some 14."""
_ALL_BYTES = 8 * 1024 * 1024
"""Bytes of all copies of a turn, because they are written to the turn's directory at its start."""
_DEPTH = 8
"""Directories within one another: each is a descriptor that is open meanwhile."""
_MOST_LOOKUPS = 4096
"""How often a pack's index is searched for one path: half a second."""
_COMPARED_LINES = 1000
"""Lines of each file that are compared: the time grows with their square (difflib), and an agent writes one of the two."""
_LONGEST_DIFFERENCE = 16 * 1024
"""Characters of a difference that is kept: a person reads it in a terminal."""


def take_all(paths: Iterable[str]) -> dict[str, Copy]:
    """Copy protected paths, as many bytes of them as are kept of a turn; a path that is too large is `UNKNOWN`.

    Args:
        paths: absolute paths; no link on the way is followed.
    """
    left = _ALL_BYTES
    copies: dict[str, Copy] = {}
    for path in paths:
        copy = take(path, min(left, _ONE_BYTES))
        left -= sum(len(file.data) for file in copy.files.values())
        copies[path] = copy
    return copies


def take(path: str, most: int = _ONE_BYTES) -> Copy:
    """Copy one file or directory.

    Args:
        path: an absolute path; no link on the way is followed.
        most: bytes.

    Returns:
        `UNKNOWN` when it is a link or a device, can't be read, or has too much in it.
    """
    try:
        with nofollow.opened(path) as found:
            mode = os.fstat(found).st_mode
            if stat.S_ISREG(mode):
                return Copy("file", {"": _read(path, None, Budget(most, 1))})
            if not stat.S_ISDIR(mode):
                return UNKNOWN
            files: dict[str, CopiedFile] = {}
            directories: list[str] = []
            _read_directory(found, "", files, directories, Budget(most, _ONE_FILES), 0)
            return Copy("directory", files, tuple(directories))
    except FileNotFoundError:
        return ABSENT
    except (OSError, TooMuch):
        return UNKNOWN


def _read(path: str, beneath: int | None, budget: Budget) -> CopiedFile:
    descriptor = nofollow.open_beneath(path, beneath)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise TooMuch
        budget.take(found.st_size)
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(found.st_size + 1)
        if len(data) > found.st_size:
            raise TooMuch
        return CopiedFile(stat.S_IMODE(found.st_mode), data)
    finally:
        os.close(descriptor)


def _read_directory(
    beneath: int, path: str, files: dict[str, CopiedFile], directories: list[str], budget: Budget, depth: int
) -> None:
    if depth > _DEPTH:
        raise TooMuch
    reading = nofollow.open_directory(".", beneath)
    try:
        with os.scandir(reading) as entries:
            for entry in entries:
                inner = f"{path}{_printable(entry.name)}"
                if entry.is_dir(follow_symlinks=False):
                    budget.take(0)
                    directories.append(inner)
                    with nofollow.opened(entry.name, reading) as directory:
                        _read_directory(directory, inner + "/", files, directories, budget, depth + 1)
                elif entry.is_symlink():
                    raise TooMuch
                else:
                    files[inner] = _read(entry.name, reading, budget)
    finally:
        os.close(reading)


def _printable(name: str) -> str:
    """Return a file's name; one in no encoding can't be written down, so its directory counts as too much."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise TooMuch from None
    return name


def put(path: str, copy: Copy) -> None:
    """Replace the file or directory at a path by a copy, as new files: descriptors opened before don't reach them.

    Args:
        path: an absolute path; no link on the way is followed.
        copy: a file or a directory; an absent one removes a file or an empty directory.

    Raises:
        OSError: it can't be written.
    """
    head, _, name = path.rpartition("/")
    with nofollow.opened(head) as directory:
        if copy.kind == "absent":
            _discard(name, directory)
            return
        fresh = make(name, copy, directory)
        if copy.kind == "file":
            with suppress(OSError):  # it isn't an empty directory, the only thing that would be in a file's way
                os.rmdir(name, dir_fd=directory)
            os.replace(fresh, name, src_dir_fd=directory, dst_dir_fd=directory)
            return
        old = f".{name}.{secrets.token_hex(6)}"
        with suppress(FileNotFoundError):
            os.rename(name, old, src_dir_fd=directory, dst_dir_fd=directory)
        os.rename(fresh, name, src_dir_fd=directory, dst_dir_fd=directory)
        remove(old, directory)


def make(name: str, copy: Copy, directory: int) -> str:
    """Write a copy of a file or directory beside a name in a directory, and return how it is called."""
    fresh = f".{name}.{secrets.token_hex(6)}"
    if copy.kind == "file":
        _write(fresh, directory, copy.files[""])
        return fresh
    os.mkdir(fresh, 0o755, dir_fd=directory)
    with nofollow.opened(fresh, directory) as made:
        for inner in copy.directories:
            os.mkdir(inner, 0o755, dir_fd=made)
        for inner, file in copy.files.items():
            _write(inner, made, file)
    return fresh


def _write(name: str, beneath: int, file: CopiedFile) -> None:
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=beneath)
    with open(descriptor, "wb") as opened:
        opened.write(file.data)
        os.fchmod(descriptor, file.mode & 0o777)


def _discard(name: str, directory: int) -> None:
    with suppress(FileNotFoundError):
        try:
            os.unlink(name, dir_fd=directory)
        except IsADirectoryError:
            os.rmdir(name, dir_fd=directory)


def remove(name: str, beneath: int) -> None:
    """Delete a file, or a directory with its entries, following no link; an entry that can't be deleted stays."""
    with suppress(OSError):
        if not stat.S_ISDIR(os.stat(name, dir_fd=beneath, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=beneath)
            return
        directory = nofollow.open_directory(name, beneath)
        try:
            for inner in os.listdir(directory):
                remove(inner, directory)
        finally:
            os.close(directory)
        os.rmdir(name, dir_fd=beneath)


def move_aside(path: str, target: str) -> None:
    """Move a file or directory out of the workspace, as a copy if the target is on another file system.

    Args:
        path: an absolute path; no link on the way is followed.
        target: a name in a directory of the daemon's that is there; nothing has it.

    Raises:
        OSError: it can't be moved.
    """
    head, _, name = path.rpartition("/")
    with nofollow.opened(head) as directory:
        try:
            os.rename(name, target, src_dir_fd=directory)
        except OSError:
            copy = take(path)
            if copy.kind == "unknown":
                raise
            put(target, copy)
            remove(name, directory)


def difference(path: str, before: Copy, now: Copy) -> str:
    """Return the changes as a unified diff; a change that can't be compared is only named.

    Args:
        path: how it is called.
        before: the copy that was kept.
        now: the copy of the present state.
    """
    lines: list[str] = []
    for name in sorted(before.files.keys() | now.files.keys()):
        old, new = (copy.files[name].data if name in copy.files else None for copy in (before, now))
        if old == new:
            continue
        label = f"{path}/{name}" if name else path
        heads = ("/dev/null" if old is None else label, "/dev/null" if new is None else label)
        was, found = ((data or b"").decode("utf-8", "backslashreplace").splitlines() for data in (old, new))
        longest = max(len(was), len(found))
        if longest > _COMPARED_LINES:
            # Said first: many empty lines may stand there to hide the one that counts.
            lines.append(f"{label} has {longest} lines, of which the first {_COMPARED_LINES} are compared here")
        was, found = was[:_COMPARED_LINES], found[:_COMPARED_LINES]
        lines += difflib.unified_diff(was, found, heads[0], heads[1], lineterm="", n=2)
    if now.kind == "unknown":
        lines.append(f"{path} isn't a file that could be compared")
    text = "\n".join(lines)
    return text if len(text) <= _LONGEST_DIFFERENCE else text[:_LONGEST_DIFFERENCE] + "\n… [cut]"


def digest(copy: Copy) -> bytes:
    """Return what tells a copy from every other one, whatever the order in which its files were read."""
    parts = (copy.kind, copy.files, sorted(copy.directories))
    return hashlib.sha256(msgspec.msgpack.encode(parts, order="deterministic")).digest()


def encode(copies: dict[str, Copy]) -> bytes:
    """Return copies as bytes, for a daemon that takes the turn over."""
    return msgspec.msgpack.encode({os.fsencode(path): copy for path, copy in copies.items()})


def is_sound(data: bytes) -> bool:
    """Say whether `encode` can have written some bytes."""
    return bool(decode(data)) or data == encode({})


def decode(data: bytes | None) -> dict[str, Copy]:
    """Return the copies from `encode`'s bytes; none if the bytes are damaged."""
    with suppress(msgspec.MsgspecError, RecursionError):
        return {
            os.fsdecode(path): copy for path, copy in msgspec.msgpack.decode(data or b"", type=dict[bytes, Copy]).items()
        }
    return {}


def is_settled(path: str, copy: Copy) -> bool:
    """Say whether a path has the contents of a copy and no open descriptor can change them.

    The kernel grants no read lease on a file that anybody has open for writing or has mapped so (fcntl(2), "Leases"); where
    a file system has none, the contents count alone.

    Args:
        path: an absolute path; no link on the way is followed.
        copy: the copy that was put there.
    """
    now = take(path)
    if (now.kind, now.contents()) != (copy.kind, copy.contents()):
        return False
    return not any(_is_being_written(f"{path}/{inner}" if inner else path) for inner in copy.files)


def _is_being_written(path: str) -> bool:
    try:
        descriptor = nofollow.open_beneath(path)
    except OSError:
        return True  # it was there a moment ago
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as problem:
        return problem.errno == errno.EAGAIN
    finally:
        os.close(descriptor)
    return False


# Objects of a repository


class Objects(NamedTuple):
    """Tells whether a repository held some content before a moment.

    An object's name is the hash of its content (gitformat-pack(5)), and a file's change time can't be set back, so an
    object whose file is older than the moment was there then.

    Args:
        directory: the repository's `objects`.
        before: the moment, in seconds since the epoch.
    """

    directory: str
    before: float

    def hold(self, copy: Copy) -> bool:
        """Say whether all files of a copy are objects from before the moment; sha1 repositories only.

        Where that would take more than `_MOST_LOOKUPS`, because an agent has made thousands of packs, it says no.
        """
        indices = tuple(islice(self._indices(), _MOST_LOOKUPS))
        if not copy.files or len(copy.files) * len(indices) >= _MOST_LOOKUPS:
            return False
        return all(self._has(file.data, indices) for file in copy.files.values())

    def _has(self, data: bytes, indices: tuple[str, ...]) -> bool:
        name = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
        with suppress(OSError):
            if os.lstat(f"{self.directory}/{name[:2]}/{name[2:]}").st_ctime < self.before:
                return True
        return any(_in_index(index, bytes.fromhex(name)) for index in indices)

    def _indices(self) -> Iterator[str]:
        with suppress(OSError):
            for entry in sorted(os.listdir(f"{self.directory}/pack")):
                path = f"{self.directory}/pack/{entry}"
                if entry.endswith(".idx") and os.lstat(path).st_ctime < self.before:
                    yield path


def _in_index(path: str, name: bytes) -> bool:
    """Say whether a pack's index lists an object (gitformat-pack(5), version 2: a table by first byte, sorted names)."""
    with suppress(OSError):
        descriptor = nofollow.open_beneath(path)
        try:
            head = os.pread(descriptor, 8 + 256 * 4, 0)
            if len(head) < 8 + 256 * 4 or head[:8] != b"\xfftOc\0\0\0\2":
                return False
            counts = [int.from_bytes(head[8 + 4 * at : 12 + 4 * at], "big") for at in range(256)]
            low, high = counts[name[0] - 1] if name[0] else 0, counts[name[0]]
            while low < high:
                middle = (low + high) // 2
                found = os.pread(descriptor, 20, 8 + 1024 + 20 * middle)
                if found == name:
                    return True
                if len(found) < 20:
                    return False
                low, high = (middle + 1, high) if found < name else (low, middle)
        finally:
            os.close(descriptor)
    return False
