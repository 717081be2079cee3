"""Closed directories: who may begin there, who is waited for, and what follows when they are open again."""

from typing import TYPE_CHECKING

import trio
import trio.testing

from tests.daemon.conftest import AgentsFixture

if TYPE_CHECKING:
    from substrat.daemon.agents.closures import User


async def test_turns_begin_when_a_directory_is_open_again_but_not_in_a_daemon_that_stops(agents: AgentsFixture):
    """The timer admits them: its task ends with the daemon; the one that had closed the directory may be cancelled."""
    closures, admissions = agents.registry.closures, agents.runner.admissions
    for name in ("ip", "two"):
        with trio.CancelScope() as lost, closures.closing(("/w",), "the work of fix lands in /w first"):
            agents.spawn(name, "work")
            admissions.clear()
            if name == "two":
                lost.cancel()
                await trio.sleep_forever()
        assert (agents.state(name), len(admissions)) == ("queued", 1)
        assert admissions[0] <= agents.clock()
        agents.registry.admit()
        assert agents.state(name) == "running"


async def test_a_command_waits_for_an_open_directory_and_is_waited_for(agents: AgentsFixture):
    agents.spawn("ip")
    closures = agents.registry.closures
    told: list[list[User]] = []
    async with closures.entered(agents.agent("ip")):
        assert closures.users(("/w/sub",)) == [("ip", False)]
        assert closures.users(("/elsewhere",)) == []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(closures.unused, ("/w",), told.append)
            await trio.testing.wait_all_tasks_blocked()
            assert told == [[("ip", False)]]
            nursery.cancel_scope.cancel()
    await closures.unused(("/w",), told.append)
    assert len(told) == 1
