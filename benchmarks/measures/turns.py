"""Measures the cost of starting and of running a turn.

- *spawn*: from writing the request `agent.spawn` to the first thing that the agent program does, which is to write to a
  FIFO in its workspace. Beside it: the same program started by bubblewrap alone, with the options of an agent with the
  network `none`, while a turn of that agent runs, because some mounts' sources exist only meanwhile.
- *processor time of a turn*: that of the daemon's own process from the prompt to the turn's end, in the mean of 40 turns of
  a stand-in that begins its MCP connections and says one line. The network is `filtered`. Beside it: that of
  `python -I -c pass` in the same run, in the median; other load makes both larger, by half and more.
- *100 turns at once*: how many succeed, the time from the first request to the last end beside the 8 seconds that each
  sleeps, and the daemon's memory at the end.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from harness import (
    Figure,
    FigureFailed,
    Wire,
    cpu_seconds,
    daemon,
    finish,
    paired,
    program,
    rss_mib,
    wait_end,
    wait_readable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

SPAWN = {
    "none": ("spawn none: request to first instruction", 15),
    "filtered": ("spawn filtered: request to first instruction", 25),
}
SPAWN_NAMES = tuple(name for name, _ in SPAWN.values())
SPAWN_SECONDS = 60.0  # for some dozens of starts with each network
TURN = "the daemon's processor time of a turn"
TURN_NAMES = (TURN,)
TURN_SECONDS = 60.0  # more than a second a turn, most of which the stand-in takes
_TURNS = 40  # the mean is of processor time, which the kernel counts in coarse steps
RUN, WALL, MEMORY = "100 turns at once: succeeded", "100 turns at once: wall time", "100 turns at once: daemon memory"
HUNDRED_NAMES = (RUN, WALL, MEMORY)
HUNDRED_SECONDS = 90.0  # the goal for the whole is 12 s
_SLEEP = 8  # seconds: longer than all the starts, so that a hundred turns really run at once

_FIRST = "#!/bin/sh\necho x >first\n[ ! -e hold ] || exec sleep 600\n"


class _Fifo:
    """The FIFO in a workspace that an agent program writes to first of all."""

    def __init__(self, workspace: str) -> None:
        os.makedirs(workspace, exist_ok=True)
        path = os.path.join(workspace, "first")
        if not os.path.exists(path):
            os.mkfifo(path)
        # Opened for writing too: a FIFO without a writer reads as ended.
        self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def wait(self) -> None:
        """Wait until the program has begun, and close the FIFO."""
        try:
            wait_readable(self._descriptor, "the agent program's first instruction")
            os.read(self._descriptor, 64)
        finally:
            os.close(self._descriptor)


def measure_spawn() -> Iterator[Figure]:
    """Take the figures of spawning."""
    with program(_FIRST) as agent, daemon(agent) as running:
        wire = Wire(running.socket)
        held = f"{running.root}/ws"
        first = _Fifo(held)
        open(f"{held}/hold", "w", encoding="ascii").close()
        wire.call("agent.spawn", workspace=held, name="held", prompt="x", network="none")
        first.wait()
        command = wire.call("agent.explain", agent="held")["command"]
        os.unlink(f"{held}/hold")  # a program that bubblewrap alone starts then ends at once
        for network, (name, more) in SPAWN.items():
            _spawn(wire, f"{running.root}/warm-{network}", network)
            ours, floor = paired(
                partial(_spawn_next, wire, f"{running.root}/{network}", iter(range(1000)), network),
                lambda: _bare(command, held),
                15,
            )
            value = f"{ours:.1f} ms, +{ours - floor:.1f} ms"
            yield Figure(name, value, f"bare bwrap {floor:.1f} ms", f"floor + {more} ms", met=ours <= floor + more)
        wire.close()


def _spawn(wire: Wire, workspace: str, network: str) -> float:
    first, name = _Fifo(workspace), os.path.basename(workspace)
    began = time.perf_counter()
    number = wire.send("agent.spawn", workspace=workspace, name=name, network=network, prompt="x")
    first.wait()
    took = time.perf_counter() - began
    wire.answer(number, "agent.spawn")
    # The turn's end must not fall into the next measurement.
    wire.call("agent.wait", agents=[name])
    return took


def _spawn_next(wire: Wire, stem: str, numbers: Iterator[int], network: str) -> float:
    return _spawn(wire, f"{stem}-{next(numbers)}", network)


def _bare(command: str, workspace: str) -> float:
    first = _Fifo(workspace)
    began = time.perf_counter()
    process = subprocess.Popen(
        ["/bin/sh", "-c", f"exec {command}"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    with process:
        first.wait()
        took = time.perf_counter() - began
        if status := wait_end(process, "bubblewrap"):
            said = process.stderr.read().decode("utf-8", "replace").strip()
            raise FigureFailed(f"bubblewrap ended with {status}: {said[:300]}")
    return took


def measure_turn() -> Iterator[Figure]:
    """Take the figure of the daemon's processor time."""
    with daemon() as running:
        wire = Wire(running.socket)
        wire.call("agent.spawn", workspace=f"{running.root}/ws", name="a", prompt="one")
        finish(wire, ["a"])
        before, floors = cpu_seconds(running.pid), list[float]()
        for _ in range(_TURNS):
            wire.call("agent.send", agent="a", prompt="one more")
            finish(wire, ["a"])
            floors.append(_bare_python())
        took = (cpu_seconds(running.pid) - before) / _TURNS * 1000
        wire.close()
        floor = f"python -I -c pass {statistics.median(floors) * 1000:.1f} ms"
        yield Figure(TURN, f"{took:.1f} ms", floor, "< 10 ms", met=took < 10)


def _bare_python() -> float:
    """Return the processor time that starting Python takes, in seconds."""
    pid = os.posix_spawn(sys.executable, [sys.executable, "-I", "-c", "pass"], {})
    _, status, use = os.wait4(pid, 0)
    if status:
        raise FigureFailed(f"python -I -c pass ended with {os.waitstatus_to_exitcode(status)}")
    return use.ru_utime + use.ru_stime


def measure_hundred() -> Iterator[Figure]:
    """Take the figures of a hundred turns at once."""
    with daemon() as running:
        wire = Wire(running.socket)
        names = [f"busy-{number}" for number in range(100)]
        began = time.perf_counter()
        for name in names:
            os.mkdir(f"{running.root}/{name}")
            prompt = f"/tool whoami {{}}\n/sleep {_SLEEP}"
            wire.call("agent.spawn", workspace=f"{running.root}/{name}", name=name, prompt=prompt)
        agents = wire.call("agent.wait", agents=names)
        took = time.perf_counter() - began
        memory = rss_mib(running.pid)
        wire.close()
        good = sum(agent["turn"]["outcome"] == "success" for agent in agents)
        yield Figure(RUN, str(good), "-", "100", met=good == len(names))
        longest = 1.5 * _SLEEP
        yield Figure(WALL, f"{took:.1f} s", f"{_SLEEP} s asleep", "1.5 times the floor", met=took <= longest)
        yield Figure(MEMORY, f"{memory:.0f} MiB", "-", "< 120 MiB", met=memory < 120)
