"""Measures a family of agents: 200 of them, 50 of which run turns at once, and the lists of 500 with 2,000 tasks.

- *daemon's processor*: the processor time of the daemon's own process in five seconds in which 50 turns call a tool twice a
  second each and a client calls others, a hundred a second, in cores. Beside it: that of the same daemon in one second in
  which nothing runs.
- *tool call p99*: from a client's request at the socket of an agent whose turn runs, in those five seconds, to the answer;
  three in four calls commit something. A client that called faster would soon be held to 20 calls a second. Beside it: the
  same with one turn, which only sleeps, in the median.
- *each list*: the slowest of `agent.list`, `queue.list`, `wait.list`, `message.list` and the tool `list_agents`, each in the
  median, meanwhile; and of a family of 500 idle agents with 2,000 tasks, `task.list` too. Beside it: `daemon.status`.
"""

from __future__ import annotations

import json
import socket
import statistics
import tempfile
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from harness import PATIENCE_S, Figure, FigureFailed, Wire, cpu_seconds, daemon

from measures.sizes import populate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Daemon

CORES, CALL = "200 agents, 50 turns at once: daemon's processor", "200 agents, 50 turns at once: tool call p99"
LISTS, MORE_LISTS = "200 agents, 50 turns at once: each list", "500 agents and 2,000 tasks: each list"
NAMES = (CORES, CALL, LISTS, MORE_LISTS)
SECONDS = 90.0  # fifty sandboxes start, which takes most of it
_WINDOW = 5.0  # seconds
_TURNS = 50
_PAUSE_S = 0.01
"""Between two calls: all of the client's together stay below what a turn may send at once (`servers/agent.py`, `_BURST`)."""
_CONFIG = "[limits]\nchildren = 1000\nfamily = 1000\n"
_STEP = '/tool list_agents {"scope": "family"}\n/sleep 0.5\n/tool report_status {"text": "at it"}\n/sleep 0.5\n'
_NEEDS = ["p0", "p3"]
_LISTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("agent.list", {}), ("queue.list", {}), ("wait.list", {}), ("message.list", {"agent": "lead"})
)  # fmt: skip
_CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("report_status", {"text": "at it"}), ("list_agents", {"scope": "family"}), ("check_inbox", {}),
    ("remind_me", {"text": "later", "in_s": 9e6}), ("cancel_reminder", {"reminder": 0}),
)  # fmt: skip


class _Door:
    """A client at an agent's socket."""

    def __init__(self, running: Daemon, agent_id: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(PATIENCE_S)
        self._socket.connect(f"{running.root}/run/agents/{agent_id}/agent.sock")
        self._file = self._socket.makefile("rwb")
        self._number = 0
        client = {"name": "bench", "version": "1"}
        self._ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})

    def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self._file.write(json.dumps(message).encode() + b"\n")
        self._file.flush()
        line = self._file.readline()
        if not line:
            raise FigureFailed("the daemon closed an agent's connection")
        return json.loads(line)

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Call a tool and return its answer's text."""
        return self._ask("tools/call", {"name": name, "arguments": arguments})["result"]["content"][0]["text"]

    def close(self) -> None:
        """Close the connection."""
        self._file.close()
        self._socket.close()


class _Times(NamedTuple):
    calls: list[float]
    lists: dict[str, list[float]]


def measure() -> Iterator[Figure]:
    """Take the figures."""
    with _family(200) as running:
        wire = Wire(running.socket)
        resting = _cores(running, lambda: time.sleep(1.0))
        lead = wire.call("agent.show", agent="lead")["id"]
        wire.call("agent.send", agent="lead", prompt="/tool whoami {}\n/sleep 600")
        _wait_running(wire, 1)
        door = _Door(running, lead)
        floor = statistics.median(_taken(wire, door, 1.0).calls)
        for number in range(_TURNS - 1):
            wire.call("agent.send", agent=f"idle-{number}", prompt=_STEP * 60)
        _wait_running(wire, _TURNS)
        found: list[_Times] = []
        cores = _cores(running, lambda: found.append(_taken(wire, door, _WINDOW)))
        (busy,), status = found, _median(lambda: wire.call("daemon.status"))
        door.close()
        wire.close()
    yield Figure(CORES, f"{cores:.2f} cores", f"at rest {resting:.2f}", "< 1 core", met=cores < 1)
    late = statistics.quantiles(busy.calls, n=100)[98] * 1000
    value = f"{late:.1f} ms of {len(busy.calls)} calls"
    yield Figure(CALL, value, f"one turn, median {floor * 1000:.1f} ms", "< 20 ms", met=late < 20)
    yield _lists(LISTS, busy.lists, status)
    yield _of_many()


@contextmanager
def _family(count: int) -> Iterator[Daemon]:
    """Run a daemon with a family of so many agents."""
    with tempfile.TemporaryDirectory(prefix="") as root:
        populate(root, count - 1, lead="lead")
        with daemon(root=root, config=_CONFIG) as running:
            yield running


def _of_many() -> Figure:
    with _family(500) as running:
        wire = Wire(running.socket)
        new = [{"title": f"part {number}", "id": f"p{number}", "needs": _NEEDS[: number % 3]} for number in range(2000)]
        wire.call("task.add", agent="lead", tasks=json.dumps(new))
        asked = (*_LISTS, ("task.list", {"agent": "lead"}))
        lists = {method: [_timed(wire, method, params) for _ in range(15)] for method, params in asked}
        status = _median(lambda: wire.call("daemon.status"))
        wire.close()
    return _lists(MORE_LISTS, lists, status)


def _lists(name: str, lists: dict[str, list[float]], status: float) -> Figure:
    medians = {method: statistics.median(times) * 1000 for method, times in lists.items()}
    slowest = max(medians, key=lambda method: medians[method])
    value = f"{slowest} {medians[slowest]:.1f} ms"
    return Figure(name, value, f"daemon.status {status * 1000:.1f} ms", "< 50 ms", met=medians[slowest] < 50)


def _taken(wire: Wire, door: _Door, seconds: float) -> _Times:
    """Call the tools one after the other at the client's pace, and each list now and then, for some seconds."""
    times = _Times([], {method: [] for method, _ in (*_LISTS, ("list_agents", {}))})
    reminder, ends = 0, time.perf_counter() + seconds
    while time.perf_counter() < ends:
        for name, arguments in _CALLS:
            given = {"reminder": reminder} if name == "cancel_reminder" else arguments
            time.sleep(_PAUSE_S)
            began = time.perf_counter()
            answer = door.call(name, given)
            times.calls.append(time.perf_counter() - began)
            reminder = int(answer.split()[1]) if name == "remind_me" else 0
            if name == "list_agents":
                times.lists[name].append(times.calls[-1])
        method, params = _LISTS[len(times.calls) % len(_LISTS)]
        times.lists[method].append(_timed(wire, method, params))
    return times


def _timed(wire: Wire, method: str, params: dict[str, Any]) -> float:
    began = time.perf_counter()
    wire.call(method, **params)
    return time.perf_counter() - began


def _median(call: Callable[[], object]) -> float:
    took = []
    for _ in range(15):
        began = time.perf_counter()
        call()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def _cores(running: Daemon, meanwhile: Callable[[], None]) -> float:
    before, began = cpu_seconds(running.pid), time.perf_counter()
    meanwhile()
    return (cpu_seconds(running.pid) - before) / (time.perf_counter() - began)


def _wait_running(wire: Wire, count: int) -> None:
    """Wait until so many agents run and have called a tool, or written a line."""
    ends = time.monotonic() + SECONDS
    while sum(agent["state"] == "running" and agent["activity"] is not None for agent in wire.call("agent.list")) < count:
        if time.monotonic() > ends:
            raise FigureFailed(f"fewer than {count} turns run")
        time.sleep(0.2)
