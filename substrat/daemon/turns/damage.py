"""Examines a turn's files before they are used, and sets aside those that the daemon didn't write as they are."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from substrat.daemon.kernel import process, sandbox_process
from substrat.daemon.network import transparent
from substrat.daemon.state.archive import SUFFIX
from substrat.daemon.state.damaged_files import set_aside
from substrat.daemon.state.own_files import is_kind
from substrat.daemon.turns.without_records import kill_left
from substrat.daemon.workspaces import protected_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from substrat.core.agents.records import Turn
    from substrat.daemon.state.layout import AgentDir, Layout, TurnDir


class Damage(NamedTuple):
    """The damage of one of a turn's files.

    Args:
        sentence: says which.
        matters: whether it keeps people from knowing how the turn ended.
        blind: whether the turn's output can't be followed any more.
    """

    sentence: str
    matters: bool = True
    blind: bool = False


def examine(turn: Turn, agent_dir: AgentDir, layout: Layout, now: float, *, was_recorded: bool = True) -> list[Damage]:
    """Examine a turn's files before they are used, and set aside those that can't be.

    Afterwards the turn's directory is there if the turn has a process, and its files can be opened.

    Args:
        turn: the turn; one without a process needn't have files yet.
        agent_dir: its agent's directories.
        layout: the daemon's directories.
        now: seconds since the epoch.
        was_recorded: whether an earlier daemon began the turn; if none did, it has no directory yet.
    """
    files = agent_dir.turn(turn.number)
    if (another := _another_turns(turn, files, layout, now, was_recorded=was_recorded)) is not None:
        with suppress(OSError):
            os.makedirs(files.root, mode=0o700, exist_ok=True)
        return [another]
    directories = (agent_dir.root, os.path.dirname(files.root), files.root)
    found = [
        Damage(_report(path, "isn't a directory", layout, now), blind=True)
        for path in directories
        if os.path.lexists(path) and not is_kind(path, stat.S_ISDIR)
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
            sentence = f"{path} {complaint}" if gone else _report(path, complaint, layout, now)
            matters = path in {files.stdout, files.stderr, files.status}
            found.append(Damage(sentence, matters=matters, blind=path == files.stdout))
    return found


def _another_turns(turn: Turn, files: TurnDir, layout: Layout, now: float, *, was_recorded: bool) -> Damage | None:
    """Set aside a directory that was made for another turn of the same number, whose records are lost."""
    if not is_kind(files.root, stat.S_ISDIR) or files.is_of(turn.id, unless_told=was_recorded):
        return None
    kill_left(files)
    started = turn.process is not None
    sentence = _report(files.root, "was made for another turn, which isn't in the records", layout, now)
    return Damage(sentence, matters=started, blind=started)


_GONE = "is gone"
_STRANGE = "isn't what Substrat wrote"


def _own_complaints(turn: Turn, files: TurnDir) -> Iterator[tuple[str, str]]:
    """Look at the notes of the daemon that started a turn for the one that takes it over."""
    sound: tuple[tuple[str, Callable[[], bool]], ...] = (
        (files.protected, lambda: protected_paths.decode(files.read_protected()) is not None),
        (files.names, lambda: transparent.read_names(files.names) is not None),
        (files.network_mode, lambda: files.read_network_mode() is not None),
        (files.id, lambda: files.read_id() == turn.id),
    )
    for path, is_sound in sound:
        if not os.path.lexists(path):
            continue
        if not is_kind(path, stat.S_ISREG):
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
        elif not is_kind(path, stat.S_ISREG):
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


def _report(path: str, complaint: str, layout: Layout, now: float) -> str:
    kept = set_aside(path, layout, now)
    return f"{path} {complaint}; " + (f"it is kept as {kept}" if kept else "it can't be moved out of the way")


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
