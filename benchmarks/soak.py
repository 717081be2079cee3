"""Runs many stand-in agents with random faults for a given time, and reports everything that grows; `make soak`.

A private daemon in a temporary directory is kept busy: agents in directories and git repositories of every kind, on all
networks, with messages, tool calls, children, commands of `exec`, suspends, freezes, interrupts and kills, while a person
uses git in the same repositories. In the first part the daemon is killed again and again. In the second part it lives on,
and its figures are compared: with all agents idle, and with all removed, each time before and after the load.
`soaking.figures` names them, with the growth that each may have and the reason.

The exit status is 1 if a figure grew or something was left over, if an accepted prompt or message was lost or delivered
twice, if a follower missed an event, or if the daemon hung. The run ends in time then too.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
from collections import Counter
from contextlib import asynccontextmanager, suppress
from operator import methodcaller
from typing import TYPE_CHECKING, NamedTuple

import trio
from harness import rss_mib
from soaking import figures
from soaking.agents import Agents
from soaking.ledger import LOST, Follower, Ledger
from soaking.link import LOOK_S, PATIENCE, STATUS_PATIENCE, DaemonLink, GaveUp
from soaking.place import Place
from soaking.server import Server
from soaking.workspaces import Person

from substrat import errors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from soaking.figures import Figures

WORKERS = 8  # requests at once: agents are busy at the same time, and the daemon still answers within seconds
PROGRESS_S = 5.0  # a line each: often enough to see that it goes on
RESTARTED_PART = 0.4
"""The part of the time in which the daemon is killed again and again."""
WARM_PART = 0.25
"""The part of the rest after which figures count: by then caches are filled and everything is imported."""
SETTLE_S = 12.0
"""How long ended processes, connections and threads may stay: Trio's idle threads end after 10 s."""
DELETION_S = 60.0
"""How long removed files may stay: the daemon rests between two sweeps for 20 times as long as the last one took."""
OVERTIME_S = 6 * PATIENCE
"""How much longer than asked a soak may take on a busy machine: it comes to rest five times and removes its agents twice."""
SLOW_S = 0.002
"""The slow follower's pause after each event: it falls behind under load, and catches up in a rest."""


class Measured(NamedTuple):
    """The figures before and after the load, with all agents idle and with all removed."""

    idle_before: Figures
    removed_before: Figures
    idle_after: Figures
    removed_after: Figures

    def grown(self) -> list[str]:
        """Return a sentence for each figure that grew by more than it may."""
        idle = figures.grown(figures.IDLE, "with all agents idle", self.idle_before, self.idle_after)
        return idle + figures.grown(figures.REMOVED, "with all agents removed", self.removed_before, self.removed_after)

    def __str__(self) -> str:
        idle = figures.table(("idle before", "idle after"), figures.IDLE, self.idle_before, self.idle_after)
        removed = figures.table(
            ("removed before", "removed after"), figures.REMOVED, self.removed_before, self.removed_after
        )
        return f"{idle}\n\n{removed}"


class Soak:
    """One run.

    Args:
        place: its directory and daemon.
        agents: how many.
        seconds: for how long.
        seed: of all random choices; the machine's speed influences the run too.
        patience: seconds within which the daemon must answer `daemon.status`.
        settle: seconds within which ended processes, connections and threads must be gone.
    """

    def __init__(self, place: Place, agents: int, seconds: float, seed: int, patience: float, settle: float) -> None:
        self.place = place
        self.settle = settle
        self.size = agents
        self.seconds = seconds
        self.random = random.Random(seed)
        self.broken: list[str] = []
        self.done: Counter[str] = Counter()
        self.ledger = Ledger(self.broken)
        self.followers = [self.ledger, Follower("the slow follower", self.broken, SLOW_S)]
        self.link = DaemonLink(place, self.followers, self.broken, patience)
        self.server = Server()
        self.agents = Agents(self.link, self.ledger, self.server, self.random, self.done)
        self.person = Person(place.root, place.workspaces, self.random)
        self.left: set[int] = set()
        self.began = trio.current_time()

    async def run(self) -> Measured | None:
        """Run all phases.

        Returns:
            The figures; None if the run ended before they were taken.
        """
        measured = None
        try:
            with trio.fail_after(self.seconds + OVERTIME_S):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self.obey_ctrl_c)
                    await nursery.start(self.server.serve)
                    await nursery.start(self.link.keep_daemon)
                    await self.populate()
                    self.say(f"{self.size} agents are there")
                    nursery.start_soon(self.report_progress)
                    measured = await self.phases()
                    await self.link.stop()
                    nursery.cancel_scope.cancel()
        except* GaveUp as group:
            self.broken += [str(problem) for problem in _leaves(group)]
        except* trio.TooSlowError:
            self.broken.append(f"the soak didn't end within {OVERTIME_S:g} s after its time")
        return measured

    async def phases(self) -> Measured:
        rough = self.seconds * RESTARTED_PART
        await self.load(rough, kill_daemon=True)
        await self.quiet("killed again and again")
        steady = self.seconds - rough
        await self.load(steady * WARM_PART, kill_daemon=False)
        await self.quiet("warm")
        idle_before = await self.settled()
        await self.clear()
        removed_before = await self.settled()
        await self.populate()
        await self.load(steady * (1 - WARM_PART), kill_daemon=False)
        await self.quiet("done")
        idle_after = await self.settled(lambda now: figures.grown(figures.IDLE, "", idle_before, now))
        await self.clear()
        removed_after = await self.settled(lambda now: figures.grown(figures.REMOVED, "", removed_before, now))
        return Measured(idle_before, removed_before, idle_after, removed_after)

    async def populate(self) -> None:
        """Spawn as many agents as there are to be, in all workspaces by turns."""
        for number in range(len(self.agents.names), self.size):
            await self.agents.spawn(self.place.workspaces[number % len(self.place.workspaces)])

    async def clear(self) -> None:
        """Remove all agents."""
        await self.quiet("before everything is removed")
        for agent in await self.link.call(lambda client: client.agents()):
            await self.agents.remove(agent["name"])
            self.ledger.forget(agent["name"])
        self.agents.names.clear()

    async def load(self, seconds: float, *, kill_daemon: bool) -> None:
        resting = trio.Event()
        async with trio.open_nursery() as working, trio.open_nursery() as killing:
            for _ in range(max(1, min(WORKERS, self.size // 2))):
                working.start_soon(self.agents.work, resting)
            working.start_soon(self.person.work, resting)
            if kill_daemon:
                killing.start_soon(self.link.kill_often, self.random, lambda kind: self.done.update([kind]))
            with trio.move_on_after(seconds):
                await self.link.over.wait()
            # The workers finish their requests while a daemon runs.
            resting.set()
            killing.cancel_scope.cancel()

    async def quiet(self, phase: str) -> None:
        """Wait until every turn has ended, and check that everything accepted was delivered and all events were sent.

        Raises:
            GaveUp: the turns don't end.
        """
        where = "nothing was asked yet"
        try:
            with trio.fail_after(PATIENCE):
                while True:
                    agents = await self.link.call(lambda client: client.agents())
                    await self.encourage(agents)
                    await self.agents.retire_children()
                    answered = await self.agents.answer_all()
                    running = [agent for agent in agents if agent["state"] not in {"idle", "ended"}]
                    children = [agent for agent in agents if agent["name"] not in self.agents.names]
                    where = ", ".join(f"{agent['name']} is {agent['state']}" for agent in running[:5])
                    where = where or "children are left, questions or reminders"
                    if not running and not children and not answered and self.place.is_at_rest():
                        break
                    await trio.sleep(LOOK_S)
        except trio.TooSlowError:
            raise GaveUp(f"the agents didn't come to rest within {PATIENCE:g} s: {where}") from None
        with trio.move_on_after(self.settle):
            while self.place.processes().keys() - self.left:  # noqa: ASYNC110 - the kernel tells no one
                await trio.sleep(LOOK_S)
        # They are measured, and not waited for again.
        self.left.update(self.place.processes())
        await self.link.audit()
        for name in sorted(self.ledger.accepted):
            lost = self.ledger.lost(name)
            lost = [token for token in lost if not self.place.comes_with_a_turn(token)]
            self.broken += [f"{token}: {LOST}: {self.place.whereabouts(token) or 'no item'}" for token in lost]
            # Each is noted once.
            self.ledger.excuse(lost)
        self.person.tidy()
        self.say(f"quiet: {phase}")

    async def encourage(self, agents: list[dict]) -> None:
        """Let agents go on that failed or were left suspended."""
        for agent in agents:
            if agent["state"] in {"failed", "suspended"}:
                try:
                    await self.agents.go_on(agent["name"])
                except errors.SubstratError as problem:
                    self.broken.append(f"{agent['name']} can't go on: {problem.message}")
                    await self.link.call(methodcaller("end", agent["name"]))

    async def settled(self, grown: Callable[[Figures], object] = lambda _: False) -> Figures:
        """Measure once removed files are deleted, and again until nothing has grown or `settle` is over.

        Args:
            grown: lists the figures that have grown since an earlier measurement.
        """
        with trio.move_on_after(DELETION_S):
            while figures.unsettled(figures.measure(self.place)):  # noqa: ASYNC110 - the daemon tells no one
                await trio.sleep(0.5)
        with trio.move_on_after(self.settle):
            while grown(now := figures.measure(self.place)):  # noqa: ASYNC110 - the kernel tells no one
                await trio.sleep(0.2)
            return now
        return figures.measure(self.place)

    async def obey_ctrl_c(self) -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                if self.link.over.is_set():
                    raise KeyboardInterrupt
                self.say("stopping; once more to give up at once")
                self.link.over.set()

    # Reports

    def say(self, text: str) -> None:
        print(f"{trio.current_time() - self.began:6.0f} s  {text}", flush=True)

    async def report_progress(self) -> None:
        while True:
            await trio.sleep(PROGRESS_S)
            memory, descriptors = "", ""
            with suppress(OSError, KeyError, AssertionError):
                memory = f"{rss_mib(self.place.pid):.0f} MiB"
                descriptors = f"{figures.descriptors(self.place.pid, self.place.root).total()} descriptors"
            self.say(
                f"{self.ledger.outcomes.total()} turns, {self.ledger.events} events, {len(self.ledger.running)} running; "
                f"{self.done.total()} requests, {self.person.done.total()} git commands, "
                f"{self.server.requests.total()} connections; {memory}, {descriptors}"
            )

    def report(self) -> str:
        def counts(counted: Counter[str]) -> str:
            return ", ".join(f"{kind} {count}" for kind, count in sorted(counted.items())) or "none"

        server, person = self.server, self.person
        reasons = "".join(f"\n    {count} x {reason}" for reason, count in person.reasons.most_common(5))
        return (
            f"turns: {counts(self.ledger.outcomes)}\n"
            f"why turns failed: {counts(self.ledger.reasons)}\n"
            f"done to agents: {counts(self.done)}\n"
            f"a person's git: {counts(person.done)}\n"
            f"… that failed beside the agents': {counts(person.refused)}{reasons}\n"
            f"connections by network: {counts(server.requests)}; {server.received} bytes up, {server.sent} down\n"
            f"events: {', '.join(f'{follower.events} to {follower.name}' for follower in self.followers)}\n"
            f"prompts and messages: {self.ledger.delivered.total()}; daemons: {self.link.starts}\n"
        )

    def errors(self) -> Counter[str]:
        """Count the errors in the daemon's log; none of the soak's actions justifies one."""
        found: Counter[str] = Counter()
        with open(f"{self.place.root}/log", encoding="utf-8", errors="replace") as log:
            for line in log:
                if '"level": "error"' in line or '"level": "critical"' in line:
                    entry = json.loads(line)
                    found[f"{entry.get('event')}: {entry.get('reason') or str(entry.get('exception', ''))[-300:]}"] += 1
                elif "Traceback" in line and not line.startswith("{"):
                    found["a traceback"] += 1
        return found

    def check_the_rest(self) -> None:
        """Check the log for errors, the network `none` for connections, and that the load really was one."""
        for problem, count in self.errors().items():
            self.broken.append(f"the daemon logged an error {count} times: {problem}")
        if self.server.requests["none"]:
            self.broken.append(f"{self.server.requests['none']} connections came from agents whose network is `none`")
        if self.person.refused.total() > self.person.done.total():
            self.broken.append("most of the person's git commands failed")


def _leaves(group: BaseExceptionGroup) -> list[BaseException]:
    return [
        leaf
        for problem in group.exceptions
        for leaf in (_leaves(problem) if isinstance(problem, BaseExceptionGroup) else [problem])
    ]


@asynccontextmanager
async def _place(leak: str) -> AsyncIterator[Place]:
    place = Place(leak)
    try:
        yield place
    finally:
        place.remove()


async def soak(given: argparse.Namespace) -> int:
    async with _place(given.leak) as place:
        print(
            f"{given.agents} agents, {given.seconds:g} s, seed {given.seed}, in {place.root}; "
            f"sandboxes have {'cgroups' if place.service is not None else 'no cgroups of their own here'}"
            + ("" if shutil.which("curl", path="/usr/bin:/bin") else "; there is no curl, so agents connect to nothing"),
            flush=True,
        )
        run = Soak(place, given.agents, given.seconds, given.seed, given.patience, given.settle)
        measured = await run.run()
        run.check_the_rest()
        print(f"\n{run.report()}")
        broken = list(dict.fromkeys(run.broken))
        if measured is not None:
            print(f"{measured}\n")
            broken += dict.fromkeys(measured.grown())
        for promise in broken[:50]:
            print(f"BROKEN: {promise}")
        print(f"seed {given.seed}: {'broken' if broken else 'all promises kept, nothing grew'}")
        return 1 if broken else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Run stand-in agents with random faults, and report everything that grows."
    )
    parser.add_argument("--agents", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    # For the tests: leaks to put into the daemon (`soaking.leaks`), and how soon it counts as hanging, or as leaking.
    parser.add_argument("--leak", default="", help=argparse.SUPPRESS)
    parser.add_argument("--patience", type=float, default=STATUS_PATIENCE, help=argparse.SUPPRESS)
    parser.add_argument("--settle", type=float, default=SETTLE_S, help=argparse.SUPPRESS)
    return trio.run(soak, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
