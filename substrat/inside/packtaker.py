"""Takes an agent's pack into the user's repository, all or nothing; run by the daemon in a sandbox without a network.

The pack is the work of a clone since the last keep, and a hostile one may be small and unfold to gigabytes. So its sizes
are summed first, as gitformat-pack(5) has them before each object, in a single pass that ends at the limit. git then
unpacks and checks it into a quarantine, a directory of objects beside the repository's own, and files move out of that only
when nothing is missing. For example a pack of 7 objects becomes 7 files `objects/1f/2e…`, and one of 300 stays a pack.
It runs with any Python that the system has, so it imports next to nothing; `substrat.daemon.clones.repository` runs it.

Usage: `PACK QUARANTINE MOST FREE COMMIT...`, with `GIT_DIR` set: the most bytes that the objects may unfold to, the bytes
that must stay free, and the new commits. Exit status 0: taken in; 3: git refuses it; 4: it unfolds to more; 5: too little
is free; 6: git took too much processor time. Then stderr says why in its last line, and the repository has nothing of it.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import zlib
from contextlib import contextmanager, suppress
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import BinaryIO

REFUSED, TOO_LARGE, NO_ROOM, TOO_SLOW = 3, 4, 5, 6

UNPACK_LIMIT = 100
"""From so many objects on a pack stays one, as with git's own `transfer.unpackLimit`."""
_SMALL = 1 << 20
"""Bytes of a pack whose objects become single files: a pack a turn would make every git command of the user's slower."""
_SECONDS, _BYTES_A_SECOND = 30, 8 << 20
"""Processor time that git may take: so much, and a second more for so many bytes. It checks some 100 MiB in one; deltas can
be laid so that it makes the same objects again and again."""
_COMMIT, _TREE, _BLOB, _TAG, _OFS_DELTA, _REF_DELTA = 1, 2, 3, 4, 6, 7
_PIECE = 1 << 16
_LONGEST_HEADER = 64
"""Bytes before an object's data: two numbers of at most ten bytes, or one and a name of 32."""
_FIRST, _OBJECT = re.compile("[0-9a-f]{2}"), re.compile("[0-9a-f]{38}|[0-9a-f]{62}")
_PACKED = re.compile(r"pack-[0-9a-f]{40,64}\.(?:keep|pack|rev|idx)")
"""The names of a single object, in two parts, and of a pack's files (gitrepository-layout(5))."""
_LAST = {".keep": 0, ".pack": 1, ".rev": 2, ".idx": 3}
"""The order in which the files of a pack come: git takes a pack for whole when it has an index (tmp-objdir.c)."""


class Refused(Exception):
    """The pack isn't taken in: the exit status, and why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Measured(NamedTuple):
    """How many objects a pack has, and how many bytes they unfold to."""

    objects: int
    size: int


def main(line: Sequence[str]) -> int:
    """Take a pack in; returns the exit status."""
    pack, quarantine, most, free, *commits = line
    try:
        take(pack, quarantine, int(most), int(free), commits)
    except Refused as problem:
        sys.stderr.write(f"{problem}\n")
        return problem.status
    except OSError as problem:
        sys.stderr.write(f"{problem.filename}: {problem.strerror}\n")
        return REFUSED
    return 0


def take(pack: str, quarantine: str, most: int, free: int, commits: Sequence[str]) -> None:
    """Take a pack in.

    Args:
        pack: its path.
        quarantine: the path of a directory that this makes and removes; it lies in the repository's directory of objects.
        most: bytes that its objects may unfold to.
        free: bytes that must be free for the user when it is unfolded; 0: any number.
        commits: the new commits, of which nothing may be missing.

    Raises:
        Refused: it isn't taken in.
        OSError: a file can't be read or written.
    """
    objects = os.path.dirname(quarantine)
    with open(pack, "rb", buffering=1 << 20) as file:
        found = measure(file, most, len(commits[0]) // 2)
        packed = os.fstat(file.fileno()).st_size
        _check_room(objects, found.size, free)
        remove(quarantine)  # of a daemon that was killed
        try:
            os.mkdir(quarantine, 0o700)
            os.lseek(file.fileno(), 0, os.SEEK_SET)  # git reads on from there
            _unpack(file, packed, found, quarantine, most)
            # A broken ref of the user's is passed over; a commit that is missing fails `update-ref`.
            _git(quarantine, "rev-list", "--objects", "--quiet", "--ignore-missing", *commits, "--not", "--all")
            _move(quarantine, objects)
        finally:
            remove(quarantine)


def remove(quarantine: str) -> None:
    """Remove a quarantine that may be there, or a link in its place."""
    if os.path.islink(quarantine):
        os.unlink(quarantine)
    with suppress(FileNotFoundError):
        shutil.rmtree(quarantine)


# Measuring


def measure(file: BinaryIO, most: int, name_bytes: int) -> Measured:
    """Sum the sizes of the objects in a pack, without making any of them.

    git refuses a pack whose data aren't of these sizes, so a pack can't hide what it unfolds to.

    Args:
        file: the pack.
        most: bytes at which the sum ends.
        name_bytes: the length of an object's name, 20 or 32 bytes.

    Raises:
        Refused: they unfold to more, or this is no pack.
    """
    head = file.read(12)
    if len(head) < 12 or head[:4] != b"PACK":
        raise _damaged()
    number, total = int.from_bytes(head[8:], "big"), 0
    for _ in range(number):
        start = file.tell()
        header = file.read(_LONGEST_HEADER)
        kind = header[0] >> 4 & 7 if header else 0
        size, at = _number(header, 0, 4)
        if kind == _REF_DELTA:
            at += name_bytes
        elif kind == _OFS_DELTA:
            at = _number(header, at, 7)[1]
        elif kind not in {_COMMIT, _TREE, _BLOB, _TAG}:
            raise _damaged()
        if total + size > most:
            raise _too_large()
        file.seek(start + at)
        begin = _inflate(file, size)
        # A delta begins with the sizes of its base and of the object that it makes.
        made = _number(begin, _number(begin, 0, 7)[1], 7)[0] if kind in {_OFS_DELTA, _REF_DELTA} else size
        total += max(size, made)
        if total > most:
            raise _too_large()
    return Measured(number, total)


def _number(data: bytes, at: int, bits: int) -> tuple[int, int]:
    """Read a number whose bytes each say by the highest bit whether another follows; returns it, and where it ends.

    Of its first byte only some bits belong to it.
    """
    value, shift = 0, 0
    while True:
        if at >= len(data):
            raise _damaged()
        value |= (data[at] & ((1 << bits) - 1)) << shift
        at += 1
        if not data[at - 1] & 0x80:
            return value, at
        shift, bits = shift + bits, 7


def _inflate(file: BinaryIO, size: int) -> bytes:
    """Read over the data of an object, and return their beginning; they must have the given size."""
    inflater, begin, seen = zlib.decompressobj(), b"", 0
    piece = min(_PIECE, size + _LONGEST_HEADER)  # what follows it is read twice
    try:
        while not inflater.eof:
            data = inflater.unconsumed_tail or file.read(piece)
            out = inflater.decompress(data, _PIECE)
            seen += len(out)
            if not (data or out) or seen > size:
                raise _damaged()
            begin += out[: _LONGEST_HEADER - len(begin)]
    except zlib.error:
        raise _damaged() from None
    file.seek(-len(inflater.unused_data), os.SEEK_CUR)
    return begin


def _too_large() -> Refused:
    return Refused(TOO_LARGE, "it unfolds to more than it may")


def _damaged() -> Refused:
    return Refused(REFUSED, "it is no pack that git would make")


# Unpacking


def _check_room(objects: str, size: int, free: int) -> None:
    found = os.statvfs(objects)
    there = found.f_bavail * found.f_frsize
    if free and there - size < free:
        raise Refused(
            NO_ROOM, f"it unfolds to {size >> 20} MiB, and of the {there >> 20} MiB that are free at {objects} "
            f"`disk.free` of the configuration asks for {free >> 20} MiB: make room",
        )  # fmt: skip


def _unpack(file: BinaryIO, packed: int, found: Measured, quarantine: str, most: int) -> None:
    """Have git check the pack and write its objects into the quarantine."""
    is_small = found.objects < UNPACK_LIMIT and packed < _SMALL
    line = ("unpack-objects", "-q") if is_small else ("index-pack", "--stdin", "--fix-thin")
    # A pack grows by objects of the user's that its deltas begin at, too.
    growth = most - found.size + _SMALL
    seconds = _SECONDS + found.size // _BYTES_A_SECOND
    limits = {resource.RLIMIT_FSIZE: packed + growth, resource.RLIMIT_CPU: seconds}
    _git(quarantine, *line, "--strict", given=file, limits=limits)


def _git(quarantine: str, *arguments: str, given: BinaryIO | None = None, limits: Mapping[int, int] | None = None) -> None:
    """Run git with a directory for new objects; raises `Refused`."""
    objects = os.path.dirname(quarantine).replace("\\", "\\\\").replace('"', '\\"')
    environ = {
        **os.environ, "GIT_OBJECT_DIRECTORY": quarantine, "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{objects}"',
    }  # fmt: skip
    stdin = given if given is not None else subprocess.DEVNULL
    with subprocess.Popen(
        ("git", *arguments), env=environ, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as git:
        for limit, most in (limits or {}).items():
            with suppress(ProcessLookupError):  # it has ended
                soft, hard = resource.prlimit(git.pid, limit)
                resource.prlimit(git.pid, limit, (most if soft == resource.RLIM_INFINITY else min(most, soft), hard))
        said = git.communicate()[1]
    if not git.returncode:
        return
    words = said.decode("utf-8", "replace")
    if git.returncode == -signal.SIGXFSZ or "File too large" in words:
        raise _too_large()
    if git.returncode == -signal.SIGXCPU:
        raise Refused(TOO_SLOW, "git takes too much processor time to unfold it")
    raise Refused(REFUSED, words.strip() or f"git {arguments[0]} ended with {git.returncode}")


# Moving


def _move(quarantine: str, objects: str) -> None:
    """Move the objects into the repository's directory of objects; a file that is there already is the same, and stays.

    An agent that works in the repository may write in both directories. So only what git makes is moved, and nothing is
    opened through a link: `objects/zz`, a link to the hooks, would take a file there.
    """
    with _opened(quarantine) as source, _opened(objects) as target:
        for name in sorted(os.listdir(source)):
            form = _PACKED if name == "pack" else _OBJECT
            if name != "pack" and not _FIRST.fullmatch(name):
                continue
            try:
                _move_directory(name, source, target, form)
            except FileNotFoundError:  # `git gc` of the user's removes directories that are empty at that moment
                _move_directory(name, source, target, form)


def _move_directory(name: str, source: int, target: int, form: re.Pattern[str]) -> None:
    """Move those files of a directory whose names have a form."""
    with _opened(name, source) as given:
        is_new = True
        try:
            os.mkdir(name, dir_fd=target)
        except FileExistsError:
            is_new = False
        with _opened(name, target) as place:
            if is_new:
                os.fchmod(place, os.fstat(given).st_mode & 0o7777)  # as git has made it, by `core.sharedRepository`
            files = (file for file in os.listdir(given) if form.fullmatch(file))
            for file in sorted(files, key=lambda file: _LAST.get(os.path.splitext(file)[1], 0)):
                _put(file, given, place)


def _put(file: str, source: int, target: int) -> None:
    if not stat.S_ISREG(os.stat(file, dir_fd=source, follow_symlinks=False).st_mode):
        return
    try:
        os.link(file, file, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:  # it is there; or the file system has no links
        try:
            os.stat(file, dir_fd=target, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(file, file, src_dir_fd=source, dst_dir_fd=target)


@contextmanager
def _opened(path: str, above: int | None = None) -> Iterator[int]:
    """Open a directory, no link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
