"""Measures whether a spawn and a turn cost more where there are many agents.

The daemon's processor time of a spawn without a prompt, and that from a prompt to the end of a turn that says one line, with
10,000 idle agents, ten in each workspace; beside it those of a daemon with 10 agents, in turns.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

from harness import Figure, Wire, cpu_seconds, daemon, finish, program

from measures.sizes import populate

if TYPE_CHECKING:
    from collections.abc import Iterator

SPAWN, TURN = "10000 agents: the daemon's processor time of a spawn", "10000 agents: the daemon's processor time of a turn"
NAMES = (SPAWN, TURN)
SECONDS = 90.0  # for two daemons, one of which restores all agents
_MANY, _FEW = 10_000, 10
_ROUNDS, _EACH = 5, 8  # the kernel counts processor time in steps of 10 ms
_SAYS = '#!/bin/sh\necho \'{"type":"result","subtype":"success","result":"x"}\'\n'


class _Subject:
    """A daemon with agents.

    Args:
        root: its directory.
        pid: its process.
        wire: a client of it.
    """

    def __init__(self, root: str, pid: int, wire: Wire) -> None:
        self._root, self._pid, self._wire = root, pid, wire
        self._numbers = count()
        self.spawn()
        self.turn()

    def spawn(self) -> None:
        """Spawn an agent in a workspace of its own."""
        workspace = f"{self._root}/new-{next(self._numbers)}"
        os.mkdir(workspace)
        self._wire.call("agent.spawn", workspace=workspace, name=os.path.basename(workspace))

    def turn(self) -> None:
        """Have an agent run a turn."""
        self._wire.call("agent.send", agent="new-0", prompt="x")
        finish(self._wire, ["new-0"])

    def taken(self, name: str) -> float:
        """Return how many milliseconds of the daemon's processor time one spawn or turn takes."""
        before = cpu_seconds(self._pid)
        for _ in range(_EACH):
            self.spawn() if name == SPAWN else self.turn()
        return (cpu_seconds(self._pid) - before) / _EACH * 1000


@contextmanager
def _subject(agent: str, agents: int) -> Iterator[_Subject]:
    with tempfile.TemporaryDirectory(prefix="") as root:
        populate(root, agents)
        with daemon(agent, root, "[limits]\nagents = 20000\n") as running:
            wire = Wire(running.socket)
            yield _Subject(root, running.pid, wire)
            wire.close()


def measure() -> Iterator[Figure]:
    """Take the figures."""
    with program(_SAYS) as agent, _subject(agent, _MANY) as many, _subject(agent, _FEW) as few:
        for name in NAMES:
            pairs = [(many.taken(name), few.taken(name)) for _ in range(_ROUNDS)]
            ours, floor = (sum(column) / _ROUNDS for column in zip(*pairs, strict=True))
            value, beside = f"{ours:.2f} ms, {ours / floor:.2f} times the floor", f"{_FEW} agents {floor:.2f} ms"
            yield Figure(name, value, beside, "1.3 times the floor", met=ours <= 1.3 * floor)
