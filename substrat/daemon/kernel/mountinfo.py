"""Which mounts a process sees (proc(5), mountinfo)."""

from __future__ import annotations

import os
import re

_ESCAPED = re.compile(rb"\\([0-7]{3})")


def mount_points(pid: int) -> frozenset[str]:
    """Return where something is mounted in a process's mount namespace; nothing when it has ended.

    Args:
        pid: the process.
    """
    try:
        with open(f"/proc/{pid}/mountinfo", "rb") as file:
            lines = file.read().splitlines()
    except OSError:  # it has ended: a zombie has no mounts either
        return frozenset()
    return frozenset(os.fsdecode(_ESCAPED.sub(_character, line.split(b" ", 5)[4])) for line in lines)


def _character(escaped: re.Match[bytes]) -> bytes:
    """Spaces, tabs, newlines and backslashes are written in octal."""
    return bytes((int(escaped[1], 8),))
