"""A pace on a clock that only goes when everybody waits."""

import trio

from substrat.daemon.kernel.ratelimit import TokenBucket


async def test_so_much_at_once_and_so_much_a_second_from_then_on(autojump_clock):
    pace = TokenBucket(10.0, 5.0)
    start = trio.current_time()
    for _ in range(5):
        await pace.wait()
    assert trio.current_time() == start
    for _ in range(20):
        await pace.wait()
    assert abs(trio.current_time() - start - 2.0) < 0.01
    await trio.sleep(100)
    quiet = trio.current_time()
    for _ in range(5):
        await pace.wait()
    assert trio.current_time() == quiet


async def test_several_share_it(autojump_clock):
    pace = TokenBucket(10.0, 1.0)
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(11):
            nursery.start_soon(pace.wait)
    assert abs(trio.current_time() - start - 1.0) < 0.01


async def test_a_share_is_given_at_once_after_quiet_and_in_parts_from_then_on(autojump_clock):
    share = TokenBucket(0.1, 0.5)
    start = trio.current_time()
    for _ in range(5):
        await share.wait(0)
        share.spend(0.1)
    assert trio.current_time() == start
    for _ in range(20):
        await share.wait(0)
        share.spend(0.1)
    await share.wait(0)
    assert abs(trio.current_time() - start - 20.0) < 0.1
    await trio.sleep(100)
    quiet = trio.current_time()
    share.spend(0.5)
    await share.wait(0)
    assert trio.current_time() == quiet
