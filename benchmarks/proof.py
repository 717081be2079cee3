"""Proves by counting: kills the daemon in the middle of turns, and compares what it shows with what a judge sees.

`python benchmarks/proof.py --kills 100 --seed 1`, or `make proof`. In each round five agents are spawned, each meant for one
state: it asks, works, is stuck, has failed, is frozen or is gone. At a random moment of that the daemon is killed, and the
next one started. When the judge sees each agent where its script leads it, what the daemon shows is compared. The judge reads
/proc, the turns' files and the scripts, never the daemon's answers. Each agent first appends a word to a file: a word that is
missing there is lost work, one that stands there twice is doubled.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from harness import BIN, PATIENCE_S, STANDIN, FigureFailed, Wire, adopt_orphans, kill_descendants

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CONFIG = "[turns]\nmax_running = 64\nstuck_after = 1\nsilence_limit = 0\n"
QUIET_S = 3.0
"""Seconds that a stuck turn must have been silent: the daemon calls it that after one."""
SCRIPTS = {
    "answer": '/tool ask_operator {"question": "which way?"}',
    "working": "/shell : WORD; sleep 1000",
    "stuck": "/sleep 1000",
    "failed": "/exit 3",
    "suspended": "/shell : WORD; sleep 1000",
    "done": "/shell : WORD; sleep 1000",
}
"""What each agent does after its word, by the attention that it comes to; `suspended` is frozen, `done` is ended."""
AT_ONCE = 5
LAG_S = 0.5
"""Seconds by which the daemon may show a state later than the judge has seen it: it learns by events."""


class Agent(NamedTuple):
    """An agent of one round.

    Args:
        name: its name, which is also its word.
        kind: the attention that it comes to.
        id: its id, which names its files.
    """

    name: str
    kind: str
    id: str


class Stage:
    """A daemon that may die, and the one file that all agents write to.

    Args:
        root: a directory for all of it.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self.socket = f"{root}/run/daemon.sock"
        self.log = f"{root}/ws/log"
        for name in ("home", "ws"):
            os.mkdir(f"{root}/{name}")
        with open(f"{root}/config.toml", "w", encoding="utf-8") as file:
            file.write(CONFIG)
        self.start()

    def start(self) -> None:
        """Start a daemon; `call` waits for it."""
        environ = {"PATH": os.environ["PATH"], "HOME": f"{self.root}/home", "SUBSTRAT_AGENT_BINARY": STANDIN}
        places = ("--state-dir", f"{self.root}/state", "--runtime-dir", f"{self.root}/run")
        command = [f"{BIN}/substratd", *places, "--config", f"{self.root}/config.toml"]
        with open(f"{self.root}/daemon.log", "ab") as log:
            self._process = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stderr=log)

    def kill(self) -> None:
        """Kill the daemon and start the next one."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(PATIENCE_S)
        self.start()

    def call(self, method: str, **params: object) -> object:
        """Make a request, as often as it takes while the daemon starts."""

        answers: list[object] = []

        def ask() -> bool:
            with suppress(FigureFailed):
                wire = Wire(self.socket)
                try:
                    answers.append(wire.call(method, **params))
                finally:
                    wire.close()
            return bool(answers)

        until(ask, f"an answer to {method}")
        return answers[0]

    def spawn(self, name: str, kind: str) -> Agent:
        """Create an agent that begins its turn."""
        script = f"/shell echo {name} >> log\n{SCRIPTS[kind].replace('WORD', name)}"
        made = self.call("agent.spawn", name=name, workspace=f"{self.root}/ws", network="none", prompt=script)
        assert isinstance(made, dict)
        return Agent(name, kind, made["id"])

    def words(self) -> Counter[str]:
        """Return how often each word stands in the file."""
        if not os.path.exists(self.log):
            return Counter()
        with open(self.log, encoding="utf-8") as file:
            return Counter(file.read().split())

    def output(self, agent: Agent) -> str:
        """Return the path of the output of an agent's turn."""
        return f"{self.root}/state/agents/{agent.id}/turns/1/stdout"


def until(condition: Callable[[], object], what: str, seconds: float = PATIENCE_S) -> object:
    """Wait for a condition and return its value; raises `FigureFailed` when that takes too long."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise FigureFailed(f"waited {seconds:g} s in vain for {what}")
        time.sleep(0.02)
    return value


# The judge


def is_there(stage: Stage, agent: Agent) -> bool:
    """Say whether an agent has come to where its script leads, as the machine shows it."""
    if not stage.words()[agent.name]:
        return False
    events = _events(stage.output(agent))
    has_result = any(event.get("type") == "result" for event in events)
    match agent.kind:
        case "answer":
            asked = any("ask_operator" in json.dumps(event.get("tool_call", "")) for event in events)
            return asked and has_result and not _shells(agent) and _has_ended(stage, agent)
        case "failed":
            return bool(events) and not has_result and _has_ended(stage, agent)
        case "stuck":
            return time.time() - os.stat(stage.output(agent)).st_mtime > QUIET_S and not _has_ended(stage, agent)
        case "working":
            return "S" in _shells(agent)
        case "suspended":
            return set(_shells(agent)) == {"T"}
        case _:
            return not _shells(agent) and _has_ended(stage, agent)


def _events(path: str) -> list[dict[str, object]]:
    with open(path, encoding="utf-8", errors="replace") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def _shells(agent: Agent) -> list[str]:
    """Return the states of the shells whose command has an agent's word (proc(5), stat)."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            with open(f"/proc/{name}/cmdline", "rb") as file:
                command = file.read().split(b"\0")
            if any(f": {agent.name};".encode() in word for word in command):
                with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as file:
                    found.append(file.read().rpartition(")")[2].split()[0])
    return found


def _has_ended(stage: Stage, agent: Agent) -> bool:
    """Say whether no process has an agent's output open any more."""
    output = os.stat(stage.output(agent))
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            found = os.stat(f"/proc/{name}/fd/1")
            if (found.st_dev, found.st_ino) == (output.st_dev, output.st_ino):
                return False
    return True


# The rounds


def play(stage: Stage, number: int, chance: random.Random) -> Counter[str]:
    """Play one round, and count what was shown and what of it was wrong."""
    kinds = [list(SCRIPTS)[(number * AT_ONCE + index) % len(SCRIPTS)] for index in range(AT_ONCE)]
    agents, killed = [], chance.randrange(AT_ONCE)
    for index, kind in enumerate(kinds):
        agents.append(stage.spawn(f"r{number}-{kind}", kind))
        if index == killed:
            time.sleep(chance.random() / 2)
            stage.kill()
    for agent in agents:
        if agent.kind in {"suspended", "done"}:
            until(partial(_shells, agent), f"the shell of {agent.name}")
        if agent.kind == "suspended":
            stage.call("agent.suspend", agent=agent.id, freeze=True)
        elif agent.kind == "done":
            stage.call("agent.end", agent=agent.id)
    counts: Counter[str] = Counter()
    for agent in agents:
        until(partial(is_there, stage, agent), f"{agent.name} to come to {agent.kind}")
        counts["shown"] += 1
        try:
            until(partial(_is_shown, stage, agent), f"{agent.name} to be shown as that", LAG_S)
        except FigureFailed as problem:
            counts["wrong"] += 1
            print(f"wrong: {problem}; it is {_shown(stage, agent)}", file=sys.stderr)
    for agent in agents:
        stage.call("agent.end", agent=agent.id)
        stage.call("agent.rm", agent=agent.id)
    return counts


def _is_shown(stage: Stage, agent: Agent) -> bool:
    return _shown(stage, agent) == agent.kind


def _shown(stage: Stage, agent: Agent) -> str:
    found = stage.call("agent.show", agent=agent.id)
    assert isinstance(found, dict)
    return str(found["attention"]["kind"])


def main(line: Sequence[str] | None = None) -> int:
    """Play the rounds, print the table and return the exit status: 1 when anything is lost, doubled or wrong."""
    parser = argparse.ArgumentParser(description="Count what survives the daemon's deaths.")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(line)
    adopt_orphans()
    chance, counts = random.Random(given.seed), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="proof-") as root:
        try:
            stage = Stage(root)
            for number in range(given.kills):
                counts += play(stage, number, chance)
            words = stage.words()
        finally:
            kill_descendants()
    turns = given.kills * AT_ONCE
    lost, doubled = turns - len(words), sum(count > 1 for count in words.values())
    print("| kills of the daemon | turns | lost | doubled | states shown | wrong |\n|---|---|---|---|---|---|")
    print(f"| {given.kills} | {turns} | {lost} | {doubled} | {counts['shown']} | {counts['wrong']} |")
    return int(bool(lost or doubled or counts["wrong"]))


if __name__ == "__main__":
    sys.exit(main())
