"""Measures how fast events come through, live and read back.

- *event*: from the agent's clock just before it writes a line to a subscriber's after it has read the event: 400 lines of
  one agent, one every 10 ms.
- *reading back*: a client reads all 300,000 events of one turn, whose result has 1 MiB, page by page, and decodes them.
  Beside it: decoding the turn's output without a daemon. Meanwhile another client asks for the list of agents again and
  again, and the longest it waited is a figure of its own, beside the longest of a second without a reader.
- *100 followers of 50 agents*: the processor time that the daemon uses while 50 agents write a line ten times a second
  and 100 clients are sent every event, for each 50,000 events a second sent.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from harness import PATIENCE_S, Figure, FigureFailed, Wire, cpu_seconds, daemon, finish, program, wait_readable

if TYPE_CHECKING:
    from collections.abc import Iterator

P50, P99 = "event: written to read, p50", "event: written to read, p99"
LIVE_NAMES = (P50, P99)
LIVE_SECONDS = 40.0  # ten times the 4 s in which the lines come
_LINES = 400  # so that p99 is the fourth largest, not the largest
BACK_EVENTS = 300_000  # a long turn, and more than the daemon keeps in memory
BACK, MEANWHILE = f"reading back {BACK_EVENTS} events and a result of 1 MiB", "another request meanwhile, longest"
BACK_NAMES = (BACK, MEANWHILE)
BACK_SECONDS = 90.0  # the goal is 10 s for the reading; writing the events takes longer
FOLLOWERS = "100 followers of 50 agents"
FOLLOWERS_NAMES = (FOLLOWERS,)
FOLLOWERS_SECONDS = 60.0  # starting 50 agents and 100 connections, and some seconds of measuring
_RATE = 50_000  # 50 agents x 10 lines a second x 100 followers

_TICKER = f"""#!/usr/bin/python3
import time
for n in range({_LINES}):
    print('{{"type":"bench","at":%f}}' % time.time(), flush=True)
    time.sleep(0.01)
print('{{"type":"result","subtype":"success","result":"x"}}', flush=True)
"""
_LONG = f"""#!/usr/bin/python3
import json
line = {{"type": "assistant", "timestamp_ms": 1, "message": {{"content": [{{"type": "text", "text": "words " * 5}}]}}}}
for n in range({BACK_EVENTS}):
    print(json.dumps(line))
print(json.dumps({{"type": "result", "subtype": "success", "result": "x" * 2**20}}))
"""
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def measure_live() -> Iterator[Figure]:
    """Take the figures of one subscriber."""
    with program(_TICKER) as agent, daemon(agent) as running:
        wire, asking = Wire(running.socket), Wire(running.socket)
        wire.call("events.subscribe")
        asking.call("agent.spawn", workspace=f"{running.root}/ws", name="a", prompt="x")
        delays: list[float] = []
        while True:
            message = wire.read("an event of the agent's")
            now = time.time()
            event = message.get("params", {}).get("event", {})
            if event.get("kind") == "turn:ended":
                break
            if "at" in (event.get("raw") or {}):
                delays.append((now - event["raw"]["at"]) * 1000)
        finish(asking, ["a"])
        wire.close()
        asking.close()
    if len(delays) != _LINES:
        raise FigureFailed(f"{len(delays)} of {_LINES} lines came as events")
    delays.sort()
    p50, p99 = delays[_LINES // 2], delays[_LINES * 99 // 100]
    yield Figure(P50, f"{p50:.1f} ms", "-", "< 3 ms", met=p50 < 3)
    yield Figure(P99, f"{p99:.1f} ms", "-", "< 15 ms", met=p99 < 15)


def measure_back() -> Iterator[Figure]:
    """Take the figures of reading back."""
    with program(_LONG) as agent, daemon(agent) as running:
        wire = Wire(running.socket)
        spawned = wire.call("agent.spawn", workspace=f"{running.root}/ws", name="a", prompt="x")
        finish(wire, ["a"])
        quiet = _Child("prober", running.socket)
        time.sleep(1.0)
        usual = float(quiet.end()) * 1000
        # In a process of its own: a thread would wait for this one's decoding, not for the daemon.
        prober = _Child("prober", running.socket)
        began, cursor, count = time.perf_counter(), 0, 0
        while (page := wire.call("events.read", since=cursor))["events"]:
            cursor = page["cursor"]
            count += sum(event["kind"] == "assistant:delta" for event in page["events"])
        took = time.perf_counter() - began
        longest = float(prober.end()) * 1000
        whole = wire.call("agent.show", agent="a")["turn"]["result"]
        if count != BACK_EVENTS or len(whole) != 2**20:
            raise FigureFailed(f"{count} of {BACK_EVENTS} events and {len(whole)} bytes of the result came back")
        began = time.perf_counter()
        with open(f"{running.root}/state/agents/{spawned['id']}/turns/1/stdout", "rb") as file:
            for line in file:
                json.loads(line)
        floor = time.perf_counter() - began
        wire.close()
        yield Figure(BACK, f"{took:.1f} s", f"json.loads of its lines {floor:.1f} s", "< 10 s", met=took < 10)
        yield Figure(MEANWHILE, f"{longest:.0f} ms", f"without a reader {usual:.0f} ms", "< 50 ms", met=longest < 50)


def measure_followers() -> Iterator[Figure]:
    """Take the figure of many followers."""
    with daemon() as running:
        wire = Wire(running.socket)
        names = [f"busy-{number}" for number in range(50)]
        for name in names:
            os.mkdir(f"{running.root}/{name}")
        # Far longer than the measurement; the agents are stopped with the daemon.
        prompt = "\n".join(["/emit 1 40\n/sleep 0.1"] * 600)
        for name in names:
            wire.call("agent.spawn", workspace=f"{running.root}/{name}", name=name, prompt=prompt, network="none")
        _wait_until_all_emit(wire, set(names))
        followers = _Child("followers", running.socket, "100")
        before, began = cpu_seconds(running.pid), time.perf_counter()
        time.sleep(5.0)
        used, took = cpu_seconds(running.pid) - before, time.perf_counter() - began
        events, seconds = map(float, followers.end().split())
        states = {agent["name"]: agent["state"] for agent in wire.call("agent.list")}
        wire.close()
        if stopped := [name for name in names if states[name] != "running"]:
            raise FigureFailed(
                f"{len(stopped)} of the 50 agents had stopped before the end: {stopped[0]} is {states[stopped[0]]}"
            )
    rate = events / seconds
    if rate < _RATE / 10:
        raise FigureFailed(f"only {rate:.0f} events a second were sent, too few to judge {_RATE}")
    cores = used / took * _RATE / rate
    value = f"{cores:.2f} cores ({used / took:.2f} at {rate:.0f} events/s)"
    yield Figure(FOLLOWERS, value, "-", f"< 0.5 cores at {_RATE} events/s", met=cores < 0.5)


def _wait_until_all_emit(wire: Wire, names: set[str]) -> None:
    ids = {wire.call("agent.show", agent=name)["id"] for name in names}
    subscription = wire.call("events.subscribe", since=0)["subscription"]
    while ids:
        event = wire.read("an event of each agent").get("params", {}).get("event", {})
        if event.get("kind") == "assistant:delta":
            ids.discard(event["agent"])
    wire.call("events.unsubscribe", subscription=subscription)


class _Child:
    """A client in a process of its own (`clients.py`), from its first word on.

    Args:
        kind: which client.
        arguments: its further arguments.

    Raises:
        FigureFailed: it doesn't begin.
    """

    def __init__(self, kind: str, *arguments: str) -> None:
        self._kind = kind
        self._process = subprocess.Popen(
            [sys.executable, os.path.join(_HERE, "clients.py"), kind, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        wait_readable(self._process.stdout.fileno(), f"the {kind}'s beginning")
        if self._process.stdout.readline() != b"begun\n":
            raise FigureFailed(f"the {kind} ended with {self._process.wait(PATIENCE_S)} before it had begun")

    def end(self) -> str:
        """Let it stop, and return its result."""
        try:
            said = self._process.communicate(timeout=PATIENCE_S)[0].decode()
        except subprocess.TimeoutExpired:
            raise FigureFailed(f"the {self._kind} hasn't ended after {PATIENCE_S:g} s") from None
        if self._process.returncode:
            raise FigureFailed(f"the {self._kind} ended with {self._process.returncode}")
        return said
