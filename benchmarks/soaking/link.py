"""The soak's connection to its daemon: starts it, starts it again when it was killed, and notices when it hangs."""

from __future__ import annotations

import signal
from contextlib import suppress
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import trio

import substrat
from substrat import errors

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Sequence

    from soaking.ledger import Follower
    from soaking.place import Place

AWAY = (errors.ConnectionLost, errors.DaemonNotRunning)
PATIENCE = 120.0
"""Seconds that a required action may take: 50 agents share the machine, and others use it too."""
STATUS_PATIENCE = 30.0
"""Seconds within which `daemon.status` is answered unless the daemon hangs: the answer waits for nothing but the machine."""
LOOK_S = 0.05
"""Seconds between two looks at facts for which the kernel has no notification."""


class GaveUp(Exception):
    """The soak can't go on; the message says why."""


class DaemonLink:
    """The connection to the daemon, which it restarts.

    Args:
        place: the daemon's directory.
        followers: the subscribers to all events; each goes on at its cursor when the daemon is started again.
        broken: the list of broken promises.
        patience: seconds within which the daemon must answer `daemon.status`.
    """

    def __init__(self, place: Place, followers: Sequence[Follower], broken: list[str], patience: float) -> None:
        self.place = place
        self.followers = followers
        self.broken = broken
        self.patience = patience
        self.starts = 0
        self.over = trio.Event()
        self._client: substrat.Client | None = None
        self._up = trio.Event()
        self._down_wanted = trio.Event()
        self._down_for_good = False
        self._audited = 0

    @property
    def is_up(self) -> bool:
        """Whether a daemon runs and is to go on."""
        return self._up.is_set()

    async def keep_daemon(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Start the daemon, and start it again whenever it was killed, until `stop`.

        Raises:
            GaveUp: it doesn't start, or doesn't answer any more.
        """
        while not self._down_for_good:
            try:
                await self.place.start(PATIENCE)
            except trio.TooSlowError:
                raise GaveUp(f"the daemon wasn't ready within {PATIENCE:g} s") from None
            self.starts += 1
            async with substrat.Client.connect(self.place.socket) as client, trio.open_nursery() as nursery:
                self._client, self._down_wanted = client, trio.Event()
                for follower in self.followers:
                    nursery.start_soon(self._follow, client, follower)
                nursery.start_soon(self._watch_end)
                nursery.start_soon(self._watch_answers, client)
                self._up.set()
                task_status.started()
                task_status = trio.TASK_STATUS_IGNORED
                await self._down_wanted.wait()
                self._up = trio.Event()
                nursery.cancel_scope.cancel()
            with trio.move_on_after(self.patience) as scope:
                await self.place.gone()
            if scope.cancelled_caught:
                raise GaveUp(f"the daemon hangs: it didn't end within {self.patience:g} s of being told to")

    async def _watch_end(self) -> None:
        code = await self.place.gone()
        if not self._down_wanted.is_set():
            self.broken.append(f"the daemon ended by itself, with status {code}")
            self.over.set()
            self._down_wanted.set()

    async def _watch_answers(self, client: substrat.Client) -> None:
        with suppress(*AWAY):
            while True:
                with trio.move_on_after(self.patience) as scope:
                    await client.status()
                if scope.cancelled_caught:
                    raise GaveUp(f"the daemon hangs: it didn't answer `daemon.status` within {self.patience:g} s")
                await trio.sleep(1)
        # The daemon's end, which is told elsewhere, cancels this. Without it nobody would connect again.
        await trio.sleep(self.patience)
        raise GaveUp(f"the connection was lost, and the daemon didn't end within {self.patience:g} s")

    async def _follow(self, client: substrat.Client, follower: Follower) -> None:
        with suppress(*AWAY):
            async with client.events(since=follower.cursor) as events:
                async for event in events:
                    follower.take(event)
                    if follower.pause:
                        await trio.sleep(follower.pause)

    async def call(self, ask: Callable[[substrat.Client], Awaitable], *, again: bool = True) -> Any:
        """Make a request; when the daemon dies meanwhile, make it again with the next one if that is harmless.

        Raises:
            ConnectionLost: the daemon died, perhaps before it had done it.
            GaveUp: there was no answer in time.
        """
        while True:
            await self._up.wait()
            assert self._client is not None
            try:
                with trio.fail_after(PATIENCE + 1):
                    return await ask(self._client)
            except trio.TooSlowError:
                raise GaveUp(f"a request wasn't answered within {PATIENCE:g} s") from None
            except AWAY:
                if not again:
                    raise
                await trio.sleep(0.01)

    async def kill_often(self, chance: random.Random, done: Callable[[str], None]) -> None:
        """Kill the daemon again and again, sometimes with a signal that lets it end in order."""
        while True:
            await trio.sleep(chance.uniform(1.0, 4.0))
            await self._up.wait()
            orderly = chance.random() < 0.2
            done("daemon restarted" if orderly else "daemon killed")
            self._down_wanted.set()
            assert self.place.process is not None
            self.place.process.send_signal(signal.SIGTERM if orderly else signal.SIGKILL)

    async def stop(self) -> None:
        """End the daemon in order, for good.

        Raises:
            GaveUp: it doesn't end.
        """
        self._down_for_good = True
        self._down_wanted.set()
        assert self.place.process is not None
        self.place.process.terminate()
        with trio.move_on_after(PATIENCE):
            if await self.place.gone() != 0:
                self.broken.append("the daemon's orderly end failed")
            return
        raise GaveUp(f"the daemon didn't end within {PATIENCE:g} s after SIGTERM")

    async def audit(self) -> None:
        """Wait until the followers have all events that are stored since the last audit, and compare."""
        stored: list[dict] = []
        since = self._audited
        while True:
            page, cursor = await self.call(methodcaller("read_events", since=since))
            if not page:
                break
            stored += [{"cursor": event["cursor"], "kind": event["kind"]} for event in page]
            since = cursor
        self._audited = since
        newest = stored[-1]["cursor"] if stored else 0
        for follower in self.followers:
            with trio.move_on_after(PATIENCE) as scope:
                while follower.cursor < newest:  # noqa: ASYNC110 - it is in the daemon, which tells by sending
                    await trio.sleep(LOOK_S)
            if scope.cancelled_caught:
                self.broken.append(f"{follower.name} wasn't sent the newest event: it has {follower.cursor} of {newest}")
            follower.audit(stored)
