"""Measures the cost of idle agents, and of `substratctl ls`.

- *substratctl ls*: the whole process, beside `python -I -c pass` with the same Python, without agents, with 1,000
  and with 10,000, whose objects the daemon has made before.
- *idle agent: daemon memory*: the daemon's resident memory with 5,000 idle agents, less that of one without agents,
  for each agent. The agents' rows are written into the database beforehand, so it is a restored daemon that is measured.
- *5,000 agents: exec to ready*: from starting the daemon to its word that it is ready, beside one without agents.
- *5,000 idle agents: wakeups*: how often the daemon woke in two seconds, and its processes, those that look at files
  among them, beside one without agents: an idle agent has no process and no timer.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
import uuid
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from harness import BIN, Figure, Wire, daemon, descendants, paired, rss_mib, switches, timed

from sandbox.spec import Network
from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.records import Agent
from substrat.core.agents.rights import Policy
from substrat.daemon.state.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

LS = {
    0: ("substratctl ls, whole process", 2.3),
    1000: ("substratctl ls, 1000 agents", 4.0),
    10_000: ("substratctl ls, 10000 agents", 8.0),
}
LS_NAMES = tuple(name for name, _ in LS.values())
LS_SECONDS = 90.0  # for three daemons and some hundred starts of Python
MEMORY, READY = "idle agent: daemon memory", "5000 agents: exec to ready"
WAKEUPS = "5000 idle agents: wakeups in 2 s, processes"
IDLE_NAMES = (MEMORY, READY, WAKEUPS)
IDLE_SECONDS = 60.0  # for two daemons, one of which restores all agents
_AGENTS = 5000  # so many that one agent's share shows beside the daemon's own memory


def measure_ls() -> Iterator[Figure]:
    """Take the figures of `substratctl ls`."""
    bare = [sys.executable, "-I", "-c", "pass"]
    for agents, (name, most) in LS.items():
        with tempfile.TemporaryDirectory(prefix="") as root:
            populate(root, agents)
            with daemon(root=root) as running:
                environ = {**os.environ, "SUBSTRAT_SOCKET": running.socket}
                command = [f"{BIN}/substratctl", "ls"]
                ours, floor = paired(partial(timed, command, environ), partial(timed, bare), 25)
        times = ours / floor
        value = f"{ours:.1f} ms, {times:.2f} times the floor"
        yield Figure(name, value, f"python -I -c pass {floor:.1f} ms", f"{most:g} times the floor", met=times <= most)


class _Idle(NamedTuple):
    """A daemon at rest."""

    ready: float
    memory: float
    wakeups: int
    processes: int


def measure_idle() -> Iterator[Figure]:
    """Take the figures of idle agents."""
    empty, full = _at_rest(0), _at_rest(_AGENTS)
    each = (full.memory - empty.memory) * 1024 / _AGENTS
    yield Figure(MEMORY, f"{each:.2f} KiB", f"empty daemon {empty.memory:.0f} MiB", "< 3 KiB", met=each < 3)
    value, floor = f"{full.ready:.2f} s", f"without agents {empty.ready:.2f} s"
    yield Figure(READY, value, floor, "< 1 s", met=full.ready < 1)
    value = f"{full.wakeups}, {full.processes} processes"
    met = full.wakeups <= empty.wakeups + 2 and full.processes <= empty.processes
    yield Figure(WAKEUPS, value, f"without agents {empty.wakeups}, {empty.processes} processes", "floor", met=met)


def _at_rest(agents: int) -> _Idle:
    with tempfile.TemporaryDirectory(prefix="") as root:
        populate(root, agents)
        ready, memory = [], []
        for _ in range(3):
            with daemon(root=root) as running:
                ready.append(running.ready_after)
                wire = Wire(running.socket)
                wire.call("daemon.status")
                memory.append(rss_mib(running.pid))
                before = switches(running.pid)
                time.sleep(2.0)
                wakeups = switches(running.pid) - before
                found = _Idle(0, 0, wakeups, len(descendants(running.pid)))
                wire.close()
        return found._replace(ready=statistics.median(ready), memory=statistics.median(memory))


def populate(root: str, count: int, *, lead: str | None = None) -> None:
    """Write idle agents into a new state directory; ten of them share a workspace.

    Args:
        root: where the directory is made.
        count: how many agents.
        lead: the name of one more, whose children the others are; they have no network then.
    """
    os.makedirs(f"{root}/state", mode=0o700, exist_ok=True)
    store = Store(f"{root}/state/substrat.db")
    now = time.time()
    policy = Policy(Network.FILTERED, ("*.cursor.sh", "*.cursor.com")) if lead is None else Policy(Network.NONE)
    first = str(uuid.uuid4())
    names = ([lead] if lead is not None else []) + [f"idle-{number}" for number in range(count)]
    with store.transaction():
        for number, name in enumerate(names):
            workspace = f"{root}/ws-{number // 10}"
            os.makedirs(workspace, exist_ok=True)
            agent_id, parent = (first, None) if not number else (str(uuid.uuid4()), first if lead is not None else None)
            store.save_agent(Agent(agent_id, name, Phase.IDLE, workspace, "auto", policy, now, since=now, parent=parent))
    store.close()
