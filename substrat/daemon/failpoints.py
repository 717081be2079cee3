"""Named failpoints. In tests the daemon can be told to kill itself at any one of them.

For example `SUBSTRAT_KILL_AT="after commit: turn begun#2"` kills it when its second turn is committed and not yet started.
`substratd --points` lists them, and a test kills a daemon at each. In production passing one costs a comparison.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from mcp_server.tools import ONLY_READ, TOOLS, name_of
from substrat.protocol.methods import METHODS

if TYPE_CHECKING:
    from collections.abc import Mapping

KILL_AT = "SUBSTRAT_KILL_AT"
"""The environment variable that names the failpoint at which the daemon kills itself, `NAME` or `NAME#TIMES`."""
TRACE = "SUBSTRAT_TRACE_POINTS"
"""The environment variable that names a file; the daemon writes each failpoint that it passes there, a line each."""

SWEPT = ("turn dropped", "events dropped", "files forgotten")
"""Commits of the retention of old output and of removed agents."""
LOST = "lost turn told"
"""The commit of a start that finds files of a turn without a record."""
CHANGES = (
    "agent spawned", "prompt queued", "words handed over", "suspend asked", "freeze asked", "interrupt asked", "end asked",
    "agent resumed", "agent removed", "turn begun", "sandbox recorded", "output recorded", "output cut", "limit reached",
    "companion called", "note taken", "turn accounted for", "reminder due", "question answered", "question dismissed",
    "question expired", "message dropped", "mount point noted",
    "mount point forgotten", "wait told", "allow-list changed", "finding recorded", "findings accepted", "finding closed",
    "protected path replaced", "borrowed noted", "clone made", "clone set up", "clone failed", "clone kept",
    "agent renamed", "renaming finished", "settings changed", "budget changed", "tasks added", "task retried",
    "task skipped", "run started", "run listed", "result returned", "run ended",
    "address given", "prune intended",
    "tree pruned", "refs noted", "agent relocated", "gate tried", "bell recorded", "bell failed",
    "restore intended", "clone restored", "restore failed",
    "landing asked", "landing intended", "landing noted", "landing decided", "wait over", "check begun", "check judged",
    LOST, *SWEPT,
    *(f"tool called: {name_of(tool)}" for tool in TOOLS if name_of(tool) not in ONLY_READ),
)  # fmt: skip
"""Every commit but those inside a tool call."""
URGENT = frozenset({
    "suspend asked",
    "freeze asked",
    "interrupt asked",
    "end asked",
    "limit reached",
    "sandbox recorded",
    "protected path replaced",
})  # fmt: skip
"""Commits that may use the room kept for a full disk: without them nothing can be stopped.
Each is small, and an agent can cause each only as often as a turn starts or a person asks."""
WITHIN_A_TOOL = (
    "message sent", "message to the operator", "inbox read", "status reported", "reminder added", "reminder cancelled",
    "question asked", "wait registered", "turn completed", "task claimed", "task finished",
)  # fmt: skip
"""Commits that are always a part of a tool call's."""
ACTS = (
    "files made", "prompt written", "sandbox started", "operator socket made", "agent socket made", "agent socket removed",
    "mount point made", "mount point removed", "files removed", "SIGINT sent", "SIGTERM sent", "sandbox killed",
    "sandbox frozen", "sandbox thawed", "visit started", "visit ended", "daemon ready", "sandbox held", "protected again",
    "lock removed", "tree made", "clone set up", "base noted", "bundle made", "bundle imported",
    "branch moved", "refs copied", "old refs deleted", "tree removed", "earlier work noted", "tree restored",
    "chat copied", "chat moved", "bell rung",
)  # fmt: skip
"""Acts outside the database."""
MOMENTS = ("sandbox to be adopted", "tool to be answered", "daemon to be stopped")
"""Other instants."""
ANSWERS = tuple(method for method in METHODS if method != "hello")
"""Answers on the operator socket."""

FAILPOINTS = (
    *(f"before commit: {change}" for change in CHANGES),
    *(f"after commit: {change}" for change in CHANGES),
    *(f"before: {act}" for act in ACTS),
    *(f"after: {act}" for act in ACTS),
    *(f"at: {moment}" for moment in MOMENTS),
    *(f"before answer: {answer}" for answer in ANSWERS),
)
"""Every failpoint, in the order of this file."""


class Failpoints:
    """The failpoints of one daemon.

    Args:
        environ: its environment, which may hold `KILL_AT` and `TRACE`.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        name, _, times = environ.get(KILL_AT, "").partition("#")
        self._deadly = name or None
        self._left = int(times) if times.isdecimal() else 1
        self._trace = environ.get(TRACE)

    def committing(self, change: str) -> None:
        """A change is about to be committed."""
        if self._is_watched:
            self._pass(f"before commit: {change}")

    def committed(self, change: str) -> None:
        """A change was committed and nothing was done about it yet."""
        if self._is_watched:
            self._pass(f"after commit: {change}")

    def before(self, act: str) -> None:
        """Something outside the database is about to be done."""
        if self._is_watched:
            self._pass(f"before: {act}")

    def after(self, act: str) -> None:
        """Something outside the database was done."""
        if self._is_watched:
            self._pass(f"after: {act}")

    def at(self, moment: str) -> None:
        """One of `MOMENTS` is passed."""
        if self._is_watched:
            self._pass(f"at: {moment}")

    def answering(self, method: str) -> None:
        """A request was carried out and is about to be answered."""
        if self._is_watched and method != "hello":
            self._pass(f"before answer: {method}")

    @property
    def _is_watched(self) -> bool:
        return self._deadly is not None or self._trace is not None

    def _pass(self, point: str) -> None:
        if self._trace is not None:
            with open(self._trace, "a", encoding="utf-8") as file:
                file.write(f"{point}\n")
        if point == self._deadly:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
