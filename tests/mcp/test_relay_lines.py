"""Lines of any kind that a client gives to the companion: messages, batches, others, and the answers to each."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server import relay
from tests.mcp.test_relay import INITIALIZED, answer, daemon, request, shake_hands, start
from tests.support.optional import present

__all__ = ["daemon", "start"]


@pytest.mark.parametrize("spelling", [
    b'{"method":"tools/call","params":{"id":99,"method":"initialize"},"jsonrpc":"2.0","id":5}',
    b'{"params":{"text":"\\"id\\":99, \\"method\\":\\"initialize\\"\\\\"},"method":"tools/call","id":5}',
    b'{"params":["id",{"id":99},"method"],"id":5,"method":"tools/call"}',
    b'{ "id" :\t5 , "method" : "tools/call" , "params" : {"a":"}{]["} }',
    b'{"x":"id","y":"method","id":5,"method":"tools/call","z":{}}',
])  # fmt: skip
def test_only_the_messages_own_id_and_method_count(daemon, start, spelling):
    companion = start()
    first = daemon.accept()
    companion.send(spelling + b"\n")
    assert first.read() == spelling
    first.close()
    second = daemon.accept()
    assert second.read() == spelling  # as unanswered, not as a handshake
    second.send(answer(99))
    assert companion.read_message() == answer(99)
    second.send(answer(5))
    assert companion.read_message() == answer(5)
    second.close()
    third = daemon.accept()
    companion.send(request(6))
    assert third.read_message() == request(6)


def test_an_answer_that_merely_speaks_of_ids_is_passed_on(daemon, start):
    companion = start()
    first = daemon.accept()
    shake_hands(companion, first)
    companion.send(request(1))
    first.read()
    first.close()
    second = daemon.accept()
    for _ in range(3):
        second.read()
    told = {"jsonrpc": "2.0", "result": {"text": '{"id":0}', "id": 0}, "id": 1}
    second.send(told)
    assert companion.read_message() == told


def test_a_message_without_end_is_refused(daemon, start):
    companion = start(settings="relay._MAX_HELD = 1000")
    daemon.accept()
    companion.send(b"x" * 2000)
    assert companion.wait() == 1
    assert b"longer than" in companion.process.stderr.read()


def test_empty_lines_are_left_out(daemon, start):
    companion = start()
    connection = daemon.accept()
    companion.send(b"\n  \n\r\n" + json.dumps(request(1)).encode() + b"\n")
    assert connection.read_message() == request(1)


@pytest.mark.parametrize(("line", "code", "number"), [
    (b'{"id":', -32700, None),
    (b'{"id":1,"method":"x\\', -32700, None),
    (b'{"jsonrpc":"2.0","id":1,"method":"x"} x', -32700, None),
    (b"\xff\xfe{\x00}\x00", -32700, None),
    (b"}}}]]", -32700, None),
    (b'[{"jsonrpc":"2.0","id":1,"method":"x"},', -32700, None),
    (b"[" * 100_000, -32700, None),
    (b'{"id":NaN,"method":"x"}', -32700, None),
    (b'"text"', -32600, None),
    (b"[]", -32600, None),
    (b'{"jsonrpc":"2.0","id":{},"method":"x"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":true,"method":"x"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":null,"method":"x"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":1e999,"method":"x"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":5}', -32600, 5),
    (b'{"jsonrpc":"2.0","method":7}', -32600, None),
    (b'{"jsonrpc":"2.0","method":"x","params":"y"}', -32600, None),
])  # fmt: skip
def test_a_line_that_is_no_message_is_answered_at_once(daemon, start, line, code, number):
    companion = start()
    connection = daemon.accept()
    companion.send(line + b"\n")
    told = companion.read_message()
    assert (told["error"]["code"], told["id"]) == (code, number)
    assert told["error"]["message"]
    companion.send(request(6))
    assert connection.read_message() == request(6)


def test_a_byte_order_mark_is_left_out(daemon, start):
    companion = start()
    connection = daemon.accept()
    companion.send(b"\xef\xbb\xbf" + json.dumps(request(1)).encode() + b"\r\n")
    assert connection.read_message() == request(1)


def test_a_batch_is_answered_as_one_array_in_its_order(daemon, start):
    companion = start()
    first = daemon.accept()
    batch = [request(1), INITIALIZED, 7, request("two"), answer(99), {"id": 3}, request(4.5)]
    companion.send(json.dumps(batch).encode() + b" \n")
    assert [first.read_message() for _ in range(5)] == [request(1), INITIALIZED, request("two"), answer(99), request(4.5)]
    first.send(answer("two"))
    first.close()
    second = daemon.accept()
    assert [second.read_message() for _ in range(3)] == [INITIALIZED, request(1), request(4.5)]
    second.send(answer(4.5))
    second.send(answer(1))
    told = companion.read_message()
    assert [one["id"] for one in told] == [1, None, "two", 3, 4.5]
    assert [one.get("error", {}).get("code") for one in told] == [None, -32600, None, -32600, None]


def test_a_batch_of_notifications_is_not_answered(daemon, start):
    companion = start()
    connection = daemon.accept()
    companion.send([INITIALIZED, answer(3)])
    companion.send(request(1))
    assert [connection.read_message() for _ in range(3)] == [INITIALIZED, answer(3), request(1)]
    connection.send(answer(1))
    assert companion.read_message() == answer(1)


def test_two_requests_with_one_id_have_two_answers(daemon, start):
    companion = start()
    first = daemon.accept()
    companion.send(request(7, x=1))
    companion.send(request(7, x=2))
    first.read(), first.read()
    first.send(answer(7, x=1))
    assert companion.read_message() == answer(7, x=1)
    first.close()
    second = daemon.accept()
    assert second.read_message() == request(7, x=2)
    second.send(answer(7, x=2))
    assert companion.read_message() == answer(7, x=2)


def test_the_last_line_needs_no_end(daemon, start):
    companion = start(settings="relay.GOODBYE_SECONDS = 15")
    connection = daemon.accept()
    companion.send(json.dumps(request(1)).encode())
    companion.close_stdin()
    assert connection.read_message() == request(1)
    connection.send(answer(1))
    assert companion.read_message() == answer(1)


ids = st.integers() | st.text(max_size=300) | st.floats(allow_nan=False, allow_infinity=False)

values = st.recursive(
    ids | st.none() | st.booleans() | st.sampled_from(["2.0", '"id":1', "\\", '\\"', "{", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "a", '"']), inner, max_size=3),
    max_leaves=6,
)

messages = st.fixed_dictionaries({}, optional={
    "jsonrpc": st.just("2.0") | values, "id": ids | values, "method": st.sampled_from(["ping", "x"]) | values,
    "params": values, "result": values, "a": values,
})  # fmt: skip

lines = st.lists(messages | values, max_size=4) | messages | values


def is_id(value):
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def wanted(message):
    """Return the id that the answer to a message has, in a list; an empty list if there is to be no answer."""
    if not isinstance(message, dict):
        return [None]
    if "method" not in message and ("result" in message or "error" in message):
        return []
    if "method" in message and "id" not in message:
        well = message.get("jsonrpc") == "2.0" and isinstance(message["method"], str)
        return [] if well and isinstance(message.get("params"), dict | list | None) else [None]
    return [message["id"] if is_id(message.get("id")) else None]


def answers_wanted(line):
    """Return the ids of the answers to a line, in order."""
    if not isinstance(line, list):
        return wanted(line)
    return [number for message in line for number in wanted(message)] if line else [None]


class Loop(relay.Relay):
    """A companion without pipes, which keeps its lines to the daemon and to the client."""

    def __init__(self):
        super().__init__(b"")
        self.passed_on = []

    def to_server(self, data):
        self.passed_on.append(data)


@given(lines, st.sampled_from([None, 1]), st.booleans(), st.randoms())
def test_each_request_is_answered_exactly_once_with_its_id(line, indent, ascii_only, order):
    text = json.dumps(line, indent=indent, ensure_ascii=ascii_only).replace("\n", " ")
    said = []
    loop = Loop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relay, "write_all", lambda data: said.append(data) if data else None)
        loop.take_client_line(text.encode("utf-8", "replace"))
        order.shuffle(loop.unanswered)
        for asked in tuple(loop.unanswered):
            loop.take_server_line(b'{"jsonrpc":"2.0","id":%b,"result":{}}' % present(asked.message.key))
    told = [json.loads(data) for data in said]
    ids = [one.get("id") for one in (told[0] if told and isinstance(told[0], list) else told)]
    assert len(told) <= 1
    assert [repr(number) for number in ids] == [
        repr(number) for number in answers_wanted(json.loads(text.encode("utf-8", "replace")))
    ]
    assert not loop.unanswered


@given(
    st.binary(max_size=80)
    | st.lists(st.sampled_from([b'"', b"\\", b"id", b":", b"{", b"}", b",", b"[", b"]"])).map(b"".join)
)
def test_any_bytes_can_be_read(line):
    found, _ = relay.read(line)
    for message in found:
        assert message.refusal is None or message.key is not None


def test_a_call_that_the_daemon_would_not_take_is_answered_here(daemon, start):
    companion = start(settings="relay.MAX_LINE = 1000")
    connection = daemon.accept()
    companion.send(request(1, x="y" * 2000))
    refused = companion.read_message()
    assert refused["id"] == 1
    assert "longer than" in refused["error"]["message"]
    companion.send(request(2))
    assert connection.read_message() == request(2)
