"""The processes under a process, as far as /proc shows them, and signals to them all; it waits for nothing.

cursor-agent's shell commands lead process groups of their own, so a group's signal doesn't reach them. Found are all
descendants and everything in the process's session; a process with a session of its own whose parent is gone is not.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import NamedTuple


class Member(NamedTuple):
    """A process that can be told from a later one with the same number."""

    pid: int
    parent: int
    session: int
    start: int


def below(root: int) -> list[Member]:
    """Return the processes under a process, without itself.

    Args:
        root: its number; it leads a session.
    """
    everyone = [member for entry in _entries() if (member := _read(entry)) is not None]
    children: dict[int, list[Member]] = {}
    for member in everyone:
        children.setdefault(member.parent, []).append(member)
    found = {member.pid: member for member in everyone if member.session == root and member.pid != root}
    unseen = [root, *found]
    while unseen:
        for child in children.get(unseen.pop(), ()):
            if child.pid not in found:
                found[child.pid] = child
                unseen.append(child.pid)
    return list(found.values())


def signal_all(members: list[Member], number: int) -> None:
    """Send a signal to those that are still the processes they were."""
    for member in members:
        now = _read(str(member.pid))
        if now is not None and now.start == member.start:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(member.pid, number)


def kill_group(leader: int) -> None:
    """Kill a process group that may be gone. Its number can't be anybody else's while its leader isn't waited for."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _entries() -> list[str]:
    try:
        return [entry for entry in os.listdir("/proc") if entry.isdigit()]
    except OSError:
        return []


def _read(entry: str) -> Member | None:
    try:
        with open(f"/proc/{entry}/stat", "rb") as file:
            # The name stands in brackets and may hold anything, brackets included.
            fields = file.read().rpartition(b")")[2].split()
        return Member(int(entry), int(fields[1]), int(fields[3]), int(fields[19]))
    except (OSError, IndexError, ValueError):
        return None
