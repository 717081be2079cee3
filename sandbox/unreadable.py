"""Lists the files of some directories that not every user may read, so that a sandbox can cover them; a program of its own.

A sandbox runs as the daemon's user. Files of the system that only this user or one of its groups may read are hidden from
agents: private keys below `/etc/ssl`, a package's files with mode 0600 below `/usr`. So each file that others can't read
(each directory that they can't list and enter) is listed here. The mode's last three bits tell, also where a file has a
POSIX access control list: its entry for others is those bits, and its entries for users and groups don't count here.

Looking at a hundred thousand files takes seconds, so the list is noted in a file of the user's own. As long as every
directory's times are those of the note, its list is the answer: a stat(2) for each directory, together a tenth of a second.
Where some differ, only those are looked into. A file that is only given another mode changes no directory, so everything is
looked at again when the note is older than is asked for. The note's own time tells when it was last found to be true.

Usage: `unreadable.py NOTE BELIEVED KEY ROOT…` prints the paths, each followed by a null byte. NOTE is the file, `-` for
none. A look at every file counts for BELIEVED seconds. The note gets the KEY, by which a daemon recognises an answer to its
own question. Of several at once one looks, the others use its note. Exit status 0, or 3 when there is more to look at than
it looks at: then the list isn't whole. It runs beside the daemon.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import sys
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Times = tuple[int, ...]
    Known = dict[str, tuple[Times, dict[str, Times], list[str]]]

TOO_MUCH = 3
"""The exit status when a bound was reached: the list isn't whole then."""
MOST_ENTRIES = 5_000_000
"""A large installation has a million files below `/usr`."""
MOST_SECONDS = 300.0
"""A million files on a slow disk take some 20 s, several times that where others use the disk too."""


UNSURE: Times = ()
"""Times that no file has."""


class TooMuch(Exception):
    """There is more than is looked at."""


class Note:
    """The note of an earlier walk: a line of JSON with the answer, and one with the directories it rests on.

    Args:
        head: the first line.
        rest: the second; empty if only the answer is wanted.
        confirmed: when it was last found to be true, in seconds since the epoch.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: it is no note.
    """

    def __init__(self, head: bytes, rest: bytes, confirmed: float) -> None:
        answer = json.loads(head)
        self.begun = float(answer["begun"])
        """When its oldest part was found."""
        self.key: str = answer["key"]
        self.closed: dict[str, Times] = {os.fspath(path): tuple(times) for path, times in answer["closed"].items()}
        """The paths that others can't read, with their times."""
        self.confirmed = confirmed
        basis = json.loads(rest or b'{"directories": [], "times": []}')
        self._times: dict[str, Times] = dict(
            zip(map(os.fspath, basis["directories"]), map(tuple, basis["times"]), strict=True)
        )

    def is_true(self) -> bool:
        """Say whether each directory, and each path that others couldn't read, has the times that are noted."""
        try:
            return all(_times(os.stat(path)) == times for path, times in self._times.items()) and all(
                _times(os.lstat(path)) == times for path, times in self.closed.items()
            )
        except OSError:
            return False

    def known(self) -> Known:
        """Return the directories that a walk needn't look into again."""
        found: Known = {path: (times, {}, []) for path, times in self._times.items()}
        for path in self._times:
            parent, _, name = path.rpartition("/")
            if parent in found:
                found[parent][2].append(name)
        for path, times in self.closed.items():
            parent, _, name = path.rpartition("/")
            if parent in found and path not in found:  # a directory's own mode is looked at on the way
                found[parent][1][name] = times
        return found


class Walk:
    """A walk through some directories.

    Args:
        known: the result of an earlier walk: for each directory its identity and times, the names in it that others can't
            read with theirs, and the names of its other directories.
    """

    def __init__(self, known: Known) -> None:
        self._known = known
        self._left = MOST_ENTRIES
        self._until = time.monotonic() + MOST_SECONDS
        self.closed: dict[str, Times] = {}
        """The paths that others can't read, with their times; paths inside a listed directory aren't listed."""
        self.found: dict[str, Times] = {}
        """The times of each directory and each root; `UNSURE` where nothing may be concluded from them."""

    def through(self, roots: Sequence[str]) -> None:
        """List the paths that others can't read in some directories and among some files.

        Args:
            roots: absolute paths; each may be a link; links inside them are never followed.

        Raises:
            TooMuch: there are more entries than `MOST_ENTRIES`, or they take longer than `MOST_SECONDS`.
        """
        waiting = [root for root in roots if self._enters(root)]
        while waiting:
            directory = waiting.pop()
            try:
                now = os.stat(directory)
            except FileNotFoundError:
                self.found[directory] = UNSURE
                continue
            times = _times(now)
            # A file that changed a moment ago may change again within the clock's tick, and its times wouldn't tell.
            self.found[directory] = times if now.st_mtime < time.time() - 1 else UNSURE
            if not is_for_all(now.st_mode):  # its own mode changed, which its parent's times don't tell
                self.closed[directory] = times
                continue
            closed, inner = self._remember(directory, times) or self._look(directory)
            self._left -= 1
            if self._left < 0 or time.monotonic() > self._until:
                raise TooMuch
            self.closed.update({f"{directory}/{name}": at for name, at in closed.items()})
            waiting += [f"{directory}/{name}" for name in inner]

    def _enters(self, root: str) -> bool:
        """Say whether a root is a directory to look into."""
        self.found[root] = UNSURE
        try:
            now = os.stat(root)
        except FileNotFoundError:
            return False
        if stat.S_ISDIR(now.st_mode):
            return True  # its own mode is judged on the way
        if not is_for_all(now.st_mode):
            self.closed[root] = _times(os.lstat(root))
        if now.st_ctime < time.time() - 1:
            self.found[root] = _times(now)
        return False

    def _remember(self, directory: str, times: Times) -> tuple[dict[str, Times], list[str]] | None:
        """Return the result of `_look` from the earlier walk; None where something has changed since."""
        before = self._known.get(directory)
        if before is None or before[0] != times:
            return None
        try:
            is_same = all(_times(os.lstat(f"{directory}/{name}")) == at for name, at in before[1].items())
        except OSError:
            return None
        return before[1:] if is_same else None

    def _look(self, directory: str) -> tuple[dict[str, Times], list[str]]:
        """Return the names in a directory that others can't read, and the directories in it that they can."""
        closed: dict[str, Times] = {}
        inner: list[str] = []
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    self._left -= 1
                    if entry.is_symlink():
                        continue
                    try:
                        found = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    if not is_for_all(found.st_mode):
                        closed[entry.name] = _times(found)
                    elif stat.S_ISDIR(found.st_mode):
                        inner.append(entry.name)
        except OSError:  # it went away, or it isn't for us either
            return {}, []
        return closed, inner


def _times(found: os.stat_result) -> Times:
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def is_for_all(mode: int) -> bool:
    """Say whether others can read a file, or list and enter a directory."""
    needed = stat.S_IROTH | stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
    return mode & needed == needed


def young_answer(path: str, key: str, roots: Sequence[str], young: float) -> list[str] | None:
    """Return the paths that others couldn't read a moment ago, None where none are noted.

    Args:
        path: the note.
        key: the key that it must have.
        roots: the directories that it must be about.
        young: how old it may be, in seconds.
    """
    note = read_note(path, whole=False) if path != "-" else None
    if note is None or note.key != _full_key(key, roots) or not 0 <= time.time() - note.confirmed < young:
        return None
    return list(note.closed)


def _full_key(key: str, roots: Sequence[str]) -> str:
    return " ".join([key, *roots])


def read_note(path: str, *, whole: bool = True) -> Note | None:
    """Return the note of an earlier walk; None if no file there is certainly this user's own note.

    Args:
        path: the note.
        whole: whether more than the answer is wanted.
    """
    descriptor = -1
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid() or not stat.S_ISREG(found.st_mode) or found.st_mode & 0o022:
            return None
        with open(descriptor, "rb", closefd=False) as file:
            return Note(file.readline(), file.readline() if whole else b"", found.st_mtime)
    except (OSError, AttributeError, KeyError, TypeError, ValueError):
        return None
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def write_note(path: str, walk: Walk, begun: float, key: str) -> None:
    """Note the result of a walk for the next one; where that fails, the next one looks at everything."""
    staging = f"{path}.{os.getpid()}"
    answer = {"begun": begun, "key": key, "closed": walk.closed}
    basis = {"directories": list(walk.found), "times": list(walk.found.values())}
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(f"{json.dumps(answer)}\n{json.dumps(basis)}\n")
        os.replace(staging, path)
    except OSError:
        return


def _take_turns(path: str) -> None:
    """Wait until no other walk is under way; the lock ends with this process."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        if os.fstat(lock).st_uid == os.geteuid():  # another user's could be held for ever
            fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError:
        return


def main(line: Sequence[str]) -> int:
    """Print the paths that others can't read; returns the exit status."""
    path, believed, key, roots = line[0], float(line[1]), _full_key(line[2], line[3:]), line[3:]
    note, now = None, time.time()
    if path != "-":
        _take_turns(f"{path}.lock")
        note = read_note(path)
        if note is not None and not 0 <= now - note.begun < believed:
            note = None
    if note is not None and note.key == key and note.is_true():
        _confirm(path)
        _print(note.closed)
        return 0
    walk = Walk(note.known() if note is not None else {})
    try:
        walk.through(roots)
    except TooMuch:
        return TOO_MUCH
    _print(walk.closed)
    if path != "-":
        write_note(path, walk, note.begun if note is not None else now, key)
    return 0


def _confirm(path: str) -> None:
    """Note that the note is true now."""
    with suppress(OSError):
        os.utime(path, follow_symlinks=False)


def _print(paths: Iterable[str]) -> None:
    sys.stdout.buffer.write(b"".join(os.fsencode(path) + b"\0" for path in paths))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
