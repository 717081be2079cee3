"""Closed directories: who may begin there, who is waited for, and what follows when they are open again."""

from typing import TYPE_CHECKING

import trio
import trio.testing

from tests.daemon.conftest import AgentsFixture

if TYPE_CHECKING:
    from substrat.daemon.agents.closures import User


async def test_turns_begin_when_a_directory_is_open_again_but_not_in_a_daemon_that_stops(house: AgentsFixture):
    closures = house.registry.closures
    with closures.closing(("/w",), "the work of fix lands in /w first"):
        house.spawn("ip", "work")
        assert house.state("ip") == "queued"
    assert house.state("ip") == "running"
    with trio.CancelScope() as stopping, closures.closing(("/w",), "the work of fix lands in /w first"):
        async with trio.open_nursery() as nursery:  # it wraps `Cancelled` in a group
            house.spawn("two", "work")
            nursery.start_soon(trio.sleep_forever)
            stopping.cancel()
            await trio.sleep_forever()
    assert stopping.cancelled_caught
    assert house.state("two") == "queued"


async def test_a_command_waits_for_an_open_directory_and_is_waited_for(house: AgentsFixture):
    house.spawn("ip")
    closures = house.registry.closures
    told: list[list[User]] = []
    async with closures.entered(house.agent("ip")):
        assert closures.users(("/w/sub",)) == [("ip", False)]
        assert closures.users(("/elsewhere",)) == []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(closures.unused, ("/w",), told.append)
            await trio.testing.wait_all_tasks_blocked()
            assert told == [[("ip", False)]]
            nursery.cancel_scope.cancel()
    await closures.unused(("/w",), told.append)
    assert len(told) == 1
