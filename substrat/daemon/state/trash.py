"""The trash: a directory disappears into it at once by a rename, and a sweep deletes its contents later.

An agent may have made trees deeper than Python recurses, or taken rights away from directories: both are deleted too.
"""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = structlog.get_logger("substrat.trash")


class Trash:
    """The directory `<state>/trash`.

    Args:
        directory: where it is; it is made when it is needed.
        sweep_soon: asks for a sweep, which empties it. Not from a worker thread: it wakes a task.
    """

    def __init__(self, directory: str, sweep_soon: Callable[[], None]) -> None:
        self._directory = directory
        self.sweep_soon = sweep_soon

    def discard(self, path: str) -> None:
        """Let a directory disappear at once; its contents are deleted by a sweep soon. Not from a worker thread."""
        self.put(path)
        self.sweep_soon()

    def put(self, path: str) -> None:
        """Let a directory disappear at once, and ask for no sweep: the caller empties the trash itself."""
        name = f"{os.path.basename(path)}-{secrets.token_hex(4)}"
        try:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            os.rename(path, os.path.join(self._directory, name))
        except FileNotFoundError:
            return
        except OSError as problem:
            # A removed agent's is found again by the next sweep, a dropped turn's too.
            log.warning("not discarded", path=path, reason=str(problem))

    def empty(self) -> int:
        """Delete all discarded directories, and return how many there were."""
        gone = 0
        for entry in list_directory(self._directory):
            try:
                shutil.rmtree(entry.path, ignore_errors=True)
                if os.path.lexists(entry.path):
                    _open_up(entry.path)
                    shutil.rmtree(entry.path, ignore_errors=True)
            except RecursionError:
                _flatten(entry.path, self._directory)
            with suppress(OSError):
                os.unlink(entry.path)
            gone += not os.path.lexists(entry.path)
        return gone


def _flatten(path: str, trash: str) -> None:
    """Delete a tree that is deeper than anything can follow: its directories are moved out first, one after the other."""
    found = [path]
    for outer in found:
        with suppress(OSError):
            os.chmod(outer, 0o700)
        for inner in list_directory(outer):
            if inner.is_dir(follow_symlinks=False):
                found.append(os.path.join(trash, f"{len(found)}-{os.path.basename(path)}"))
                with suppress(OSError):
                    os.rename(inner.path, found[-1])
        shutil.rmtree(outer, ignore_errors=True)


def _open_up(path: str) -> None:
    """Make directories writable again whose rights an agent has taken away."""
    for directory, _, _ in os.walk(path):
        for name in [".", *os.listdir(directory)]:
            inside = os.path.join(directory, name)
            if os.path.isdir(inside) and not os.path.islink(inside):
                with suppress(OSError):
                    os.chmod(inside, 0o700)


def list_directory(directory: str) -> Iterator[os.DirEntry[str]]:
    """List a directory, none when it isn't there or isn't one."""
    try:
        with os.scandir(directory) as entries:
            yield from list(entries)
    except OSError:
        return
