"""The clients' side of the protocol without a socket: requests, answers in any order and pieces, garbage, the end."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat import errors
from substrat.protocol import conversation as module
from substrat.protocol import framing
from substrat.protocol.conversation import ClientConversation
from tests.support.cases import each

HELLO = {"protocol": 1, "server": "substratd 9.9", "pid": 1, "state_dir": "/state"}
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


def line(**members):
    return json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n"


def greeted():
    conversation = ClientConversation("a test", "/run/s")
    conversation.receive(framing.success(0, HELLO))
    conversation.check()
    return conversation


def pieces(data, cuts):
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges) if start < end]


def test_requests_are_numbered_lines_without_parameters_that_are_none():
    conversation = ClientConversation("a test", "/run/s")
    hello = framing.decode(conversation.hello())
    assert (hello["id"], hello["method"]) == (0, "hello")
    assert hello["params"] == {"protocol": framing.PROTOCOL_VERSION, "client": "a test"}
    made = [conversation.request("agent.show", {"agent": name, "prompt": None, "allow": []}) for name in "abc"]
    assert [framing.decode(sent)["params"] for _, sent in made] == [{"agent": name, "allow": []} for name in "abc"]
    numbers = [number for number, _ in made]
    assert [framing.decode(sent)["id"] for _, sent in made] == numbers == list(conversation.pending)
    assert len({0, *numbers}) == 4


@given(st.lists(values, max_size=6), st.lists(values, max_size=6), st.randoms(), st.lists(st.integers(0, 5000), max_size=9))
def test_answers_and_events_arrive_in_any_order_and_pieces(results, events, random, cuts):
    conversation = ClientConversation("a test", "/run/s")
    numbers = [conversation.request("agent.show", {})[0] for _ in results]
    answers = [framing.success(number, result) for number, result in zip(numbers, results, strict=True)]
    random.shuffle(answers)
    notes = [framing.notification("event", {"event": event}) for event in events]
    strange = [line(), line(id=None), line(id=99, result=1), line(id="x", result=1), line(method="later", params=7)]
    # Each kind keeps its order, and the kinds are mixed.
    queues = [queue for queue in (answers, notes, strange) if queue]
    mixed = []
    while queues:
        queue = random.choice(queues)
        mixed.append(queue.pop(0))
        queues = [queue for queue in queues if queue]
    found = 0
    for piece in pieces(b"".join([framing.success(0, HELLO), *mixed]), cuts):
        found += conversation.receive(piece)
    conversation.check()
    assert conversation.server == HELLO
    assert found >= 1, "the greeting's answer counts"
    assert not conversation.pending
    assert [conversation.take_answer(number) for number in numbers] == results
    assert [params["event"] for params in conversation.notifications] == events
    for number in numbers:
        with pytest.raises(KeyError):
            conversation.take_answer(number)


@given(st.lists(st.binary(max_size=60) | values.map(lambda value: json.dumps(value).encode()), max_size=6), st.booleans())
def test_garbage_ends_the_conversation_or_is_passed_over(lines, after_greeting):
    conversation = greeted() if after_greeting else ClientConversation("a test", "/run/s")
    number, _ = conversation.request("agent.list", {})
    if after_greeting:
        conversation.receive(framing.success(number, ["mine"]))
    for said in lines:
        conversation.receive(said + b"\n")
    conversation.receive(b"")
    with pytest.raises(errors.SubstratError):
        conversation.check()
    assert conversation.has_answer(number) == after_greeting
    assert not after_greeting or conversation.take_answer(number) == ["mine"]


@pytest.mark.parametrize("said", [b"nonsense\n", b"[]\n", line(method="event"), line(method="event", params=[])])
def test_a_daemon_of_another_version_is_asked_about(said):
    conversation = greeted()
    conversation.receive(said)
    with pytest.raises(errors.SubstratError, match=r"the daemon at /run/s sent .* are both of one version"):
        conversation.check()


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 400 Bad Request\r\n", b"[]\n", b"null\n", b"\xff\n", b"7\n", b'"x"\n', b"\n", b"{}\n", line(params={}),
        line(id=1, error={}), line(id=0), line(id=0, result=[]), line(id=0, result={}), line(method="event", params=7),
        b"[" * 100_000 + b"\n",
    ],
    ids=range(15),
)  # fmt: skip
def test_the_first_line_shows_that_no_daemon_listens(said):
    conversation = ClientConversation("a test", "/run/s")
    conversation.request("agent.list", {})
    conversation.receive(said)
    with pytest.raises(errors.SubstratError, match=r"/run/s isn't a substratd"):
        conversation.check()


def test_another_version_is_refused_and_a_refused_greeting_is_itself():
    for answer, message in (
        (framing.success(0, {**HELLO, "protocol": 2}), "speaks version 2 of the protocol and this client version 1"),
        (framing.failure(0, errors.UnsupportedVersion("speak 2")), "speak 2"),
    ):
        conversation = ClientConversation("a test", "/run/s")
        conversation.receive(answer)
        with pytest.raises(errors.UnsupportedVersion, match=message):
            conversation.check()


@each("kind", errors.every_error().values())
def test_errors_are_those_of_the_request_or_of_all(kind):
    conversation = greeted()
    (one, _), (other, _) = conversation.request("agent.show", {}), conversation.request("agent.show", {})
    assert conversation.receive(framing.failure(one, kind("why")))
    with pytest.raises(kind, match=r"^why$") as caught:
        conversation.take_answer(one)
    assert type(caught.value) is kind
    conversation.check()
    assert not conversation.receive(framing.failure(None, kind("one of them")))
    assert not conversation.receive(framing.success(other, "too late"))
    for _ in range(2):
        with pytest.raises(kind, match=r"^one of them$"):
            conversation.check()


@pytest.mark.parametrize("error", [{}, {"code": "x", "message": 7}, {"code": 2**70}])
def test_an_error_of_another_form_is_an_error(error):
    conversation = greeted()
    number, _ = conversation.request("agent.show", {})
    conversation.receive(line(id=number, error=error))
    with pytest.raises(errors.SubstratError):
        conversation.take_answer(number)


def test_after_the_end_another_connection_goes_on_with_the_answers_that_came():
    conversation = greeted()
    (first, _), (second, _) = conversation.request("a", {}), conversation.request("b", {})
    conversation.receive(framing.success(second, 2) + b'{"jsonrpc":"2.0","id":1,"res')
    conversation.receive(b"")
    with pytest.raises(errors.ConnectionLost, match="/run/s closed the connection"):
        conversation.check()
    conversation.restart()
    conversation.check()
    assert conversation.server == {}
    third, _ = conversation.request("a", {})
    conversation.receive(framing.success(0, HELLO) + framing.success(first, 1) + framing.success(third, 3))
    assert third not in {first, second}
    assert [number for number in (first, second, third) if conversation.has_answer(number)] == [second, third]


def test_a_forgotten_requests_answer_is_passed_over():
    conversation = greeted()
    (first, _), (second, _) = conversation.request("a", {}), conversation.request("b", {})
    conversation.forget(first)
    conversation.receive(framing.success(first, 1) + framing.success(second, 2))
    conversation.forget(second)
    assert not conversation.has_answer(first)
    assert not conversation.has_answer(second)


def test_requests_that_the_daemon_could_not_read_are_refused_here():
    conversation = ClientConversation("a test", "/run/s")
    with pytest.raises(errors.MessageTooLarge, match="put the text into a file"):
        conversation.request("agent.send", {"prompt": "x" * framing.MAX_LINE})
    for odd in ("\ud800", "x\udcff", float("nan"), float("inf"), [-float("inf")]):
        with pytest.raises(errors.ParseError):
            conversation.request("agent.send", {"prompt": odd})
    assert not conversation.pending
    for prompt in ("NaN", "Infinity", "-Infinity", "\\ud800", "\U0001f642"):
        _, sent = conversation.request("agent.send", {"prompt": prompt})
        assert framing.decode(sent)["params"]["prompt"] == prompt


def test_an_answer_over_every_bound_ends_the_conversation(monkeypatch):
    monkeypatch.setattr(module, "LONGEST_ANSWER", 1000)
    conversation = greeted()
    number, _ = conversation.request("agent.show", {})
    conversation.receive(framing.success(number, "x" * 900))
    assert conversation.take_answer(number) == "x" * 900
    conversation.receive(b"x" * 1001)
    with pytest.raises(errors.MessageTooLarge):
        conversation.check()
