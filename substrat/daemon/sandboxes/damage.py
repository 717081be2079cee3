"""Files that aren't what the daemon wrote: reported and moved into `<state>/damaged`, so that everything else goes on.

Nothing is repaired and nothing deleted. A person, or a restored backup, may still make sense of what is there.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import stat
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from sandbox.bwrap import LOCK_FD
from substrat.core.programs.cursor import stream
from substrat.core.programs.ndjson import Splitter
from substrat.daemon.kernel import nofollow, process, sandbox_process
from substrat.daemon.network import transparent
from substrat.daemon.sandboxes import copies, protected_paths
from substrat.daemon.state.archive import SUFFIX, ArchiveDamaged, Archives
from substrat.errors import StateUnusable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from substrat.core.agents.records import Turn
    from substrat.daemon.state.layout import AgentDir, Layout, TurnDir

_FIRST_LINES = 64 * 1024
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")
_DYING_SECONDS, _LOOK_AGAIN = 2.0, 0.005


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

    @property
    def command(self) -> str | None:
        """The command that goes on with its chat; None when its files don't tell which chat that is."""
        if self.session is None:
            return None
        words = ["substratctl", "spawn", *([self.name] if self.name else []), "-w", self.workspace or "DIR"]
        return shlex.join([*words, "--adopt", self.session])


def set_aside(path: str, places: Layout, now: float) -> str | None:
    """Move a file or directory into `<state>/damaged`.

    Args:
        path: what is moved.
        places: the daemon's directories.
        now: seconds since the epoch.

    Returns:
        Where it is now, or None when it can't be moved.
    """
    return move_aside(path, target_of(path, places, now), places)


def target_of(path: str, places: Layout, now: float) -> str:
    """Return a name in `<state>/damaged` that nothing has yet; arguments as for `set_aside`."""
    what = os.path.relpath(path, places.state).replace(os.sep, "-")
    return os.path.join(places.damaged, f"{_stamp(now)}-{what}-{secrets.token_hex(4)}")


def move_aside(path: str, target: str, places: Layout) -> str | None:
    """Move a file or directory to what `target_of` returned; returns that, or None when it can't be moved."""
    try:
        os.makedirs(places.damaged, mode=0o700, exist_ok=True)
        os.rename(path, target)
    except OSError:
        return None
    return target


def set_aside_database(path: str, places: Layout, now: float) -> str:
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


def keep_log(path: str, places: Layout, now: float) -> str | None:
    """Copy a write-ahead log, part of which can't be read, before SQLite writes over it.

    Args:
        path: the database.
        places: the daemon's directories.
        now: seconds since the epoch.

    Returns:
        Where the copy is, or None when there is no log, or no room.
    """
    log = os.path.realpath(path) + "-wal"
    target = os.path.join(places.damaged, f"{_stamp(now)}-{os.path.basename(log)}-{secrets.token_hex(2)}")
    try:
        if not os.path.getsize(log):
            return None
        os.makedirs(places.damaged, mode=0o700, exist_ok=True)
        shutil.copyfile(log, target)
        os.chmod(target, 0o600)
    except OSError:
        return None
    return target


def _stamp(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")


# The daemon's own files and directories

_DIRECTORIES = ("agents", "trash", "damaged", "visits")
_FILES = ("lock", "substrat.db-wal", "substrat.db-shm", "substrat.db-journal")
_KINDS = (
    (stat.S_ISDIR, "a directory"), (stat.S_ISREG, "a file"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a block device"), (stat.S_ISCHR, "a character device"),
)  # fmt: skip


def check_own_files(places: Layout) -> None:
    """Refuse to start where one of the daemon's own names is something else, such as a FIFO in the place of the lock.

    Opening or listing it later would wait for ever, or fail halfway. A link to the right kind of thing is good, except
    where the daemon deletes the contents: `trash` and `visits`. The database itself has a remedy of its own.

    Args:
        places: the daemon's directories.

    Raises:
        StateUnusable: one is of the wrong kind or can't be used.
    """
    for name in _DIRECTORIES:
        path = os.path.join(places.state, name)
        _check_kind(
            path, stat.S_ISDIR, "a directory", os.R_OK | os.W_OK | os.X_OK, may_be_link=name in {"agents", "damaged"}
        )
    for name in _FILES:
        path = os.path.join(places.state, name)
        _check_kind(path, stat.S_ISREG, "a file", os.R_OK | os.W_OK)
    _check_kind(os.path.join(places.runtime, "lock"), stat.S_ISREG, "a file", os.R_OK | os.W_OK)
    _check_kind(os.path.join(places.runtime, "agents"), stat.S_ISDIR, "a directory", os.R_OK | os.W_OK | os.X_OK)
    sock = os.path.join(places.runtime, "daemon.sock")
    if _is(sock, stat.S_ISDIR):
        raise StateUnusable(f"{sock} is a directory, where the operator's socket belongs: move it away")


def _check_kind(path: str, kind: Callable[[int], bool], wanted: str, access: int, *, may_be_link: bool = True) -> None:
    if not os.path.lexists(path):
        return
    if os.path.islink(path) and not may_be_link:
        raise StateUnusable(f"{path} is a link, where Substrat deletes things in {wanted} of its own: move it away")
    try:
        found = os.stat(path).st_mode
    except OSError as problem:
        reason = "is a link to nothing" if os.path.islink(path) else f"can't be looked at ({problem.strerror})"
        raise StateUnusable(f"{path} {reason}, where Substrat needs {wanted}: move it away") from None
    if not kind(found):
        name = next((name for is_kind, name in _KINDS if is_kind(found)), "something else")
        raise StateUnusable(f"{path} is {name}, where Substrat needs {wanted}: move it away")
    if not os.access(path, access):
        raise StateUnusable(f"{path} can't be read and written by this user: change its owner or its mode")


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


def examine(turn: Turn, place: AgentDir, places: Layout, now: float, *, was_recorded: bool = True) -> list[Damage]:
    """Look at a turn's files before they are used, and set aside what can't be.

    Afterwards the turn's directory is there if the turn has a process, and what is in it can be opened.

    Args:
        turn: the turn; one without a process needn't have files yet.
        place: its agent's directories.
        places: the daemon's directories.
        now: seconds since the epoch.
        was_recorded: whether an earlier daemon began the turn; if none did, nobody has made a directory for it yet.
    """
    files = place.turn(turn.number)
    if (another := _another_turns(turn, files, places, now, was_recorded=was_recorded)) is not None:
        with suppress(OSError):
            os.makedirs(files.root, mode=0o700, exist_ok=True)
        return [another]
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
            matters = path in {files.stdout, files.stderr, files.status}
            found.append(Damage(sentence, matters=matters, blind=path == files.stdout))
            if path == files.held:  # it says by being there that the sandbox is to be let go
                with suppress(OSError):
                    os.close(nofollow.open_file(path, os.O_WRONLY | os.O_CREAT))
    return found


def _another_turns(turn: Turn, files: TurnDir, places: Layout, now: float, *, was_recorded: bool) -> Damage | None:
    """Set aside a directory that was made for another turn of the same number, whose records are lost."""
    if not _is(files.root, stat.S_ISDIR) or files.is_of(turn.id, unless_told=was_recorded):
        return None
    kill_left(files)
    started = turn.process is not None
    sentence = _report(files.root, "was made for another turn, which isn't in the records", places, now)
    return Damage(sentence, matters=started, blind=started)


_GONE = "is gone"
_STRANGE = "isn't what Substrat wrote"


def _own_complaints(turn: Turn, files: TurnDir) -> Iterator[tuple[str, str]]:
    """Look at the notes of the daemon that started a turn for the one that takes it over."""
    sound: tuple[tuple[str, Callable[[], bool]], ...] = (
        (files.guard, lambda: protected_paths.decode(files.read_guard()) is not None),
        (files.kept, lambda: copies.is_sound(files.read_kept() or b"")),
        (files.names, lambda: transparent.read_names(files.names) is not None),
        (files.form, lambda: files.read_form() is not None),
        (files.id, lambda: files.read_id() == turn.id),
        (files.held, lambda: True),
    )
    for path, is_sound in sound:
        if not os.path.lexists(path):
            continue
        if not _is(path, stat.S_ISREG):
            yield path, "isn't a file"
        elif (problem := _obstacle(path)) is not None:
            yield path, f"can't be read ({problem})"
        elif turn.process is not None and not is_sound():  # a launch that was cut short may have left half of it
            yield path, _STRANGE


def _complaints(turn: Turn, files: TurnDir) -> Iterator[tuple[str, str]]:
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
    yield from _own_complaints(turn, files)


def _makes_sense(status: bytes, turn: Turn) -> bool:
    """Say whether a sandbox's status is to be believed, or doesn't matter yet; the last line of a killed one may be cut."""
    _, code = sandbox_process.read_status(status)
    if code is not None or not status:
        return True
    if turn.process is not None and process.is_running(turn.process):
        return True  # it will write its exit code there yet
    *complete, rest = status.split(b"\n")
    return all(sandbox_process.read_status(line) != (None, None) or line.startswith(b"{") for line in complete) and (
        not rest or rest.startswith(b"{")
    )


def _report(path: str, complaint: str, places: Layout, now: float) -> str:
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


# Turns and agents without records


class LostTurn(NamedTuple):
    """A turn that has files and no record.

    Args:
        number: its number, which another turn of the agent may have by now.
        files: its directory.
    """

    number: int
    files: TurnDir


def turns_without_records(place: AgentDir, newest: Turn | None) -> list[LostTurn]:
    """Find an agent's turns that are newer than its newest recorded one, or are in that one's place.

    A turn is recorded before its directory is made, so these were recorded once. Older ones aren't looked at: this is done
    for every agent at every start.

    Args:
        place: the agent's directories.
        newest: its newest recorded turn, if it has one.
    """
    last = newest.number if newest is not None else 0
    found = [LostTurn(number, place.turn(number)) for number in _turn_numbers(place) if number > last]
    if newest is not None and not (files := place.turn(last)).is_of(newest.id, unless_told=True):
        found.insert(0, LostTurn(last, files))
    return found


def tell_lost(lost: LostTurn, target: str, *, was_running: bool) -> str:
    """Return what to say about a turn without a record, and what a person can do.

    Args:
        lost: the turn.
        target: where its files are moved to.
        was_running: whether it was killed just now.
    """
    killed = "; it was still running and was killed" if was_running else ""
    return (
        f"there are files of a turn {lost.number} that isn't in the records, because the last changes to these were lost"
        f"{killed}; look in the workspace for what it has done, and send its prompt again if that is still wanted; the "
        f"prompt and the output are in {target}"
    )


def kill_left(files: TurnDir) -> bool:
    """Kill what still runs in a turn's directory, and wait until it is gone, for a moment at most.

    Returns:
        Whether anything ran.

    Raises:
        OSError: there are no descriptors left.
    """
    if not files.is_held():
        return False
    started = sandbox_process.find_unrecorded(files.read_status(), files.stdout)
    if started is not None:
        sandbox_process.kill_recorded(started)  # one that has been stopped too, or has made no inner process yet
    sandbox_process.kill_holders(files.lock, LOCK_FD)
    until = time.monotonic() + _DYING_SECONDS
    while files.is_held() and time.monotonic() < until:
        time.sleep(_LOOK_AGAIN)
    return True


def kill_all_left(place: AgentDir) -> bool:
    """Kill what still runs of an agent without records; says whether anything did."""
    killed = [number for number in _turn_numbers(place) if kill_left(place.turn(number))]
    return bool(killed)


def _turn_numbers(place: AgentDir) -> list[int]:
    try:
        names = os.listdir(os.path.dirname(place.turn(1).root))
    except OSError:
        return []
    return sorted(int(name) for name in names if _NUMBER.fullmatch(name))


def agents_without_records(places: Layout, known: Collection[str] = ()) -> list[FoundAgent]:
    """Find out from their files which agents there were whose records are gone.

    Args:
        places: the daemon's directories.
        known: the ids of agents that need none, whose directories aren't opened.
    """
    try:
        names = sorted(set(os.listdir(places.agents)).difference(known))
    except OSError:
        return []
    return [_identify(name, places.agent(name)) for name in names if _is(places.agent(name).root, stat.S_ISDIR)]


def has_agents(places: Layout) -> bool:
    """Say whether there are directories of agents, with or without records."""
    try:
        with os.scandir(places.agents) as entries:
            return any(entry.is_dir(follow_symlinks=False) for entry in entries)
    except OSError:
        return False


def _identify(agent_id: str, place: AgentDir) -> FoundAgent:
    name = re.match(r"127\.0\.0\.1 localhost (\S+)", _beginning(os.path.join(place.etc, "hosts")))
    where = re.search(r'\[includeIf "gitdir:(.*)/\.git"\]', _beginning(place.gitconfig))
    workspace = where[1].replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\") if where else None
    return FoundAgent(agent_id, name[1] if name else None, workspace, _session(place))


def _session(place: AgentDir) -> str | None:
    """Return the chat that the newest turn which tells one was in."""
    for number in reversed(_turn_numbers(place)):
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
        with open(path, "rb", opener=nofollow.open_file) as file:
            return file.read(_FIRST_LINES).decode("utf-8", "surrogateescape")
    except OSError:
        return ""
