"""Measures a landing in a repository with 40 clones, each with a commit of its own, in a private daemon.

- *sandboxes*: how many one landing starts, that of the look at the other clones after the answer included. Beside it: the
  same in a repository with one clone. A shell script that notes each start stands before bubblewrap, which takes 1 ms.
- *answer*: from the request `agent.merge` to its answer, in the median of some landings of one commit, each of which git
  merges, because the branch has moved meanwhile. Beside it, in turns with these: `git clone`, `git merge` and `git commit`
  of such a commit by hand, as a person would try it without touching a checkout.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from harness import PATIENCE_S, Figure, FigureFailed, Wire, daemon, descendants, finish, paired, timed

from sandbox import host

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness import Daemon

CLONES = 40
SANDBOXES, ANSWER = f"merge with {CLONES} clones: sandboxes", f"merge with {CLONES} clones: answer"
NAMES = (SANDBOXES, ANSWER)
SECONDS = 60.0  # most of it makes the clones
_TIMES = 7
_GOAL = 3
"""Times the floor: two sandboxes and a Python program, where by hand git runs three times."""
_NOTING = """#!/bin/sh
case "$*" in *--version*|*--help*) ;; *'while [ $# -ge 5 ]'*) echo look >>{0};; *) echo other >>{0};; esac
exec {1} "$@"
"""
_GIT = ("git", "-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "gc.auto=0")


class _Repository:
    """A repository in which agents have clones, with a commit in each that isn't landed yet."""

    def __init__(self, running: Daemon, wire: Wire, started: str, clones: int) -> None:
        self._pid, self._wire, self._started = running.pid, wire, started
        self.top = top = f"{running.root}/ws"
        self.names = [f"a{number}" for number in range(clones)]
        for line in (("init", "-q", "-b", "main"), ("commit", "-q", "--allow-empty", "-m", "first")):
            subprocess.run([*_GIT, "-C", top, *line], check=True)
        for key, value in (("user.name", "x"), ("user.email", "x@localhost")):
            subprocess.run(["git", "-C", top, "config", key, value], check=True)
        for name in self.names:
            work = f"/shell echo {name} >{name}; git add {name}; git commit -qm {name}"
            wire.call("agent.spawn", workspace=top, name=name, prompt=work, clone=True, network="none")
        finish(wire, self.names)
        subprocess.run([*_GIT, "-C", top, "commit", "-q", "--allow-empty", "-m", "mine"], check=True)

    def land(self, name: str) -> float:
        """Land an agent's work, and return the seconds until the answer."""
        open(self._started, "w", encoding="ascii").close()
        began = time.perf_counter()
        (outcome,) = self._wire.call("agent.merge", agents=[name])
        took = time.perf_counter() - began
        if outcome["outcome"] != "landed":
            raise FigureFailed(f"{name}'s work isn't landed: {outcome['text']}")
        return took

    def sandboxes(self) -> int:
        """Return how many sandboxes the last landing has started, after its look at the other clones."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with open(self._started, encoding="ascii") as file:
                found = Counter(file.read().split())
            if found["look"] == 1 and not any(map(_is_bubblewrap, descendants(self._pid))):
                return found.total()
            time.sleep(0.01)
        raise FigureFailed(f"no look at the other clones came in {PATIENCE_S:g} s")


def _is_bubblewrap(pid: int) -> bool:
    with suppress(OSError), open(f"/proc/{pid}/comm", encoding="ascii", errors="replace") as file:
        return file.read() == "bwrap\n"
    return False


@contextmanager
def _repository(clones: int) -> Iterator[_Repository]:
    found = host.find_bubblewrap()
    if found is None:
        raise FigureFailed("there is no bubblewrap")
    with tempfile.TemporaryDirectory(prefix="substrat-bench-") as tools:
        with open(f"{tools}/bwrap", "w", encoding="ascii") as script:
            script.write(_NOTING.format(f"{tools}/started", found.path))
        os.chmod(f"{tools}/bwrap", 0o755)
        with daemon(config=f'[sandbox]\nbwrap = "{tools}/bwrap"\n') as running:
            wire = Wire(running.socket)
            yield _Repository(running, wire, f"{tools}/started", clones)
            wire.close()


def measure() -> Iterator[Figure]:
    """Take the figures of landings."""
    with _repository(1) as one:
        one.land(one.names[0])
        alone = one.sandboxes()
    with _repository(CLONES) as many:
        names = iter(many.names)
        many.land(next(names))
        found = many.sandboxes()
        yield Figure(SANDBOXES, str(found), f"one clone {alone}", "the same", met=found == alone)

        def ours() -> float:
            took = many.land(next(names))
            many.sandboxes()  # the next git by hand has the machine for itself
            return took

        def by_hand() -> float:
            head = subprocess.check_output(
                ["git", "-C", many.top, "rev-parse", f"refs/substrat/{next(names)}/head"], text=True
            )
            with tempfile.TemporaryDirectory(prefix="substrat-bench-") as place:
                into = [*_GIT, "-C", f"{place}/clone"]
                return (
                    timed([*_GIT, "clone", "-q", many.top, f"{place}/clone"])
                    + timed([*into, "merge", "-q", "--no-commit", head.strip()])
                    + timed([*into, "commit", "-qm", "merged"])
                )

        taken, floor = paired(ours, by_hand, _TIMES)
        value = f"{taken:.0f} ms, {taken / floor:.1f} x"
        yield Figure(
            ANSWER, value, f"git clone, merge, commit {floor:.1f} ms", f"{_GOAL} x floor", met=taken <= _GOAL * floor
        )
