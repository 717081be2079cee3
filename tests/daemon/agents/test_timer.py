"""The timer: it rings at the wall clock's times, also when that clock is set or the machine has slept."""

import trio
import trio.testing

from substrat.daemon.agents.timer import Timer


class Wall:
    """A wall clock whose alarm goes off when a test sets it, as the kernel's does."""

    def __init__(self):
        self.time = 1000.0
        self.waited = []
        self._set = trio.Event()

    def now(self):
        return self.time

    async def wait(self, when):
        self.waited.append(when)
        if self.time < when:
            await self._set.wait()

    def go(self, to):
        self.time = to
        self._set.set()
        self._set = trio.Event()


async def test_it_rings_at_each_time_and_whenever_the_clock_is_set():
    wall, rung = Wall(), []
    timer = Timer(wall.now, wall.wait)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timer.run, lambda: rung.append(wall.time))
        await trio.testing.wait_all_tasks_blocked()
        for when in (1060.0, 1030.0, 1030.0, 9000.0):
            timer.ring_at(when)
            await trio.testing.wait_all_tasks_blocked()
        assert (rung, wall.waited[-1]) == ([], 1030.0)
        for to, waits in ((1030.0, 1060.0), (500.0, 1060.0), (8000.0, 9000.0), (9000.0, float("inf"))):
            wall.go(to)
            await trio.testing.wait_all_tasks_blocked()
            assert (rung[-1], wall.waited[-1]) == (to, waits)
        assert rung == [1030.0, 500.0, 8000.0, 9000.0]
        nursery.cancel_scope.cancel()


async def test_what_is_asked_for_while_it_rings_counts():
    wall, rung = Wall(), []
    timer = Timer(wall.now, wall.wait)

    def ring():
        rung.append(wall.time)
        if len(rung) < 3:
            timer.ring_at(wall.time)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(timer.run, ring)
        timer.ring_at(900.0)
        await trio.testing.wait_all_tasks_blocked()
        assert rung == [1000.0] * 3
        nursery.cancel_scope.cancel()
