"""Transcripts: what events become, whichever dialect they came in, in order and whatever is missing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.core.programs import transcript as transcripts
from substrat.core.programs.transcript import Transcript


def event(kind, text=None, turn="t", raw=None, time="2026-01-01T00:00:00.000Z"):
    return {"cursor": 1, "agent": "a", "turn": turn, "time": time, "kind": kind, "text": text, "raw": raw}


def started(call_id, command, group=None):
    return event("tool-call-started", f"shell: {command}", raw={
        "type": "tool_call", "subtype": "started", "call_id": call_id, "model_call_id": group, "timestamp_ms": 1000,
        "tool_call": {"shellToolCall": {"args": {"command": command}}},
    })  # fmt: skip


def completed(call_id, **arms):
    return event("tool-call-completed", "ignored", raw={
        "type": "tool_call", "subtype": "completed", "call_id": call_id, "timestamp_ms": 3500,
        "tool_call": {"shellToolCall": {"result": arms}},
    })  # fmt: skip


def done(stdout="", code=0):
    return {"success": {"exitCode": code, "stdout": stdout, "stderr": ""}}


def steps_of(*events):
    transcript = Transcript()
    return [step for one in events for step in transcript.feed(one)] + transcript.finish()


def told(*events):
    return [(step.kind, step.text) for step in steps_of(*events)]


def test_a_whole_turn():
    events = (
        event("turn:started", "turn 1 started"),
        event("system:init", "session x"),
        event("user", "do it"),
        event("thinking:delta", "hm"),
        event("thinking:delta", "m"),
        event("thinking:completed"),
        event("assistant:delta", "Well"),
        event("assistant:delta", "."),
        event("assistant", "Well."),
        started("c", "ls"),
        completed("c", **done("a\nb\n")),
        event("assistant", "Done."),
        event("result:success", "Well.Done."),
        event("turn:ended", "turn 1 success after 1.0 s"),
    )
    assert told(*events) == [
        ("prompt", "do it"),
        ("thinking", "hmm"),
        ("text", "Well."),
        ("tool", "shell: ls"),
        ("text", "Done."),
        ("note", "turn 1 success after 1.0 s"),
    ]
    tool = steps_of(*events)[3].tool
    assert (tool.status, tool.verdict, tool.output, tool.exit_code, tool.seconds) == ("done", "exit 0", "a\nb", 0, 2.5)


def test_a_transcript_that_begins_where_another_was_at_rest_goes_on_as_that_would():
    turn = (
        event("turn:started"), event("user", "do it"), event("thinking:delta", "hm"), event("thinking:completed"),
        event("assistant:delta", "Well"), event("assistant:delta", "."), event("assistant", "Well."),
        started("c", "ls"), started("d", "pwd"), completed("c", **done("a\n")), event("tried", "again"),
        completed("d", **done("/\n")), event("assistant:delta", "Do"), event("retry:again", "once more"),
        event("assistant", "Done."), event("result:success", "Well.Done."), event("turn:ended", "over"),
    )  # fmt: skip
    second = [{**one, "turn": "u"} for one in turn]
    silent = [{**one, "turn": "v"} for one in (turn[0], turn[1], event("result:success", "All of it."), turn[-1])]
    events = [event("prompt:queued", turn=None), *turn, event("message:received", "hi", turn=None), *silent, *second]
    whole, transcript, steps, rests = steps_of(*events), Transcript(), [], 0
    for number, one in enumerate(events, 1):
        steps += transcript.feed(one)
        if transcript.is_at_rest:
            rests += 1
            rest = Transcript(midway=True)
            later = [step for one in events[number:] for step in rest.feed(one)] + rest.finish()
            assert steps + later == whole, one
    assert rests > 10


def test_fragments_that_are_never_repeated_are_speech():
    assert told(event("assistant:delta", "one "), event("assistant:delta", "two"), event("turn:ended", "end")) == [
        ("text", "one two"),
        ("note", "end"),
    ]


def test_a_segment_that_is_repeated_late_is_said_once():
    events = (event("assistant:delta", "one"), started("c", "ls"), event("assistant", "one"), completed("c", **done()))
    assert told(*events) == [("text", "one"), ("tool", "shell: ls")]


def test_the_same_words_said_twice_stay():
    assert told(event("assistant", "ok"), event("assistant", "ok")) == [("text", "ok"), ("text", "ok")]


def test_an_agent_that_says_nothing_but_its_result_is_heard():
    assert told(event("result:success", "all is well")) == [("text", "all is well")]
    assert told(event("assistant", "said"), event("result:success", "said")) == [("text", "said")]


def test_calls_keep_the_order_of_their_starts():
    events = (
        started("a", "one", "g"), started("b", "two", "g"), completed("b", **done("2")), completed("a", **done("1")),
    )  # fmt: skip
    found = [(step.text, step.tool.output, step.tool.group) for step in steps_of(*events)]
    assert found == [("shell: one", "1", "g"), ("shell: two", "2", "g")]


def test_an_end_without_a_start_is_a_step():
    (step,) = steps_of(completed("x", **done("out")))
    assert (step.kind, step.tool.status, step.tool.output) == ("tool", "done", "out")


def test_a_call_without_an_end_is_open():
    (step, note) = steps_of(started("x", "ls"), event("turn:ended", "turn 1 lost after 1 s"))
    assert (step.tool.status, step.tool.verdict, note.kind) == ("open", "no end was seen", "note")


def test_a_call_of_a_turn_that_runs_goes_on():
    (step,) = steps_of(started("x", "ls"))
    assert (step.tool.status, step.tool.verdict) == ("open", "it goes on")


@pytest.mark.parametrize(
    ("arms", "status"),
    [
        (done(), "done"),
        (done(code=1), "failed"),
        ({"failure": {"exitCode": 2}}, "failed"),
        ({"permissionDenied": {"error": "no"}}, "denied"),
        ({"rejected": {"reason": "User Rejected"}}, "rejected"),
        ({"timeout": {"timeoutMs": 5}}, "timed out"),
        ({"spawnError": {"error": "x"}}, "failed"),
        ({"somethingNew": {}}, "failed"),
        ({"success": {"isError": True, "content": []}}, "failed"),
    ],
)
def test_what_was_refused_is_told_from_what_failed(arms, status):
    (step,) = steps_of(started("c", "x"), completed("c", **arms))
    assert step.tool.status == status


def test_what_happens_between_turns_has_no_turn():
    steps = steps_of(
        event("agent:spawned", "born", turn=None), event("user", "go", turn="1"),
        event("message:received", "hi", turn=None),
        event("turn:ended", "end", turn="1"), event("agent:suspended", "suspended", turn=None),
    )  # fmt: skip
    assert [step.turn for step in steps] == [None, "1", "1", "1", None]


def test_a_new_turn_ends_what_the_last_one_left_open():
    steps = steps_of(started("c", "ls"), event("assistant:delta", "half"), event("user", "next", turn="u"))
    assert [(step.turn, step.kind) for step in steps] == [("t", "tool"), ("t", "text"), ("u", "prompt")]


def test_a_program_that_never_ends_its_calls_does_not_hold_up_for_ever():
    transcript = Transcript()
    out = transcript.feed(started("never", "sleep"))
    for number in range(2000):
        out += transcript.feed(event("assistant", f"{number}"))
    assert len(out) > 900
    assert out[0].tool.status == "open"


def test_endless_fragments_take_bounded_memory(monkeypatch):
    monkeypatch.setattr(transcripts, "MAX_TEXT", 100)
    ((_, text),) = told(*(event("assistant:delta", "x" * 30) for _ in range(50)))
    assert len(text) == 120


def test_the_flat_dialect_gives_the_same_steps():
    flat = event("tool-call-completed", "x", raw={
        "type": "tool-call-completed", "tool_call_id": "c", "tool_name": "Shell",
        "parameters": {"command": "ls"}, "result": {"stdout": "a", "exitCode": 0},
    })  # fmt: skip
    (step,) = steps_of(flat)
    assert (step.text, step.tool.output, step.tool.verdict) == ("shell: ls", "a", "exit 0")


def test_steps_are_json():
    for step in steps_of(event("user", "x"), started("c", "ls"), completed("c", **done()), event("raw", "odd line")):
        assert set(json.loads(json.dumps(step.as_object()))) <= {"time", "kind", "text", "event", "tool"}


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["tool_call", "shellToolCall", "mcpToolCall", "args", "result", "success", "call_id", "content"]
            )
            | st.text(max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
kinds = st.sampled_from([
    "user", "assistant", "assistant:delta", "thinking:delta", "thinking:completed", "tool-call-started",
    "tool-call-completed", "result:success", "turn:started", "turn:ended", "raw", "unknown", "message:received",
])  # fmt: skip


@given(
    st.lists(st.tuples(kinds, st.none() | st.text(max_size=5), st.sampled_from([None, "1", "2"]), anything), max_size=30)
)
def test_no_events_break_it_and_nothing_said_is_lost(rows):
    events = [event(kind, text, turn, raw) for kind, text, turn, raw in rows]
    steps = steps_of(*events)
    assert [step.text for step in steps if step.kind == "prompt"] == [
        text or "" for kind, text, *_ in rows if kind == "user"
    ]
    thought = "".join(step.text for step in steps if step.kind == "thinking")
    assert thought == "".join(text or "" for kind, text, *_ in rows if kind == "thinking:delta")
    calls = sum(kind == "tool-call-started" for kind, *_ in rows)
    assert sum(step.kind == "tool" for step in steps) >= calls
