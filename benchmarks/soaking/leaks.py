"""Runs substratd with leaks put in on purpose, so that tests can see the soak find them.

Its arguments are the kinds, separated by commas, and then substratd's own. Each kind is a function below; most leak once for
each sandbox that is started.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import trio

from substrat.daemon import main as daemon
from substrat.daemon.kernel import inotify, process
from substrat.daemon.servers import rpc
from substrat.daemon.state.events import Journal
from substrat.daemon.state.store import Store
from substrat.daemon.workspaces import placeholders as standins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

HANGS_AT = 6
"""Sandboxes that a daemon starts before it hangs, or ends connections: fewer than between two of the soak's kills."""
kept: list[object] = []


def at_each_start(leak: Callable[[], object]) -> None:
    """Leak whenever a sandbox is started."""
    start = process.start

    def leaking(*given: object, **named: object) -> object:
        kept.append(leak())
        return start(*given, **named)  # type: ignore[arg-type]

    process.start = leaking  # type: ignore[assignment]


_IN_MODIFY, _IN_CREATE = 0x2, 0x100  # linux/inotify.h


def watches(watcher: type[inotify.Watcher | inotify.EntryWatcher]) -> None:
    """Instead of each inotify watch that is taken back there is another one, of a directory that stays."""
    made = watcher.__init__
    staying = (directory for directory, _, _ in os.walk("/usr"))

    def without_removing(self: inotify.Watcher | inotify.EntryWatcher) -> None:
        made(self)  # type: ignore[arg-type]

        class Kept:
            inotify_init1 = self._libc.inotify_init1
            inotify_add_watch = self._libc.inotify_add_watch

            @staticmethod
            def inotify_rm_watch(descriptor: int, _number: int) -> int:
                mask = _IN_MODIFY if watcher is inotify.Watcher else _IN_CREATE
                return int(Kept.inotify_add_watch(descriptor, os.fsencode(next(staying)), mask))

        self._libc = Kept()  # type: ignore[assignment]

    watcher.__init__ = without_removing  # type: ignore[method-assign]


_remove_all = standins.remove_all


def remove_all_but_one(paths: Sequence[str]) -> None:
    """Remove placeholders, in a file worker, which finds this function by its name."""
    _remove_all([path for path in paths if not path.endswith("/.envrc")])


def placeholders() -> None:
    """The placeholder for a missing `.envrc` stays in the workspace."""
    standins.remove_all = remove_all_but_one


def rows() -> None:
    """A row is added for each placeholder and never deleted."""
    add, forget = Store.add_mount_points, Store.forget_mount_points
    numbers = itertools.count()

    def add_more(self: Store, paths: Iterable[str]) -> None:
        add(self, [*paths, f"/nonexistent/{next(numbers)}"])

    def keep(self: Store, paths: Iterable[str]) -> None:
        forget(self, [path for path in paths if not path.startswith("/nonexistent/")])

    Store.add_mount_points, Store.forget_mount_points = add_more, keep  # type: ignore[method-assign]


def events() -> None:
    """Each event with a cursor that 97 divides is left out of the first page that would hold it."""
    page = Journal.page
    dropped: set[int] = set()

    def without(self: Journal, *given: object, **named: object) -> list:
        found = page(self, *given, **named)  # type: ignore[arg-type]
        left = [event for event in found if event.cursor % 97 or event.cursor in dropped]
        dropped.update(event.cursor for event in found)
        return left

    Journal.page = without  # type: ignore[method-assign]


def thread() -> None:
    """Start a thread that never ends."""
    threading.Thread(target=threading.Event().wait, daemon=True).start()


def namespace() -> socket.socket:
    """Keep a socket of a network namespace that no process is in (as root only)."""
    made: list[socket.socket] = []

    def make() -> None:
        assert ctypes.CDLL(None, use_errno=True).unshare(0x40000000) == 0  # CLONE_NEWNET, of this thread
        made.append(socket.socket())

    worker = threading.Thread(target=make)
    worker.start()
    worker.join()
    return made[0]


def mount() -> None:
    """Leave a bind mount behind (as root only)."""
    path = os.fsencode(tempfile.mkdtemp())
    assert ctypes.CDLL(None, use_errno=True).mount(path, path, None, 4096, None) == 0  # MS_BIND


def hang() -> None:
    """Hang once some sandboxes were started."""
    if len(kept) == HANGS_AT:
        time.sleep(1e6)


def connections() -> None:
    """End all clients' connections once some sandboxes were started, and live on."""
    serve = rpc.ClientConnection.serve
    served: list[trio.CancelScope] = []

    async def until_then(self: rpc.ClientConnection) -> None:
        with trio.CancelScope() as scope:
            served.append(scope)
            await serve(self)

    def end_all() -> None:
        if len(kept) == HANGS_AT:
            for scope in served:
                scope.cancel()

    rpc.ClientConnection.serve = until_then  # type: ignore[method-assign]
    at_each_start(end_all)


ONCE: dict[str, Callable[[], None]] = {
    "watches": partial(watches, inotify.Watcher),
    "name watches": partial(watches, inotify.EntryWatcher),
    "placeholders": placeholders,
    "rows": rows,
    "events": events,
    "connections": connections,
}
EACH: dict[str, Callable[[], object]] = {
    "pipe": os.pipe,
    "memory": lambda: bytearray(os.urandom(1 << 20)),
    "process": lambda: subprocess.Popen(["sleep", "1000000"], start_new_session=True),
    "temporary": tempfile.mkdtemp,
    "thread": thread,
    "namespace": namespace,
    "mount": mount,
    "hang": hang,
}


def main() -> int | None:
    kinds = sys.argv.pop(1).split(",")
    for kind in kinds:
        if kind in ONCE:
            ONCE[kind]()
        else:
            at_each_start(EACH[kind])
    return daemon.main()


if __name__ == "__main__":
    sys.exit(main())
