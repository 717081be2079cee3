"""Reads /proc for tests: which processes there are, what they hold open, whether they live."""

from __future__ import annotations

import os
from pathlib import Path


def link(path: str) -> str:
    """Where a link of /proc leads; empty when it is gone or closed to us."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def processes() -> list[int]:
    """The pids of all processes that this one sees."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def descriptors(pid: int) -> list[str]:
    """Where a process's descriptors lead."""
    try:
        return [link(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return []


def arguments_of(pid: int) -> list[str]:
    """A process's program and arguments; an empty word when it is gone."""
    try:
        return [os.fsdecode(word) for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]
    except OSError:
        return [""]


def is_alive(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
