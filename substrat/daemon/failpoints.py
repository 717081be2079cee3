"""The instants at which it matters that the daemon can be killed, by name; at one it is told to, it kills itself.

`substratd --points` lists them, and a test kills a daemon at each. In production passing a point costs a comparison.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from mcp_server.tools import TOOLS, name_of
from substrat.protocol.methods import METHODS

if TYPE_CHECKING:
    from collections.abc import Mapping

KILL_AT = "SUBSTRAT_KILL_AT"
"""The environment variable that names the point at which the daemon kills itself, `NAME` or `NAME#TIMES`."""
TRACE = "SUBSTRAT_TRACE_POINTS"
"""The environment variable that names a file to which every point that is passed is written, a line each."""

SWEPT = ("turn dropped", "events dropped", "files forgotten")
"""What is committed when old output and removed agents go."""
LOST = "lost turn told"
"""What is committed when a start finds files of a turn without a record."""
CHANGES = (
    "agent spawned", "prompt queued", "suspend asked", "freeze asked", "interrupt asked", "end asked", "agent resumed",
    "agent removed", "turn begun", "sandbox recorded", "output recorded", "output cut", "limit reached", "companion called",
    "note taken", "turn accounted for", "reminder due", "question answered", "question dismissed", "mount point noted",
    "mount point forgotten", "wait told", "allow-list changed", "finding recorded", "findings accepted",
    "protected files reached", LOST, *SWEPT,
    *(f"tool called: {name_of(tool)}" for tool in TOOLS if not tool.hints.reads_only),
)  # fmt: skip
"""What is committed."""
URGENT = frozenset({
    "suspend asked",
    "freeze asked",
    "interrupt asked",
    "end asked",
    "limit reached",
    "sandbox recorded",
    "protected files reached",
})  # fmt: skip
"""What is committed on a full disk too, with the room that is kept for it: nothing can be stopped without these.
Each is small, and an agent can cause each only as often as a turn starts or a person asks."""
WITHIN_A_TOOL = (
    "message sent", "message to the operator", "inbox read", "status reported", "reminder added", "reminder cancelled",
    "question asked",
)  # fmt: skip
"""What is only ever committed as a part of a tool call."""
ACTS = (
    "files made", "prompt written", "sandbox started", "operator socket made", "agent socket made", "agent socket removed",
    "mount point made", "mount point removed", "files removed", "SIGINT sent", "SIGTERM sent", "sandbox killed",
    "sandbox frozen", "sandbox thawed", "visit started", "visit ended", "daemon ready", "sandbox held", "protected again",
    "moved aside",
    "chat copied",
    "chat moved",
)  # fmt: skip
"""What is done outside the database."""
MOMENTS = ("sandbox to be adopted", "tool to be answered", "daemon to be stopped")
"""Other instants."""
ANSWERS = tuple(method.name for method in METHODS if method.name != "hello")
"""What is answered on the operator socket."""

POINTS = (
    *(f"before commit: {change}" for change in CHANGES),
    *(f"after commit: {change}" for change in CHANGES),
    *(f"before: {act}" for act in ACTS),
    *(f"after: {act}" for act in ACTS),
    *(f"at: {moment}" for moment in MOMENTS),
    *(f"before answer: {answer}" for answer in ANSWERS),
)
"""Every point, in the order of this file."""


class Failpoints:
    """The points of one daemon.

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
        """An instant of its own."""
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
