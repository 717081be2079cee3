"""Provides the benchmarks with figures, a private daemon, a blocking client, bounded waits and readings from /proc."""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

BIN = os.path.dirname(sys.executable)
STANDIN = os.path.join(BIN, "cursor-agent-standin")
PATIENCE_S = 40.0
"""Seconds that an answer, a start or an end may take: far more than any needs, far less than the whole run may take."""
_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)


class FigureFailed(Exception):
    """A figure couldn't be taken; the message says why."""


class Figure(NamedTuple):
    """One line of the report.

    Args:
        name: the figure's, for example `tool call, p50`.
        value: the measured value, with its unit.
        floor: a value of the same run to compare it with; `-` where the goal is a number by itself.
        goal: the goal, as in the design brief's table.
        met: whether the value reaches the goal.
    """

    name: str
    value: str
    floor: str
    goal: str
    met: bool

    def line(self) -> str:
        """Return the line that `make bench` prints."""
        return f"{self.name}  {self.value}  (floor {self.floor}, goal {self.goal}) {'ok' if self.met else 'missed'}"


# Waiting


@contextmanager
def within(seconds: float, doing: str) -> Iterator[None]:
    """Interrupt the block when it takes too long; only for the main thread, and not nested.

    Args:
        seconds: how long it may take.
        doing: its name in the sentence.

    Raises:
        FigureFailed: it took longer.
    """

    def ring(_number: int, _frame: object) -> None:
        raise FigureFailed(f"{doing} took more than {seconds:.0f} s and was given up")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def wait_readable(descriptor: int, waiting_for: str, seconds: float = PATIENCE_S) -> None:
    """Wait until a descriptor can be read; raises `FigureFailed` when that takes too long."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if not poll.poll(seconds * 1000):
        raise FigureFailed(f"waited {seconds:g} s in vain for {waiting_for}")


def wait_end(process: subprocess.Popen[bytes], name: str, seconds: float = PATIENCE_S) -> int:
    """Wait until a process ends and return its exit status; raises `FigureFailed` when that takes too long."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        raise FigureFailed(f"{name} hasn't ended after {seconds:g} s") from None


# Processes


def adopt_orphans() -> None:
    """Become the parent of descendants whose parents end, so that `kill_descendants` finds sandboxes without a daemon."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def kill_descendants() -> None:
    """Kill every process that this one has started, directly or not, and wait until they are gone."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and (found := descendants(os.getpid())):
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def descendants(root: int) -> set[int]:
    """Return the processes below one."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as file:
            children.setdefault(int(file.read().rsplit(")", 1)[1].split()[1]), []).append(int(name))
    found: set[int] = set()
    below = [root]
    while below:
        fresh = [pid for pid in children.get(below.pop(), ()) if pid not in found]
        found.update(fresh)
        below.extend(fresh)
    return found


def rss_mib(pid: int) -> float:
    """Return a process's resident memory."""
    return int(_status(pid)["VmRSS"].split()[0]) / 1024


def switches(pid: int) -> int:
    """Return how often a process has gone to sleep so far, which is how often it has been woken."""
    return int(_status(pid)["voluntary_ctxt_switches"])


def _status(pid: int) -> dict[str, str]:
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}


def cpu_seconds(pid: int) -> float:
    """Return the processor time a process has used, in all its threads, without its children."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# The daemon


class Wire:
    """A blocking client of the operator socket; every wait of its methods is bounded by `PATIENCE_S`.

    Args:
        path: the socket.

    Raises:
        FigureFailed: the daemon can't be reached, refuses, doesn't answer or has gone.
    """

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE_S)
        try:
            self.socket.connect(path)
        except OSError as problem:
            raise FigureFailed(f"the daemon at {path} can't be reached: {problem.strerror}") from None
        self._file = self.socket.makefile("rwb")
        self._number = 0
        self.call("hello", protocol=1)

    def send(self, method: str, **params: object) -> int:
        """Send a request without waiting for its answer; returns its number."""
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        try:
            self._file.write(json.dumps(message).encode() + b"\n")
            self._file.flush()
        except OSError as problem:
            raise FigureFailed(f"the daemon took no {method}: {problem}") from None
        return self._number

    def read(self, waiting_for: str = "a message of the daemon's") -> dict:
        """Return the next message."""
        try:
            line = self._file.readline()
        except TimeoutError:
            raise FigureFailed(f"waited {PATIENCE_S:g} s in vain for {waiting_for}") from None
        except OSError as problem:
            raise FigureFailed(f"the connection to the daemon broke ({problem}) before {waiting_for} came") from None
        if not line:
            raise FigureFailed(f"the daemon closed the connection before {waiting_for} came")
        return json.loads(line)

    def answer(self, number: int, method: str) -> Any:
        """Return the result of a request that was sent."""
        while (message := self.read(f"the answer to {method}")).get("id") != number:
            pass
        if "error" in message:
            raise FigureFailed(f"{method} was refused: {message['error']['message']}")
        return message["result"]

    def call(self, method: str, **params: object) -> Any:
        """Send a request and return its result."""
        return self.answer(self.send(method, **params), method)

    def close(self) -> None:
        """Close the connection."""
        self._file.close()
        self.socket.close()


class Daemon(NamedTuple):
    """A running private daemon.

    Args:
        root: its directory, with `state`, `run`, `home` and the workspace `ws`.
        socket: the operator socket.
        pid: its process.
        ready_after: seconds from its start until it said that it was ready.
    """

    root: str
    socket: str
    pid: int
    ready_after: float


@contextmanager
def daemon(agent: str = STANDIN, root: str | None = None, config: str = "") -> Iterator[Daemon]:
    """Run a daemon with directories of its own, and stop it and its turns afterwards.

    Args:
        agent: the agent program.
        root: its directory, which is kept; a temporary one by default.
        config: further lines of its configuration.

    Raises:
        FigureFailed: it doesn't start, or doesn't stop.
    """
    with tempfile.TemporaryDirectory(prefix="") as made:
        root = root or made
        for name in ("home", "ws"):
            os.makedirs(os.path.join(root, name), exist_ok=True)
        process, took = _started(agent, root, config)
        path = f"{root}/run/daemon.sock"
        try:
            yield Daemon(root, path, process.pid, took)
            wire = Wire(path)
            wire.call("daemon.shutdown", suspend=True)
            wire.close()
        except FigureFailed as problem:
            # The kernel closes its connections an instant before a wait returns.
            with suppress(subprocess.TimeoutExpired):
                process.wait(1)
            if process.returncode is None:
                raise
            ended = f"it has ended with {process.returncode}, and {_last_words(root)}"
            raise FigureFailed(f"{problem}; {ended}") from None
        else:
            if status := wait_end(process, "the daemon"):
                raise FigureFailed(f"the daemon has ended with {status}, and {_last_words(root)}")
        finally:
            # `kill_descendants` ends the processes that are left in its sandboxes.
            if process.poll() is None:
                process.kill()
                process.wait(PATIENCE_S)


def _started(agent: str, root: str, further: str) -> tuple[subprocess.Popen[bytes], float]:
    environ = {"PATH": os.environ["PATH"], "HOME": f"{root}/home", "SUBSTRAT_AGENT_BINARY": agent}
    environ["NOTIFY_SOCKET"] = f"{root}/notify"
    config = f"{root}/config.toml"
    with open(config, "w", encoding="utf-8") as file:
        # A hundred turns run at once, whatever memory the machine has.
        file.write(f"[turns]\nmax_running = 256\n{further}")
    command = [f"{BIN}/substratd", "--state-dir", f"{root}/state", "--runtime-dir", f"{root}/run", "--config", config]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, open(f"{root}/log", "ab") as log:
        ready.bind(f"{root}/notify")
        began = time.perf_counter()
        process = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stderr=log)
        pidfd = os.pidfd_open(process.pid)
        try:
            poll = select.poll()
            poll.register(ready, select.POLLIN)
            poll.register(pidfd, select.POLLIN)
            is_ready, happened = False, {ready.fileno()}
            while not is_ready and ready.fileno() in happened:
                happened = {descriptor for descriptor, _ in poll.poll(PATIENCE_S * 1000)}
                is_ready = ready.fileno() in happened and b"READY=1" in ready.recv(4096)  # it may ask for time before
            took = time.perf_counter() - began
        finally:
            os.close(pidfd)
            os.unlink(f"{root}/notify")
    if not is_ready:
        process.kill()
        process.wait(PATIENCE_S)
        why = f"ended with {process.returncode}" if happened else f"wasn't ready after {PATIENCE_S:g} s"
        raise FigureFailed(f"the daemon {why}, and {_last_words(root)}")
    return process, took


def _last_words(root: str) -> str:
    with open(f"{root}/log", encoding="utf-8", errors="replace") as log:
        lines = log.read().splitlines()
    return f"its log ends with: {lines[-1][:300]}" if lines else "its log is empty"


def finish(wire: Wire, names: Iterable[str]) -> list[dict]:
    """Wait until agents' turns have ended, and return the agents.

    Raises:
        FigureFailed: a turn hasn't succeeded, or doesn't end.
    """
    agents = wire.call("agent.wait", agents=list(names))
    for agent in agents:
        turn = agent["turn"]
        if turn is None or turn["outcome"] != "success":
            said = "had no turn" if turn is None else f"had a turn that ended as {turn['outcome']}: {turn['error']}"
            raise FigureFailed(f"{agent['name']} {said}")
    return agents


@contextmanager
def program(text: str) -> Iterator[str]:
    """Write an agent program and return its path."""
    with tempfile.TemporaryDirectory(prefix="") as directory:
        path = os.path.join(directory, "agent")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)
        yield path


# Timing


def paired(ours: Callable[[], float], floor: Callable[[], float], times: int) -> tuple[float, float]:
    """Measure two things in turns, so that other load meets both alike; returns the medians, in milliseconds."""
    pairs = [(ours(), floor()) for _ in range(times)]
    first, second = (statistics.median(column) * 1000 for column in zip(*pairs, strict=True))
    return first, second


def timed(command: list[str], environ: dict[str, str] | None = None) -> float:
    """Return how long a whole process takes, in seconds; raises `FigureFailed` when it fails."""
    began = time.perf_counter()
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environ
    )
    with process:
        try:
            said = process.communicate(timeout=PATIENCE_S)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            raise FigureFailed(f"{os.path.basename(command[0])} hasn't ended after {PATIENCE_S:g} s") from None
    took = time.perf_counter() - began
    if process.returncode:
        last = said.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise FigureFailed(f"{os.path.basename(command[0])} ended with {process.returncode}: {last[:300]}")
    return took
