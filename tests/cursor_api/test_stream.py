"""Streams: iterating, cancelling, leaving early, and that everything under the process goes with it."""

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from substrat.cursor_api import CursorAgentClient, EventType, StreamingResponse, query_stream
from tests.cursor_api.conftest import HANGING, pid_in
from tests.support.optional import present

ENDLESS = """
number = 0
line({"type": "system", "subtype": "init", "session_id": "s"})
mark("pid", str(os.getpid()))
while True:
    number += 1
    line({"type": "assistant", "text": f"{number} ", "timestamp_ms": number})
"""
CHILDREN = """
import subprocess
stubborn = "import signal; signal.signal(15, signal.SIG_IGN); print(flush=True); signal.pause()"
ways = ({}, {"process_group": 0}, {"start_new_session": True})
children = [subprocess.Popen([sys.executable, "-S", "-c", stubborn], stdout=subprocess.PIPE, **way) for way in ways]
for child in children:
    child.stdout.readline()
mark("pids", json.dumps([os.getpid(), *(child.pid for child in children)]))
line({"type": "assistant", "text": "a", "timestamp_ms": 1})
hang()
"""


@pytest.fixture
def endless(program):
    return CursorAgentClient(agent_binary=program(ENDLESS))


@pytest.fixture
def hanging(program):
    return CursorAgentClient(agent_binary=program(HANGING))


def test_a_stream_of_the_standin_has_deltas_and_segments():
    stream = query_stream("hello there\n/shell echo hi", force_approve=True)
    assert isinstance(stream, StreamingResponse)
    assert isinstance(stream.process, subprocess.Popen)
    kinds = [event.type for event in stream]
    assert kinds[0] is EventType.SYSTEM_INIT
    assert {
        EventType.USER, EventType.ASSISTANT_DELTA, EventType.ASSISTANT, EventType.TOOL_CALL_STARTED,
        EventType.TOOL_CALL_COMPLETED,
    } <= set(kinds)  # fmt: skip
    assert kinds[-1] is EventType.RESULT_SUCCESS
    deltas = "".join(present(event.text) for event in stream.events if event.type is EventType.ASSISTANT_DELTA)
    assert deltas == stream.result.result == "hello there"
    assert stream.process.returncode == 0
    assert not stream.cancelled
    assert stream.finished
    assert list(stream) == []


def test_without_partial_output_there_are_no_deltas():
    kinds = {event.type for event in query_stream("hello", stream_partial=False)}
    assert EventType.ASSISTANT in kinds
    assert EventType.ASSISTANT_DELTA not in kinds


def test_iterating_goes_on_where_it_stopped(endless):
    with endless.query_stream("x") as stream:
        for event in stream:
            if event.text == "3 ":
                break
        for event in stream:
            assert event.text == "4 "
            break
        assert [event.text for event in stream.events] == [None, "1 ", "2 ", "3 ", "4 "]
    assert list(stream) == []
    assert len(stream.events) == 5


@pytest.mark.parametrize("number", [signal.SIGTERM, 9, signal.SIGINT])
def test_cancelling_ends_the_process(endless, place, alive, number):
    stream = endless.query_stream("x")
    for _ in stream:
        if len(stream.events) > 100:
            stream.cancel(number)
            break
    assert stream.cancelled
    assert len(stream.events) == 101
    assert not alive(pid_in(place))
    assert stream.process.returncode == -number
    assert stream.process.stdout.closed
    assert stream.process.stderr.closed
    assert list(stream) == []
    assert len(stream.events) == 101
    stream.cancel()
    result = stream.result
    assert (result.success, result.error, result.session_id) == (False, "the answer was cancelled", "s")
    assert result.result.startswith("1 2 3 ")


def test_cancelling_before_the_first_event_and_after_the_last(hanging, printing):
    stream = hanging.query_stream("x")
    stream.cancel()
    assert list(stream) == []
    done = query_stream("x", agent_binary=printing({"type": "result", "subtype": "success", "result": "r"}))
    list(done)
    done.cancel()
    assert done.cancelled
    assert done.result.success


def test_cancelling_from_another_thread_wakes_the_reader(hanging, place, until, alive):
    stream = hanging.query_stream("x")
    next(stream)
    thread = threading.Thread(target=stream.cancel)
    thread.start()
    assert list(stream) == []
    thread.join()
    assert stream.cancelled
    assert not alive(pid_in(place))


def test_cancelling_from_a_signal_handler(hanging, place, alive):
    stream = hanging.query_stream("x")
    next(stream)
    before = signal.signal(signal.SIGALRM, lambda *_: stream.cancel())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert list(stream) == []
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not alive(pid_in(place))


def test_a_program_that_ignores_signals_is_killed(program, monkeypatch, place, alive):
    monkeypatch.setattr("substrat.cursor_api.run.STOP_GRACE", 0.2)
    stubborn = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + ENDLESS
    stream = query_stream("x", agent_binary=program(stubborn))
    next(stream)
    stream.cancel()
    assert stream.process.returncode == -9
    assert not alive(pid_in(place))


@pytest.mark.parametrize("how", ["cancel", "leave", "drop", "time"])
def test_children_in_groups_and_sessions_of_their_own_go_too(program, place, alive, until, how):
    stream = query_stream("x", agent_binary=program(CHILDREN), timeout=1.5 if how == "time" else None)
    next(stream)
    pids = json.loads((place / "pids").read_text())
    assert all(alive(pid) for pid in pids)
    if how == "cancel":
        stream.cancel()
    elif how == "leave":
        with stream:
            pass
        assert (stream.cancelled, stream.result.error) == (False, "the answer wasn't read to its end")
    elif how == "time":
        assert [event.type for event in stream] == [EventType.RESULT_ERROR]
    del stream
    gc.collect()
    until(lambda: not any(alive(pid) for pid in pids), "the end of all children")


def test_an_exception_ends_the_process(endless, place, alive):
    def interrupted():
        with endless.query_stream("x") as stream:
            next(stream)
            next(stream)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not alive(pid_in(place))


def test_leaving_after_the_result_lets_the_program_end_by_itself(program, place):
    source = "line({'type': 'result', 'subtype': 'success', 'result': 'r'})\ntime.sleep(0.2)\nmark('saved')"
    with query_stream("x", agent_binary=program(source)) as stream:
        for event in stream:
            if event.type is EventType.RESULT_SUCCESS:
                break
    assert (place / "saved").exists()
    assert stream.process.returncode == 0


def test_an_interpreter_that_ends_takes_its_streams_along(program, place, alive, until):
    code = (
        "import sys; from substrat.cursor_api import query_stream\n"
        "stream = query_stream('x', agent_binary=sys.argv[1])\nnext(stream)\nnext(stream)\n"
    )
    done = subprocess.run([sys.executable, "-X", "dev", "-c", code, program(ENDLESS)], capture_output=True, check=True)
    assert done.stderr == b""
    until(lambda: not alive(pid_in(place)), "the process's end")


def test_a_forked_child_leaves_its_parents_stream_alone(hanging):
    with hanging.query_stream("x") as stream:
        next(stream)
        child = os.fork()
        if child == 0:
            stream.answer.finalizer()
            os._exit(0)
        os.waitpid(child, 0)
        assert stream.process.poll() is None


def test_a_failure_before_the_session_is_one_event(monkeypatch):
    monkeypatch.setenv("STANDIN_FAIL", "auth")
    stream = query_stream("hello")
    (event,) = stream
    assert event.type is EventType.RESULT_ERROR
    assert (event.raw_type, event.subtype) == ("result", "error")
    assert "isn't logged in" in event.data.get("error")
    assert not stream.result.success


def test_garbage_and_novelties_do_not_stop_a_stream():
    with query_stream("/garbage rubbish\n/new-events\n/reconnect\n/web https://example.com\ndone") as stream:
        events = list(stream)
    assert events[-1].type is EventType.RESULT_SUCCESS
    assert "rubbish" in [event.text for event in events if event.raw_type == "raw"]
    assert "connection" in {event.raw_type for event in events}


def test_streams_side_by_side(program):
    client = CursorAgentClient(
        agent_binary=program("while True: line({'type': 'assistant', 'text': 'x', 'timestamp_ms': 1})")
    )
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(client.query_stream("x")) for _ in range(5)]
        for _ in range(20):
            for stream in streams:
                next(stream)
        assert {len(stream.events) for stream in streams} == {20}
