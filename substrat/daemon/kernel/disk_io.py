"""Bytes that a sandbox's processes have written, and the nameless files they hold open."""

from __future__ import annotations

import os
import random
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from substrat.daemon.kernel import procfs
from substrat.daemon.kernel.process import is_running

if TYPE_CHECKING:
    from substrat.core.agents.records import Process


def written(outer: Process, *, to_disk: bool) -> int:
    """Return how many bytes a sandbox's processes have written so far, those that have ended counted with their parents.

    A process that ignores SIGCHLD is an exception: its children's bytes aren't counted once they have ended (proc(5)).

    Args:
        outer: the sandbox's outer process.
        to_disk: count the bytes that the kernel must write to disks; otherwise all that were passed to write(2) and the
            like, pipes and sockets too: the kernel counts nothing else for file systems in memory.

    Returns:
        The bytes, 0 when the sandbox is gone.
    """
    if not is_running(outer):
        return 0
    total = 0
    for pid in procfs.tree(outer.pid):
        counts = procfs.io_counts(pid)
        if not counts:
            continue  # it is gone, or has made itself unreadable
        total += counts["write_bytes"] - counts["cancelled_write_bytes"] if to_disk else counts["wchar"]
    return total


def unlinked(outer: Process, device: int, most: int) -> list[tuple[str, int]]:
    """Return the files on one device that have no name any more and that a sandbox's processes have open.

    Args:
        outer: the sandbox's outer process.
        device: the device's number.
        most: how many descriptors are looked at; of more a part is, another one each time.

    Returns:
        The path that each had in the sandbox, and its bytes on disk.
    """
    found: dict[int, tuple[str, int]] = {}
    if not is_running(outer):
        return []
    tasks = [task for pid in procfs.tree(outer.pid) for task in procfs.tasks(pid)]
    random.shuffle(tasks)
    for task in tasks:
        # A thread may have descriptors of its own (clone(2) without CLONE_FILES).
        with suppress(OSError):  # it is gone, or has made itself unreadable
            for number in os.listdir(f"{task}/fd"):
                most -= 1
                if most < 0:
                    return [*found.values()]
                _note_unlinked(f"{task}/fd/{number}", device, found)
    return [*found.values()]


def _note_unlinked(descriptor: str, device: int, found: dict[int, tuple[str, int]]) -> None:
    with suppress(FileNotFoundError):  # it was closed
        file = os.stat(descriptor)
        if file.st_nlink == 0 and file.st_dev == device and stat.S_ISREG(file.st_mode):
            found[file.st_ino] = os.readlink(descriptor).removesuffix(" (deleted)"), file.st_blocks * 512
