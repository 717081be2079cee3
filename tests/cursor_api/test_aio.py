"""The waiting of Trio tasks: a run starts with its block, frees the loop, and nothing outlives its block.

The outcome of an answer is decided once for both shells, and tested with the blocking one.
"""

import contextlib
import gc

import pytest
import trio
import trio.testing

from substrat.client.events import TaskConnection
from substrat.cursor_api import AgentConfig, EventType, aio
from substrat.cursor_api.command import AgentNotFound
from substrat.errors import DaemonNotRunning, Refused
from tests.cursor_api.conftest import HANGING, pid_in
from tests.support.waiting import wait_until

HELD = "begun\n/shell while [ ! -e go ]; do sleep 0.02; done\nended"
SANDBOXED = AgentConfig(sandboxed=True)


@contextlib.asynccontextmanager
async def cancelled_when_begun(place):
    """Cancel the block when its program has told its pid; check that this is what ended the block."""

    async def cancel():
        await trio.to_thread.run_sync(wait_until, (place / "pid").exists)
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel)
        yield
    assert nursery.cancel_scope.cancelled_caught


@pytest.fixture
def hanging(program):
    return aio.AsyncCursorAgentClient(agent_binary=program(HANGING))


async def test_a_stream_starts_with_its_block_and_ends_with_it():
    stream = aio.query_stream("hello\n/shell echo hi", force_approve=True)
    assert (stream.process, stream.session_id) == (None, "")
    async with stream:
        assert stream.process.poll() is None
        kinds = [event.type async for event in stream]
        assert kinds[-1] is EventType.RESULT_SUCCESS
    assert stream.process.returncode == 0
    assert (stream.result.result, stream.finished, stream.cancelled) == ("hello", True, False)
    assert [event async for event in stream] == []


async def test_a_missing_program_is_noticed_at_the_start():
    stream = aio.query_stream("x", agent_binary="/no/such")
    with pytest.raises(AgentNotFound, match="/no/such"):
        await anext(stream)
    with pytest.raises(Refused):
        await anext(stream)


async def close_while_reading(stream):
    async with trio.open_nursery() as nursery:
        async for event in stream:
            if event.type in {EventType.TOOL_CALL_STARTED, EventType.ASSISTANT_DELTA} and not nursery.child_tasks:
                nursery.start_soon(close_when_it_waits, stream)
    assert stream.events
    assert stream.finished
    assert stream.result.error == "the answer wasn't read to its end"


async def close_when_it_waits(stream):
    await trio.testing.wait_all_tasks_blocked()
    await stream.aclose()


async def test_a_program_whose_end_the_caller_has_seen_holds_the_loop_up_no_more(hanging):
    async with hanging.query_stream("x") as stream, trio.open_nursery() as nursery:
        await anext(stream)
        nursery.start_soon(stream.cancel)
        await trio.testing.wait_all_tasks_blocked()
        stream.process.wait()  # before the task that stops it
        assert await stream.answer.next() is None, "without a checkpoint, which would let that task go on"


async def test_another_task_may_close_what_is_being_read(hanging, place, alive):
    await close_while_reading(hanging.query_stream("x"))
    assert not alive(pid_in(place))


async def test_another_task_may_close_a_sandboxed_stream(daemon):
    await close_while_reading(aio.query_stream(HELD, SANDBOXED))
    assert daemon.agents() == []


async def test_a_cancellation_while_another_task_waits(hanging, place, alive):
    async def cancel_when_it_waits(stream):
        await trio.testing.wait_all_tasks_blocked()
        await stream.cancel()

    async with hanging.query_stream("x") as stream, trio.open_nursery() as nursery:
        await anext(stream)
        nursery.start_soon(cancel_when_it_waits, stream)
        assert [event async for event in stream] == []
    assert not alive(pid_in(place))


@pytest.mark.parametrize("block", [True, False])
async def test_a_cancellation_kills_the_process(hanging, place, alive, block):
    async with cancelled_when_begun(place):
        if block:
            async with hanging.query_stream("x") as stream:
                async for _ in stream:
                    pass
        else:
            async for _ in hanging.query_stream("x"):
                pass
    assert not alive(pid_in(place))


async def test_a_cancelled_query_kills_a_stubborn_process(program, place, alive, monkeypatch):
    monkeypatch.setattr("substrat.cursor_api.run.STOP_GRACE", 0.2)
    source = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + HANGING
    async with cancelled_when_begun(place):
        await aio.query("x", agent_binary=program(source), output_format="stream-json")
    assert not alive(pid_in(place))


async def test_the_loop_is_free_while_agents_work(program, place):
    """Six agents wait for a file that another task makes once all six have begun."""
    waiting = "while not os.path.exists('go'):\n    time.sleep(0.01)\n"
    binary = program(
        f"import time\nmark(prompt)\n{waiting}line({{'type': 'result', 'subtype': 'success', 'result': prompt}})"
    )
    results = {}

    async def ask(number):
        results[number] = (await aio.query(str(number), agent_binary=binary)).result

    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(ask, number)
        while not all((place / str(number)).exists() for number in range(6)):  # noqa: ASYNC110 - files have no event
            await trio.sleep(0.01)
        (place / "go").touch()
    assert results == {number: str(number) for number in range(6)}


async def test_a_conversation(place):
    async with aio.AsyncConversationSession() as session:
        first = await session.send("the word is plum")
        stream = session.send_stream("/recall")
        async with stream:
            async for _ in stream:
                pass
        result = await session.finalize_stream("/recall", stream)
        assert "plum" in result.result
        assert session.session_id == first.session_id
        assert [prompt for prompt, _ in session.history] == ["the word is plum", "/recall"]
        assert (await session.finalize_stream("/recall", stream)) == result
        await session.reset()
        assert (session.session_id, session.history) == (None, [])


@pytest.mark.parametrize("how", ["cancel", "leave", "scope", "drop", "time"])
async def test_stopping_a_sandboxed_turn_removes_its_agent(daemon, how):
    with trio.CancelScope() as scope:
        stream = aio.query_stream(HELD, sandboxed=True, timeout=1 if how == "time" else None)
        if how == "drop":
            await anext(stream)
            del stream
            gc.collect()
            assert daemon.agents() == []
            return
        async with stream:
            async for event in stream:
                if event.type is not EventType.TOOL_CALL_STARTED:
                    continue
                if how == "cancel":
                    await stream.cancel()
                elif how == "leave":
                    break
                elif how == "scope":
                    scope.cancel()
    assert scope.cancelled_caught == (how == "scope")
    assert daemon.agents() == []
    assert not stream.result.success
    assert ("timed out" in stream.result.error) == (how == "time")


async def test_a_run_that_is_cancelled_while_its_agent_is_made_leaves_none(daemon, monkeypatch):
    submit = TaskConnection.submit

    async def submitting(connection, method, params):
        number = await submit(connection, method, params)
        if method == "agent.spawn":
            wait_until(daemon.agents, "the agent")
            scope.cancel()
        return number

    monkeypatch.setattr(TaskConnection, "submit", submitting)
    with trio.CancelScope() as scope:
        await aio.query("x", sandboxed=True)
    assert scope.cancelled_caught
    assert daemon.agents() == []


async def test_a_conversation_in_a_sandbox(daemon, monkeypatch, tmp_path):
    async with aio.AsyncConversationSession(SANDBOXED) as session:
        await session.send("the word is plum")
        assert "plum" in (await session.send("/recall", output_format="stream-json")).result
        assert len(daemon.agents()) == 1
    assert daemon.agents() == []
    monkeypatch.setenv("SUBSTRAT_SOCKET", str(tmp_path / "none.sock"))
    with pytest.raises(DaemonNotRunning, match="substratd"):
        await aio.query("x", sandboxed=True)
