"""Many stand-in agents for as long as asked, with random kills, messages and suspends; `make soak`.

A private daemon in a temporary directory is kept busy. In the first part it is killed again and again; in the second one
only sandboxes are, so that one daemon's memory, descriptors and threads can be compared before and after. What is accepted
gets a token, and in the end each token must have been told to its agent, once. The exit status is 1 if one was lost or told
twice, if a process is left, or if something grew that should not.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import trio
from harness import BIN, STANDIN, rss_mib

import substrat
from substrat import errors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

PATIENCE = 120.0
"""How long anything may take that must happen: 50 agents share the machine."""
WORKERS = 8
PROGRESS_S = 5.0
RESTARTED_PART = 0.4
"""The part of the time in which the daemon is killed again and again."""
WARM_PART = 0.25
"""The part of the rest after which memory counts: by then caches are filled and everything is imported."""
MEMORY_SLACK = (1.10, 12.0)
"""What memory may grow: a factor, for the allocator's fragments, and MiB: the newest events are kept, up to 8 MiB of them."""
QUOTED = "You were stopped in the middle"
AWAY = (errors.ConnectionLost, errors.DaemonNotRunning)
UNTOLD = "accepted and never told"


class Figures(NamedTuple):
    """What must not grow, and what may."""

    rss: float
    descriptors: int
    threads: int
    database: int
    used: int
    events: int
    files: int
    processes: int


class Ledger:
    """What was accepted and what was told.

    Args:
        broken: where broken promises are noted.
    """

    def __init__(self, broken: list[str]) -> None:
        self.broken = broken
        self.names: dict[str, str] = {}
        self.accepted: dict[str, set[str]] = {}
        self.told: Counter[str] = Counter()
        self.retold: Counter[str] = Counter()
        self.running: dict[str, str] = {}
        self.cursor = 0
        self.events = 0
        self.outcomes: Counter[str] = Counter()

    def accept(self, name: str, token: str) -> None:
        self.accepted.setdefault(name, set()).add(token)

    def take(self, event: dict) -> None:
        """Note an event that a subscriber was sent."""
        if event["cursor"] <= self.cursor:
            self.broken.append(f"event {event['cursor']} was sent after {self.cursor}")
        self.cursor = event["cursor"]
        self.events += 1
        agent, text = event["agent"], str(event["text"])
        match event["kind"]:
            case "agent:spawned":
                self.names[agent] = text.partition(" ")[0]
            case "message:received":
                for token in re.findall(rf"\btok\d+@{re.escape(self.names[agent])}\b", text):
                    self.accept(self.names[agent], token)
            case "turn:started":
                if agent in self.running:
                    self.broken.append(f"{self.names[agent]} began a turn beside another")
                self.running[agent] = event["turn"]
            case "turn:ended":
                if self.running.pop(agent, event["turn"]) != event["turn"]:
                    self.broken.append(f"{self.names[agent]} ended another turn than it began")
                self.outcomes[text.split()[2]] += 1
            case "user":
                self.take_prompt(self.names[agent], text)

    def take_prompt(self, name: str, text: str) -> None:
        # A call in a prompt holds a token for somebody else, maybe for the agent itself.
        own = re.findall(rf"\btok\d+@{re.escape(name)}\b", re.sub(r"(?m)^(> )*/tool .*$", "", text))
        if text.startswith(QUOTED):
            self.retold.update(own)
            return
        self.told.update(own)
        self.broken += [f"{token} was told {self.told[token]} times" for token in own if self.told[token] > 1]

    def untold(self, name: str) -> set[str]:
        return {token for token in self.accepted.get(name, ()) if not self.told[token] + self.retold[token]}


class Place:
    """A temporary directory with a daemon of its own, and its processes."""

    def __init__(self) -> None:
        self.root = tempfile.mkdtemp(prefix="substrat-soak-")
        self.workspaces = [f"{self.root}/ws{number}" for number in range(4)]
        for path in (f"{self.root}/home", *self.workspaces):
            os.mkdir(path, 0o700)
        self.socket = f"{self.root}/run/daemon.sock"
        self.process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        environ = {
            "PATH": os.environ["PATH"], "HOME": f"{self.root}/home", "LANG": "C.UTF-8",
            "SUBSTRAT_AGENT_BINARY": STANDIN, "NOTIFY_SOCKET": f"{self.root}/notify",
        }  # fmt: skip
        with trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_DGRAM) as ready:
            await ready.bind(environ["NOTIFY_SOCKET"])
            try:
                with open(f"{self.root}/log", "ab") as log:
                    command = [f"{BIN}/substratd", "--state-dir", f"{self.root}/state", "--runtime-dir", f"{self.root}/run"]
                    # A session of its own, so that Ctrl-C is for the soak alone.
                    self.process = subprocess.Popen(  # noqa: ASYNC220 - it returns at once
                        command, env=environ, stderr=log, start_new_session=True
                    )
                with trio.fail_after(PATIENCE):
                    while b"READY=1" not in await ready.recv(4096):
                        pass
            finally:
                os.unlink(environ["NOTIFY_SOCKET"])

    async def gone(self) -> int:
        """Wait until the daemon has ended."""
        assert self.process is not None
        with suppress(ProcessLookupError):
            pidfd = os.pidfd_open(self.process.pid)
            try:
                await trio.lowlevel.wait_readable(pidfd)
            finally:
                os.close(pidfd)
        return self.process.wait()

    def sandboxed(self) -> dict[int, str]:
        """The sandboxes' processes, each with the agent's id where it can be told."""
        found: dict[int, str] = {}
        # Not remembered: the kernel gives a namespace's number to a stranger's as soon as it is free.
        namespaces: set[str] = set()
        mark = f"{self.root}/state/agents/"
        daemon = self.process.pid if self.process is not None else 0
        pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
        for pid in set(pids) - {daemon, os.getpid()}:
            with suppress(OSError):
                for number in os.listdir(f"/proc/{pid}/fd"):
                    with suppress(OSError):
                        path = os.readlink(f"/proc/{pid}/fd/{number}")
                        if path.startswith(mark):
                            found[pid] = path[len(mark) :].partition("/")[0]
                if pid in found:
                    namespaces.add(os.readlink(f"/proc/{pid}/ns/pid"))
        namespaces.discard(os.readlink("/proc/self/ns/pid"))
        for pid in pids:
            with suppress(OSError):
                if os.readlink(f"/proc/{pid}/ns/pid") in namespaces and not _is_zombie(pid):
                    found.setdefault(pid, "")
        return found

    def files(self) -> int:
        """Count what turns and sockets leave in the daemon's directories."""
        return sum(len(files) for part in ("state/agents", "run/agents") for _, _, files in os.walk(f"{self.root}/{part}"))

    def database(self) -> tuple[int, int, int]:
        """Return the database's size, the bytes of it that are in use, and the number of events in it."""
        path = f"{self.root}/state/substrat.db"
        database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            values = [
                database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count", "freelist_count")
            ]
            events = database.execute("SELECT count(*) FROM events").fetchone()[0]
        finally:
            database.close()
        size, pages, free = values
        return size * pages, size * (pages - free), events

    def figures(self) -> Figures:
        assert self.process is not None
        pid = self.process.pid
        proc = f"/proc/{pid}"
        return Figures(
            rss_mib(pid), len(os.listdir(f"{proc}/fd")), len(os.listdir(f"{proc}/task")), *self.database(), self.files(),
            len(self.sandboxed()),
        )  # fmt: skip

    def remove(self) -> None:
        """End every process and remove every file, whatever went before."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        deadline = time.monotonic() + 10
        while (left := self.sandboxed()) and time.monotonic() < deadline:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        shutil.rmtree(self.root, ignore_errors=True)


def _is_zombie(pid: int) -> bool:
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[0] in "ZX"


class Soak:
    """One run.

    Args:
        place: where.
        agents: how many.
        seconds: for how long.
        seed: what is random depends on this, and on how fast the machine is.
    """

    def __init__(self, place: Place, agents: int, seconds: float, seed: int) -> None:
        self.place = place
        self.agents = agents
        self.seconds = seconds
        self.random = random.Random(seed)
        self.broken: list[str] = []
        self.ledger = Ledger(self.broken)
        self.done: Counter[str] = Counter()
        self.names: list[str] = []
        self.busy: set[str] = set()
        self.numbers = 0
        self.client: substrat.Client | None = None
        self.up = trio.Event()
        self.down_wanted = trio.Event()
        self.down_for_good = False
        self.over = trio.Event()
        self.resting = trio.Event()
        self.began = trio.current_time()

    # The daemon and those who listen to it

    async def keep_daemon(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start the daemon, and start it again whenever it was killed."""
        while not self.down_for_good:
            await self.place.start()
            async with substrat.Client.connect(self.place.socket) as client, trio.open_nursery() as nursery:
                self.client, self.down_wanted = client, trio.Event()
                nursery.start_soon(self.listen, client)
                nursery.start_soon(self.watch_daemon)
                self.up.set()
                task_status.started()
                task_status = trio.TASK_STATUS_IGNORED
                await self.down_wanted.wait()
                self.up = trio.Event()
                nursery.cancel_scope.cancel()
            await self.place.gone()

    async def watch_daemon(self) -> None:
        code = await self.place.gone()
        if not self.down_wanted.is_set():
            self.broken.append(f"the daemon ended by itself, with status {code}")
            self.over.set()
            self.down_wanted.set()

    async def listen(self, client: substrat.Client) -> None:
        with suppress(*AWAY):
            async with client.events(since=self.ledger.cursor) as events:
                async for event in events:
                    self.ledger.take(event)

    async def call(self, ask: Callable[[substrat.Client], Awaitable[object]], *, again: bool = True) -> object:
        """Make a request; when the daemon dies meanwhile, make it again with the next one if that is harmless.

        Raises:
            ConnectionLost: the daemon died and nobody knows whether it did it.
        """
        while True:
            await self.up.wait()
            assert self.client is not None
            try:
                return await ask(self.client)
            except AWAY:
                if not again:
                    raise
                await trio.sleep(0.01)

    async def kill_daemon_often(self) -> None:
        while True:
            await trio.sleep(self.random.uniform(1.0, 4.0))
            await self.up.wait()
            assert self.place.process is not None
            orderly = self.random.random() < 0.2
            self.done["daemon restarted" if orderly else "daemon killed"] += 1
            self.down_wanted.set()
            self.place.process.send_signal(signal.SIGTERM if orderly else signal.SIGKILL)

    # What is done to agents

    def token(self, name: str) -> str:
        self.numbers += 1
        return f"tok{self.numbers}@{name}"

    def prompt(self, name: str) -> tuple[str, str]:
        """Make up some work."""
        token = self.token(name)
        chance = self.random.random()
        if chance < 0.35:
            other = self.random.choice(self.names)
            line = f'/tool send_message {{"to": "{other}", "text": "hello {self.token(other)}"}}'
        elif chance < 0.5:
            line = f"/sleep {self.random.uniform(0.1, 2.0):.2f}"
        elif chance < 0.6:
            line = f"/emit {self.random.randint(1, 200)} 100"
        elif chance < 0.7:
            line = "/shell ls -a; date"
        elif chance < 0.75:
            line = "/exit 3"
        else:
            line = "/say done"
        return token, f"{token}\n{line}"

    async def work(self) -> None:
        """Do one random thing to one random agent after the other."""
        kinds = ["send"] * 10 + ["suspend"] * 3 + ["kill sandbox"] * 2 + ["replace", "interrupted wait"]
        while not self.resting.is_set():
            name = self.random.choice([name for name in self.names if name not in self.busy])
            self.busy.add(name)
            try:
                await self.do(self.random.choice(kinds), name)
            except errors.SubstratError as problem:
                self.broken.append(f"{name}: {type(problem).__name__}: {problem.message}")
                await trio.sleep(0.1)
            finally:
                self.busy.discard(name)

    async def do(self, kind: str, name: str) -> None:
        match kind:
            case "send":
                await self.send(name)
            case "suspend":
                await self.call(lambda client: client.suspend(name))
                await self.go_on(name)
            case "kill sandbox":
                await self.kill_sandbox(name)
            case "replace":
                await self.replace(name)
            case _:
                # A client that goes away while it waits.
                with trio.move_on_after(self.random.uniform(0, 0.3)):
                    await self.call(lambda client: client.wait(name))
        self.done[kind] += 1

    async def send(self, name: str) -> None:
        token, text = self.prompt(name)
        agent = await self.call(lambda client: client.show(name))
        if agent["state"] == "failed":  # a new prompt would make it forget what it failed at
            await self.go_on(name)
        if agent["unread"] > 20:  # the machine is slower than its users
            await self.call(lambda client: client.wait(name, timeout=PATIENCE))
            return
        with suppress(*AWAY):
            await self.call(lambda client: client.send(name, text), again=False)
            self.ledger.accept(name, token)

    async def go_on(self, name: str) -> None:
        await self.call(lambda client: client.resume(name))

    async def kill_sandbox(self, name: str) -> None:
        agent = await self.call(lambda client: client.show(name))
        if agent["state"] != "running":
            return
        mine = [pid for pid, owner in self.place.sandboxed().items() if owner == agent["id"]]
        if not mine:
            return
        with suppress(ProcessLookupError):
            os.kill(self.random.choice(mine), signal.SIGKILL)
        number = agent["turn"]["number"]
        while agent["state"] == "running" and agent["turn"]["number"] == number:
            await trio.sleep(0.02)
            agent = await self.call(lambda client: client.show(name))
        if agent["state"] == "failed":
            await self.go_on(name)

    async def spawn(self) -> None:
        self.numbers += 1
        name = f"a{self.numbers}"
        self.names.append(name)
        self.busy.add(name)
        token, text = self.prompt(name)
        workspace = self.random.choice(self.place.workspaces)
        while True:
            try:
                await self.call(lambda client: client.spawn(workspace, name=name, prompt=text), again=False)
            except AWAY:
                continue
            except errors.NameTaken:
                pass  # an answer that got lost with its daemon
            break
        self.ledger.accept(name, token)
        self.busy.discard(name)

    async def replace(self, name: str) -> None:
        """End an agent, forget it, and make another in its place."""
        self.names.remove(name)
        with suppress(errors.NotFound):
            await self.call(lambda client: client.end(name))
            await self.call(lambda client: client.rm(name))
        self.ledger.accepted.pop(name, None)
        await self.spawn()

    # The run

    async def run(self) -> tuple[Figures, Figures, Figures] | None:
        """Do it all.

        Returns:
            What was measured before, after, and after everything was removed; None if it came to no measurement.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.obey_ctrl_c)
            await nursery.start(self.keep_daemon)
            for _ in range(self.agents):
                await self.spawn()
            self.say(f"{self.agents} agents are there")
            nursery.start_soon(self.tell_progress)
            measured = await self.phases()
            self.down_for_good = True
            self.down_wanted.set()
            assert self.place.process is not None
            self.place.process.terminate()
            if await self.place.gone() != 0:
                self.broken.append("the daemon's orderly end failed")
            nursery.cancel_scope.cancel()
        return measured

    async def phases(self) -> tuple[Figures, Figures, Figures]:
        rough = self.seconds * RESTARTED_PART
        await self.load(rough, kill_daemon=True)
        await self.quiet("killed again and again")
        steady = self.seconds - rough
        await self.load(steady * WARM_PART, kill_daemon=False)
        await self.quiet("warm")
        before = self.place.figures()
        await self.load(steady * (1 - WARM_PART), kill_daemon=False)
        await self.quiet("done")
        after = await self.settled_figures(before)
        for name in list(self.names):
            await self.call(lambda client, name=name: client.end(name))
            await self.call(lambda client, name=name: client.rm(name))
        return before, after, self.place.figures()

    async def load(self, seconds: float, *, kill_daemon: bool) -> None:
        self.resting = trio.Event()
        async with trio.open_nursery() as working, trio.open_nursery() as killing:
            for _ in range(max(1, min(WORKERS, self.agents // 2))):
                working.start_soon(self.work)
            if kill_daemon:
                killing.start_soon(self.kill_daemon_often)
            with trio.move_on_after(seconds):
                await self.over.wait()
            # What the workers have begun they finish.
            self.resting.set()
            killing.cancel_scope.cancel()

    async def quiet(self, what: str) -> None:
        """Let everybody come to an end, and look whether all that was accepted has been told."""
        there = {agent["name"]: agent for agent in await self.call(lambda client: client.agents())}
        self.names = [name for name in there if there[name]["state"] != "ended"]
        with trio.fail_after(PATIENCE):
            while True:
                agents = await self.call(lambda client: client.agents())
                for agent in agents:
                    if agent["state"] in {"failed", "suspended"}:
                        try:
                            await self.go_on(agent["name"])
                        except errors.SubstratError as problem:
                            self.broken.append(f"{agent['name']} can't go on: {problem.message}")
                            await self.call(lambda client, name=agent["name"]: client.end(name))
                if all(agent["state"] in {"idle", "ended"} for agent in agents):
                    break
                await trio.sleep(0.05)
            _, newest = await self.call(lambda client: client.read_events(since=self.ledger.cursor))
            while self.ledger.cursor < newest:  # noqa: ASYNC110 - it is far away
                await trio.sleep(0.02)
            while self.place.sandboxed():  # noqa: ASYNC110 - the kernel tells nobody
                await trio.sleep(0.05)
        for name in self.names:
            self.broken += [f"{token}: {UNTOLD}" for token in self.ledger.untold(name)]
        self.say(f"quiet: {what}")

    async def settled_figures(self, before: Figures) -> Figures:
        """Measure when threads that have nothing to do have gone: Trio keeps them for 10 s."""
        with trio.move_on_after(12):
            while (now := self.place.figures()).threads > before.threads or now.descriptors > before.descriptors:  # noqa: ASYNC110
                await trio.sleep(0.2)
        return self.place.figures()

    async def obey_ctrl_c(self) -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                if self.over.is_set():
                    raise KeyboardInterrupt
                self.say("stopping; once more to give up at once")
                self.over.set()

    # Telling

    def say(self, text: str) -> None:
        print(f"{trio.current_time() - self.began:6.0f} s  {text}", flush=True)

    async def tell_progress(self) -> None:
        while True:
            await trio.sleep(PROGRESS_S)
            turns = sum(self.ledger.outcomes.values())
            memory = ""
            with suppress(OSError, StopIteration, AttributeError):
                memory = f"{rss_mib(self.place.process.pid):.0f} MiB"
            self.say(
                f"{turns} turns, {self.ledger.events} events, {len(self.ledger.running)} running; {memory}; "
                + ", ".join(f"{what} {count}" for what, count in sorted(self.done.items()))
            )


def grown(before: Figures, after: Figures, removed: Figures) -> list[str]:
    """Say what grew that should not."""
    factor, slack = MEMORY_SLACK
    checks = [
        (after.rss <= before.rss * factor + slack, f"memory grew from {before.rss:.1f} to {after.rss:.1f} MiB"),
        (after.descriptors <= before.descriptors, f"descriptors grew from {before.descriptors} to {after.descriptors}"),
        (after.threads <= before.threads, f"threads grew from {before.threads} to {after.threads}"),
        (removed.events == 0, f"{removed.events} events of removed agents are left"),
        (removed.used <= 256 * 1024, f"{removed.used} bytes of the database are in use for nobody"),
        (removed.files == 0, f"{removed.files} files of removed agents are left"),
        (removed.processes + after.processes + before.processes == 0, "processes are left though no turn runs"),
    ]
    return [text for good, text in checks if not good]


def table(before: Figures, after: Figures, removed: Figures) -> str:
    rows = [("", "before", "after", "all removed")]
    for name, unit, form in (
        ("rss", "memory, MiB", ".1f"), ("descriptors", "descriptors", "d"), ("threads", "threads", "d"),
        ("database", "database, bytes", "d"), ("used", "… in use", "d"), ("events", "events in it", "d"),
        ("files", "files of turns", "d"), ("processes", "sandboxes' processes", "d"),
    ):  # fmt: skip
        rows.append((unit, *(format(getattr(figures, name), form) for figures in (before, after, removed))))
    each = [figures.used / figures.events if figures.events else math.nan for figures in (before, after)]
    rows.append(("… bytes an event", *(f"{size:.0f}" for size in each), "-"))
    return "\n".join(f"{row[0]:22}" + "".join(f"{cell:>14}" for cell in row[1:]) for row in rows)


@asynccontextmanager
async def _place() -> AsyncIterator[Place]:
    place = Place()
    try:
        yield place
    finally:
        place.remove()


async def soak(agents: int, seconds: float, seed: int) -> int:
    async with _place() as place:
        run = Soak(place, agents, seconds, seed)
        measured = await run.run()
        turns = ", ".join(f"{outcome} {count}" for outcome, count in sorted(run.ledger.outcomes.items()))
        did = ", ".join(f"{what} {count}" for what, count in sorted(run.done.items()))
        print(
            f"\nturns: {turns}\ndid: {did}\nevents: {run.ledger.events}, prompts and messages: {run.ledger.told.total()}\n"
        )
        broken = list(dict.fromkeys(run.broken))
        if measured is not None:
            print(table(*measured))
            broken += grown(*measured)
        for promise in broken[:50]:
            print(f"BROKEN: {promise}")
        if broken:
            with open(f"{place.root}/log", encoding="utf-8", errors="replace") as log:
                problems = [line for line in log if '"level": "error"' in line or "Traceback" in line]
            print("".join(problems[-20:]))
        print(f"seed {seed}: {'broken' if broken else 'all promises kept, nothing grew'}")
        return 1 if broken else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Run stand-in agents with random faults, and look what grows.")
    parser.add_argument("--agents", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    return trio.run(soak, given.agents, given.seconds, given.seed)


if __name__ == "__main__":
    sys.exit(main())
