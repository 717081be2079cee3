"""Files that aren't what the daemon wrote: reported and moved into `<state>/damaged`, so that everything else goes on.

Nothing is repaired and nothing deleted. A person, or a restored backup, may still make sense of what is there.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from substrat.core import stream
from substrat.core.ndjson import Splitter
from substrat.daemon import process
from substrat.daemon.archive import SUFFIX, ArchiveDamaged, Archives

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from substrat.core.records import Turn
    from substrat.daemon.places import AgentPlace, Places, TurnPlace

_FIRST_LINES = 64 * 1024


class FoundAgent(NamedTuple):
    """An agent that has files but no records, as far as its files tell.

    Args:
        id: its id.
        name: its name.
        workspace: where it worked.
        session: its chat.
    """

    id: str
    name: str | None
    workspace: str | None
    session: str | None


def set_aside(path: str, places: Places, now: float) -> str | None:
    """Move a file or directory into `<state>/damaged`.

    Args:
        path: what is moved.
        places: the daemon's directories.
        now: seconds since the epoch.

    Returns:
        Where it is now, or None when it can't be moved.
    """
    what = os.path.relpath(path, places.state).replace(os.sep, "-")
    target = os.path.join(places.damaged, f"{_stamp(now)}-{what}-{secrets.token_hex(2)}")
    try:
        os.makedirs(places.damaged, mode=0o700, exist_ok=True)
        os.rename(path, target)
    except OSError:
        return None
    return target


def set_aside_database(path: str, places: Places, now: float) -> str:
    """Move a database and the files that SQLite has made beside it into a directory in `<state>/damaged`.

    Returns:
        The directory.

    Raises:
        OSError: they can't be moved.
    """
    directory = os.path.join(places.damaged, f"{_stamp(now)}-{secrets.token_hex(2)}")
    os.makedirs(directory, mode=0o700)
    # The logs first: a log without its database is only left over, a database without its log has lost commits.
    for name in (path + "-shm", path + "-wal", path):
        with suppress(FileNotFoundError):
            os.rename(name, os.path.join(directory, os.path.basename(name)))
    return directory


def _stamp(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")


# A turn's files


class Damage(NamedTuple):
    """What is wrong with one of a turn's files.

    Args:
        sentence: what it is.
        matters: whether it keeps people from knowing what became of the turn.
        blind: whether the turn's output can't be followed any more.
    """

    sentence: str
    matters: bool = True
    blind: bool = False


def examine(turn: Turn, place: AgentPlace, places: Places, now: float) -> list[Damage]:
    """Look at a turn's files before they are used, and set aside what can't be.

    Afterwards the turn's directory is there if the turn has a process, and what is in it can be opened.

    Args:
        turn: the turn; one without a process needn't have files yet.
        place: its agent's directories.
        places: the daemon's directories.
        now: seconds since the epoch.
    """
    files = place.turn(turn.number)
    directories = (place.root, os.path.dirname(files.root), files.root)
    found = [
        Damage(_report(path, "isn't a directory", places, now), blind=True)
        for path in directories
        if os.path.lexists(path) and not _is(path, stat.S_ISDIR)
    ]
    started = turn.process is not None
    if started and not os.path.lexists(files.root):
        found = found or [Damage(f"{files.root} is gone", blind=True)]
        with suppress(OSError):
            os.makedirs(files.root, mode=0o700, exist_ok=True)
        return found
    for path, complaint in list(_complaints(turn, files)) if os.path.lexists(files.root) else ():
        gone = complaint == _GONE
        if started or not gone:
            sentence = f"{path} {complaint}" if gone else _report(path, complaint, places, now)
            found.append(Damage(sentence, matters=path != files.prompt, blind=path == files.stdout))
    return found


_GONE = "is gone"


def _complaints(turn: Turn, files: TurnPlace) -> Iterator[tuple[str, str]]:
    for path in (files.prompt, files.stdout, files.stderr, files.status):
        if not os.path.lexists(path):
            if path == files.status or (path == files.stdout and turn.offset and not os.path.lexists(path + SUFFIX)):
                yield path, _GONE
        elif not _is(path, stat.S_ISREG):
            yield path, "isn't a file"
        elif (problem := _obstacle(path)) is not None:
            yield path, f"can't be read ({problem})"
        elif path == files.status and not _makes_sense(files.read_status(), turn):
            yield path, "isn't what bubblewrap writes"


def _makes_sense(status: bytes, turn: Turn) -> bool:
    """Say whether a sandbox's status is to be believed, or doesn't matter yet; the last line of a killed one may be cut."""
    _, code = process.read_status(status)
    if code is not None or not status:
        return True
    if turn.process is not None and process.is_running(turn.process):
        return True  # it will write its exit code there yet
    *complete, rest = status.split(b"\n")
    return all(process.read_status(line) != (None, None) or line.startswith(b"{") for line in complete) and (
        not rest or rest.startswith(b"{")
    )


def _report(path: str, complaint: str, places: Places, now: float) -> str:
    kept = set_aside(path, places, now)
    return f"{path} {complaint}; " + (f"it is kept as {kept}" if kept else "it can't be moved out of the way")


def _is(path: str, kind: Callable[[int], bool]) -> bool:
    try:
        return kind(os.lstat(path).st_mode)
    except OSError:
        return False


def _obstacle(path: str) -> str | None:
    """Say why a file can't be read; a truncated one can."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.pread(descriptor, 1, 0)
        finally:
            os.close(descriptor)
    except OSError as problem:
        return problem.strerror or str(problem)
    return None


# Agents without records


def agents_without_records(places: Places) -> list[FoundAgent]:
    """Find out from their files which agents there were, for a state whose database was lost."""
    try:
        names = sorted(os.listdir(places.agents))
    except OSError:
        return []
    return [_identify(name, places.agent(name)) for name in names if _is(places.agent(name).root, stat.S_ISDIR)]


def _identify(agent_id: str, place: AgentPlace) -> FoundAgent:
    name = re.match(r"127\.0\.0\.1 localhost (\S+)", _beginning(os.path.join(place.etc, "hosts")))
    where = re.search(r'\[includeIf "gitdir:(.*)/\.git"\]', _beginning(place.gitconfig))
    workspace = where[1].replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\") if where else None
    return FoundAgent(agent_id, name[1] if name else None, workspace, _session(place))


def _session(place: AgentPlace) -> str | None:
    """Return the chat that the newest turn which tells one was in."""
    try:
        numbers = sorted(int(name) for name in os.listdir(os.path.dirname(place.turn(1).root)) if name.isdecimal())
    except OSError:
        return None
    for number in reversed(numbers):
        stdout = place.turn(number).stdout
        data = _beginning(stdout).encode("utf-8", "surrogateescape")
        if not data:
            with suppress(OSError, ArchiveDamaged):
                data = Archives().read(stdout + SUFFIX, 0, _FIRST_LINES)
        for line in Splitter().feed(data):
            if (session := stream.session_of(stream.decode(line))) is not None:
                return session
    return None


def _beginning(path: str) -> str:
    """Return a file's first bytes as text; nothing when it isn't there."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return file.read(_FIRST_LINES).decode("utf-8", "surrogateescape")
    except OSError:
        return ""
