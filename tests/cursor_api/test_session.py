"""Conversations: one chat over many prompts, and what is recorded of them."""

import pytest

from substrat.cursor_api import AgentConfig, ConversationSession, CursorAgentClient, EventType
from substrat.errors import Refused

ECHO = """
resumed = sys.argv[sys.argv.index("--resume") + 1] if "--resume" in sys.argv else "new"
line({"type": "system", "subtype": "init", "session_id": "s"})
line({"type": "assistant", "message": {"content": resumed + " " + prompt}})
if "hang" in prompt:
    hang()
line({"type": "result", "subtype": "success", "result": resumed + " " + prompt, "session_id": "s"})
"""


@pytest.fixture
def echo(program):
    return AgentConfig(agent_binary=program(ECHO))


def test_one_chat_for_all_prompts(echo):
    session = ConversationSession(echo)
    assert (session.session_id, session.history) == (None, [])
    first = session.send("one")
    second = session.send("two", timeout=10)
    assert (first.result, second.result, session.session_id) == ("new one", "s two", "s")
    assert session.history == [("one", first), ("two", second)]
    session.history.clear()
    assert len(session.history) == 2


def test_ways_to_make_one(echo):
    client = CursorAgentClient(echo)
    assert ConversationSession(client).client is client
    assert ConversationSession(client=client, session_id="s").send("x").result == "s x"
    assert ConversationSession(config=echo).send("x").result == "new x"
    assert ConversationSession(agent_binary=echo.agent_binary).send("x").result == "new x"
    assert ConversationSession(client, model="m").client.config.model == "m"
    assert client.config.model is None


def test_streams_are_recorded_when_they_are_finalized(echo):
    session = ConversationSession(echo)
    stream = session.send_stream("one")
    kinds = [event.type for event in stream]
    assert kinds[-1] is EventType.RESULT_SUCCESS
    assert (session.session_id, session.history) == ("s", [])
    result = session.finalize_stream("one", stream)
    assert (result.success, result.result) == (True, "new one")
    assert session.finalize_stream("one", stream) == result
    assert session.history == [("one", result)]
    assert session.send("two").result == "s two"


def test_a_cancelled_stream_is_recorded_as_that(echo):
    session = ConversationSession(echo)
    stream = session.send_stream("hang")
    for event in stream:
        if event.type is EventType.ASSISTANT:
            stream.cancel()
            break
    result = session.finalize_stream("hang", stream)
    assert (result.success, result.result, result.error) == (False, "new hang", "the answer was cancelled")
    assert session.send("on").result == "s on"
    assert [prompt for prompt, _ in session.history] == ["hang", "on"]


@pytest.mark.parametrize("finalizes", [True, False])
def test_finalizing_and_leaving_the_block_stop_what_goes_on(echo, alive, finalizes):
    with ConversationSession(echo) as session:
        stream = session.send_stream("hang")
        next(stream)
        if finalizes:
            session.finalize_stream("hang", stream)
            assert not alive(stream.process.pid)
    assert not alive(stream.process.pid)


def test_one_answer_at_a_time(echo):
    with ConversationSession(echo) as session:
        stream = session.send_stream("hang")
        next(stream)
        with pytest.raises(Refused, match="still being read"):
            session.send("more")
        with pytest.raises(Refused, match="still being read"):
            session.send_stream("more")
        stream.cancel()
        assert session.send("more").success


def test_an_answer_that_could_not_be_started_is_no_hindrance(echo, monkeypatch):
    with ConversationSession(echo) as session:
        with monkeypatch.context() as without:
            without.setattr(session._config, "agent_binary", "/no/such")
            with pytest.raises(FileNotFoundError) as missing:
                session.send_stream("one")
        assert session.send("two").success
    assert missing.value.__traceback__ is not None, "it holds the answer that failed"


def test_an_answer_that_was_received_is_no_hindrance(echo):
    session = ConversationSession(echo)
    for event in (stream := session.send_stream("one")):
        if event.type is EventType.RESULT_SUCCESS:
            break
    assert session.send("two").result == "s two"
    assert stream.process.returncode == 0


def test_beginning_anew(echo):
    session = ConversationSession(echo, session_id="old")
    assert session.send("x").result == "old x"
    session.reset()
    assert (session.session_id, session.history) == (None, [])
    assert session.send("x").result == "new x"


def test_failures_are_recorded_and_do_not_lose_the_chat(echo, monkeypatch):
    session = ConversationSession()
    session.send("hello")
    chat = session.session_id
    monkeypatch.setenv("STANDIN_FAIL", "network")
    assert not session.send("again").success
    assert session.session_id == chat
    assert [result.success for _, result in session.history] == [True, False]
