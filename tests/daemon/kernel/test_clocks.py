"""The alarm of the wall clock."""

import math
import time
from contextlib import closing

import trio
import trio.testing

from substrat.daemon.kernel.clocks import WallAlarm


async def test_an_alarm_waits_for_its_time():
    with closing(WallAlarm()) as alarm:
        for when in (time.time() + 0.02, time.time() - 1000, 0.0):
            await alarm.wait(when)
            assert time.time() >= when


async def test_an_alarm_can_be_given_up_and_set_anew():
    with closing(WallAlarm()) as alarm:
        for when in (math.inf, time.time() + 1e9):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(alarm.wait, when)
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
        await alarm.wait(time.time())
