"""Gets sockets in the network namespace of a running sandbox, so that a person can connect to the agent's servers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_PROGRAM = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "inside", "netjoiner.py")
_BATCH = 32
"""Sockets of each family that are made at once: making them takes a process, some 30 ms."""
_PATIENCE = 10.0
"""Seconds for the process that makes them; a machine that swaps needs some."""
_START_TIME = 19
"""Where proc(5) has a process's start among the fields behind its name."""


class SandboxNetwork:
    """The network of one running sandbox. Owns its descriptors: close it.

    Args:
        sandbox: an object of `sandboxes` in the answer of `agent.forward`.
    """

    def __init__(self, sandbox: Mapping[str, object]) -> None:
        self.pid = int(str(sandbox["pid"]))
        self._namespace: int | None = None
        self._made: dict[int, list[socket.socket]] = {socket.AF_INET: [], socket.AF_INET6: []}
        self._has_six = True
        try:
            namespace = os.open(f"/proc/{self.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return  # it has ended
        # Looked at after the opening: a process with the same pid and start is the one that was meant.
        if _started(self.pid) == sandbox["start_time"]:
            self._namespace = namespace
        else:
            os.close(namespace)

    def take(self, family: int) -> socket.socket | None:
        """Return a socket of a family that isn't connected yet; None: there is none to be had."""
        if self._namespace is None or (family == socket.AF_INET6 and not self._has_six):
            return None
        if not self._made[family]:
            self._make()
        return self._made[family].pop() if self._made[family] else None

    def _make(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        assert self._namespace is not None
        line = [sys.executable, "-I", "-S", _PROGRAM, str(self._namespace), str(theirs.fileno()), str(_BATCH)]
        with ours, theirs:
            try:
                subprocess.run(
                    line, env={}, check=False, pass_fds=(self._namespace, theirs.fileno()), stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=_PATIENCE,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return
            theirs.close()
            descriptors = socket.recv_fds(ours, 1, 2 * _BATCH)[1]
        for descriptor in descriptors:
            made = socket.socket(fileno=descriptor)
            made.setblocking(False)
            self._made[made.family].append(made)
        self._has_six = bool(self._made[socket.AF_INET6])

    def close(self) -> None:
        """Close the sockets that aren't connected; one that is kept open would keep the network of an ended sandbox."""
        for made in self._made.values():
            while made:
                made.pop().close()
        if self._namespace is not None:
            os.close(self._namespace)
            self._namespace = None


def _started(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            line = file.read()
    except OSError:
        return None
    # The name may hold anything, also ")": the fields after it are counted from the last one.
    return int(line[line.rindex(b")") + 2 :].split()[_START_TIME])
