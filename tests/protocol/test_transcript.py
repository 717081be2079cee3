"""The document's session, replayed against a real daemon."""

import re

import pytest

from tests.protocol import document, transcript
from tests.protocol.rules import rule


@rule("P-FRAME-1", "P-REQ-5", "P-ANS-1", "P-OBJ-2", "P-SUB-1", "P-SHUT-1")
def test_the_session_goes_as_written(daemon):
    daemon.start()
    with daemon.wire(hello=False) as wire:
        replay = transcript.Replay(wire, {"<path1>": str(daemon.workspace)})
        for side, line in document.transcript():
            {"C": replay.client, "S": replay.server}[side](line)
        replay.finish()
    assert daemon.process.wait(20) == 0
    cursors = [value for name, value in sorted(replay.known.items(), key=_number) if name.startswith("<cursor")]
    assert cursors == sorted(set(cursors)), "cursors grow in the order of their numbers"


def _number(item):
    return int(re.sub(r"\D", "", item[0]) or -1)


def test_the_session_shows_what_it_should():
    lines = document.transcript()
    assert {side for side, _ in lines} == {"C", "S"}
    asked = [transcript.read(line) for side, line in lines if side == "C"]
    assert {request["method"] for request in asked} >= {
        "hello", "agent.spawn", "events.subscribe", "agent.wait", "agent.suspend", "agent.resume", "daemon.shutdown",
    }  # fmt: skip
    answered = [transcript.read(line) for side, line in lines if side == "S"]
    assert any("error" in answer for answer in answered)
    ids = [answer["id"] for answer in answered if "id" in answer]
    assert sorted(ids) == [request["id"] for request in asked]
    assert ids != sorted(ids), "an answer overtakes another"


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ('{"a":<int>}', {"a": "1"}),
        ('{"a":<int>}', {"a": True}),
        ('{"a":"<uuid>"}', {"a": "not one"}),
        ('{"a":"<time>"}', {"a": "2030-01-31T12:00:00Z"}),
        ('{"a":"<path>"}', {"a": "here"}),
        ('{"a":<cursor1>,"b":<cursor1>}', {"a": 1, "b": 2}),
        ('{"a":1}', {"a": True}),
        ('{"a":1}', {"a": 1, "b": 2}),
        ('{"a":1,"b":2}', {"b": 2, "a": 1}),
        ('{"a":[<int>]}', {"a": [1, 2]}),
        ('{"a":<object>}', {"a": None}),
    ],
)
def test_a_difference_is_found(template, value):
    with pytest.raises(transcript.Mismatch):
        transcript.match(transcript.read(template), value, {})
