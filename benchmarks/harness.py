"""What the benchmarks share: a private daemon, a blocking client, timing; the measurements are in the other files."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BIN = os.path.dirname(sys.executable)
STANDIN = os.path.join(BIN, "cursor-agent-standin")


class Figure(NamedTuple):
    """One line of the report: what was measured, its floor in the same run, and the goal."""

    what: str
    measured: str
    floor: str
    goal: str


class Wire:
    """A blocking client of the operator socket."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._file = self._socket.makefile("rwb")
        self._number = 0
        self.call("hello", protocol=1)

    def send(self, method: str, **params: object) -> int:
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self._file.write(json.dumps(message).encode() + b"\n")
        self._file.flush()
        return self._number

    def read(self) -> dict:
        return json.loads(self._file.readline())

    def call(self, method: str, **params: object) -> object:
        number = self.send(method, **params)
        while (answer := self.read()).get("id") != number:
            pass
        if "error" in answer:
            raise RuntimeError(answer["error"]["message"])
        return answer["result"]

    def close(self) -> None:
        self._file.close()
        self._socket.close()


class Daemon(NamedTuple):
    """A running private daemon."""

    root: str
    socket: str
    pid: int
    ready_after: float


@contextmanager
def daemon(agent: str = STANDIN, root: str | None = None) -> Iterator[Daemon]:
    """Run a daemon with directories of its own."""
    with tempfile.TemporaryDirectory(prefix="substrat-bench-") as made:
        root = root or made
        for name in ("home", "ws"):
            os.makedirs(os.path.join(root, name), exist_ok=True)
        environ = {"PATH": os.environ["PATH"], "HOME": f"{root}/home", "SUBSTRAT_AGENT_BINARY": agent}
        directories = ["--state-dir", f"{root}/state", "--runtime-dir", f"{root}/run"]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, open(f"{root}/log", "ab") as log:
            ready.bind(f"{root}/notify")
            ready.settimeout(30)
            environ["NOTIFY_SOCKET"] = f"{root}/notify"
            began = time.perf_counter()
            process = subprocess.Popen([f"{BIN}/substratd", *directories], env=environ, stderr=log)
            ready.recv(4096)
            took = time.perf_counter() - began
            os.unlink(f"{root}/notify")
        path = f"{root}/run/daemon.sock"
        try:
            yield Daemon(root, path, process.pid, took)
        finally:
            wire = Wire(path)
            wire.call("daemon.shutdown", suspend=True)
            wire.close()
            process.wait(30)


def best(run: Callable[[], float], times: int = 15) -> float:
    """Return the median of several runs, in milliseconds."""
    return statistics.median(run() for _ in range(times)) * 1000


def timed(command: list[str], **options: object) -> float:
    """Return how long a whole process takes, in seconds."""
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, **options)
    return time.perf_counter() - began


def rss_mib(pid: int) -> float:
    """Return a process's resident memory."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))


def cpu_seconds(pid: int) -> float:
    """Return the processor time a process has used."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
