"""Bytes to events for whatever is printed and however it arrives: splitting, garbage, text, pairing, memory."""

import itertools
import json
import tracemalloc

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from substrat.core.programs import lenient
from substrat.core.programs.cursor import stream
from substrat.core.programs.cursor.tool_calls import Pairing
from substrat.core.programs.ndjson import MAX_LINE, Line, Splitter
from substrat.core.programs.program import LineEvent
from tests.core.dialect_writer import DIALECTS, SESSION, TIME, TOOLS, Call, Current, End, Payload, Say, Start, Think, Turn

CHUNK = 64 * 1024


def events_of(chunks, limit=MAX_LINE):
    """The events of a stream that comes in these chunks; blank lines are no events."""
    splitter, pairing = Splitter(limit=limit), Pairing()
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    lines += splitter.finish()
    return [stream.decode(line, pairing) for line in lines if line.data.strip() or line.cut]


def usable(event):
    """Do everything that is done with an event: it must be possible."""
    assert isinstance(event, LineEvent)
    assert event.kind
    if event.text is not None:
        assert msgspec.json.decode(msgspec.json.encode(event.text)) == event.text
    if event.body is not None:
        assert isinstance(msgspec.json.decode(lenient.as_json(event.body)), dict)
    result, session = stream.result_of(event), stream.session_of(event)
    assert (result is not None) == event.kind.startswith("result:")
    assert result is None or result.text.encode().decode() == result.text
    assert session is None or session.encode().decode() == session


# What may be printed

short = st.text(max_size=8)
steps = st.one_of(
    short.map(Think),
    st.lists(short, min_size=1, max_size=3).map(lambda pieces: Say(tuple(pieces))),
    st.builds(
        lambda kind, call: kind(call),
        st.sampled_from([Start, End]),
        st.builds(Call, id=st.sampled_from(["a", "b\nfc_b"]), tool=st.sampled_from(sorted(TOOLS)), subject=short),
    ),
)
turns = st.builds(Turn, short, st.lists(steps, max_size=4).map(tuple), st.none() | short)


@st.composite
def told_turns(draw):
    """The lines of a turn in one of the dialects, some of which aren't ASCII."""
    dialect = DIALECTS[draw(st.sampled_from(sorted(DIALECTS)))]
    ascii_only = draw(st.booleans())
    texts = [json.dumps(body, ensure_ascii=ascii_only) for body in dialect.lines(draw(turns))]
    return [text.encode("utf-8", "surrogatepass") for text in texts]


GARBAGE = [
    b"",
    b"  \t",
    b"\r",
    b"Using worktree: /tmp/x",
    b"\xff\xfe\x00",
    b'{"type":"user","message":{"content":"\xc3"}}',
    b'{"type":"assistant","message":{"content":"\\ud800"},"timestamp_ms":NaN}',
    b'{"type":"result","result":"a","usage":{"inputTokens":Infinity}}',
    b'{"type":"user","type":"assistant","text":"a","text":"b"}',
    b'{"type":"tool_call","subtype":"started","call_id":' + b"9" * 400 + b"}",
    b'{"type":"tool_call","subtype":"completed","timestamp_ms":' + b"9" * 5000 + b"}",
    b'{"message":' + b"[" * 300 + b"]" * 300 + b"}",
    b'{"payload":' * 5000 + b"1" + b"}" * 5000,
    b'{"type":"user","message":{"content":"' + b"long " * 3000 + b'"}}',
    b'{"type":"result","subtype":"success","is_error":false,"result":"' + b"long " * 3000 + b'"}',
    b'{"type":"assist',
    b"null",
]
garbage = st.sampled_from(GARBAGE) | st.binary(max_size=30).map(lambda data: data.replace(b"\n", b""))
lines = st.lists(told_turns() | st.lists(garbage, min_size=1, max_size=3), max_size=4).map(
    lambda parts: [line for part in parts for line in part]
)


@st.composite
def streams(draw):
    """Bytes as they may come: lines of a turn among others, ended in either way, the last one perhaps not at all."""
    ending = draw(st.sampled_from([b"\n", b"\r\n"]))
    data = ending.join(draw(lines))
    return data + ending if draw(st.booleans()) else data


def cut_at(data, places):
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


@given(streams(), st.lists(st.integers(0, 1 << 20), max_size=12), st.sampled_from([200, 1000, MAX_LINE]))
@settings(max_examples=80)
def test_however_the_bytes_arrive_the_events_are_those_of_its_lines(data, places, limit):
    pairing, at, expected = Pairing(), 0, []
    for part in data.split(b"\n"):
        if part.strip():
            expected.append(stream.decode(Line(at, len(part), part[:limit]), pairing))
        at += len(part) + 1
    found = events_of(cut_at(data, places), limit)
    assert found == expected
    for event in found:
        usable(event)


@given(streams())
@settings(max_examples=15)
def test_bytes_that_arrive_one_by_one_make_the_same_events(data):
    data = data[:2000]
    assert events_of([data[at : at + 1] for at in range(len(data))], 300) == events_of([data], 300)


@given(told_turns(), st.integers(0, 1 << 20))
@settings(max_examples=50)
def test_a_turn_that_breaks_off_tells_all_its_whole_lines(told, place):
    data = b"\n".join(told) + b"\n"
    data = data[: place % len(data)]
    whole = events_of([b"\n".join(told)])
    found = events_of([data])
    assert found[: data.count(b"\n")] == whole[: data.count(b"\n")]
    assert len(found) <= data.count(b"\n") + 1


@given(told_turns())
@settings(max_examples=50)
def test_a_carriage_return_at_the_end_of_a_line_changes_nothing(told):
    assert events_of([b"\r\n".join(told)]) == events_of([b"\n".join(told)])


@given(told_turns(), st.lists(st.tuples(st.integers(0, 30), garbage), max_size=6))
@settings(max_examples=50)
def test_lines_that_say_nothing_of_the_turn_do_not_harm_those_that_do(told, others):
    # Only what can't touch a call under way, so no tool calls.
    mixed = [(line, True) for line in told]
    for place, other in others:
        if b"tool" not in other:
            mixed.insert(place % (len(mixed) + 1), (other, False))
    kept = [mine for line, mine in mixed if line.strip()]
    found = events_of([b"\n".join(line for line, _ in mixed)])
    assert [event for event, mine in zip(found, kept, strict=True) if mine] == events_of([b"\n".join(told)])


# Whatever value is where

KNOWN = [
    "type", "subtype", "payload", "toolCall", "tool_call", "function", "message", "content", "result", "timestamp_ms",
    "model_call_id", "call_id", "usage", "name", "arguments", "args", "shellToolCall", "mcpToolCall", "ToolCall", "todos",
    "updateTodosToolCall", "success", "failure", "exitCode", "session_id", "text", "error", "data", "response", "tool_name",
    "parameters", "id", "is_error", "title", "attempt", "toolName", "startedAtMs", "completedAtMs", "executionTime",
]  # fmt: skip
WORDS = [
    "system", "init", "user", "assistant", "thinking", "delta", "completed", "tool_call", "started", "result", "success",
    "error", "raw", "text", "interaction_query", "request", "response", "connection", "reconnecting", "retry", "starting",
    "task_notification", "tool-call-started", "tool-call-completed", '{"command": "ls"}', '{"a": "\\ud800"}', "[1]", "{",
]  # fmt: skip
anything = st.one_of(
    st.sampled_from(WORDS),
    st.none(),
    st.booleans(),
    st.integers(-(10**25), 10**25),
    st.floats(),
    st.text(st.characters(exclude_categories=()), max_size=5),
)
keys = st.sampled_from(KNOWN) | st.text(st.characters(exclude_categories=()), max_size=5)
values = st.recursive(
    anything, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
)
heads = st.sampled_from([
    {},
    {"type": "assistant"},
    {"type": "result", "subtype": "success"},
    {"type": "tool_call", "subtype": "started"},
    {"type": "tool_call", "subtype": "completed"},
    {"type": "tool-call-started"},
    {"type": "tool-call-completed"},
    {"type": "interaction_query", "subtype": "response"},
    {"type": "system", "subtype": "init"},
])  # fmt: skip
objects = st.builds(lambda head, body: {**head, **body}, heads, st.dictionaries(keys, values, max_size=5))


@given(st.lists(objects | values, min_size=1, max_size=4))
@settings(max_examples=150)
@example([{"type": "tool_call", "subtype": "completed", "tool_call": {"function": {"name": [], "arguments": "\ud800"}}}])
@example([{"type": ["tool-call-started"], "payload": {"toolCall": {"ToolCall": None, "result": {"success": None}}}}])
def test_every_value_is_exactly_one_event_that_can_be_used(bodies):
    found = events_of([json.dumps(body).encode() + b"\n" for body in bodies])
    assert len(found) == len(bodies)
    for event, body in zip(found, bodies, strict=True):
        usable(event)
        assert (event.body is None) == (not isinstance(body, dict))


@given(st.binary(max_size=80))
@settings(max_examples=150)
def test_all_bytes_are_as_many_events_as_they_have_lines_with_something_on_them(data):
    found = events_of([data])
    assert len(found) == sum(bool(line.strip()) for line in data.split(b"\n"))
    for event in found:
        usable(event)


@given(objects, st.integers(0, 400), st.integers(0, 4000))
@settings(max_examples=100)
def test_a_line_that_was_cut_is_one_event_wherever_it_was_cut(body, limit, more):
    data = json.dumps(body).encode()
    event = stream.decode(Line(0, len(data) + more + 1, data[:limit]))
    usable(event)
    assert event.kind in {"raw", "result:success", "result:error"}


@pytest.mark.parametrize("data", [data for data in GARBAGE if data.strip()])
def test_each_odd_line_is_one_event(data):
    (event,) = events_of([data])
    usable(event)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(("depth", "kind"), [(100, "user"), (300, "raw"), (900, "raw"), (5000, "raw")])
def test_what_is_nested_deeper_than_any_reader_takes_is_raw(depth, kind, strict):
    number = b"1" if strict else b"NaN"
    (event,) = events_of([b'{"type":"user","x":' + b"[" * depth + number + b"]" * depth + b"}"])
    usable(event)
    assert event.kind == kind


# The answer's text

segments = st.lists(st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=4), min_size=1, max_size=4)


def spoken(parts, between):
    """A turn with these segments and some calls between them."""
    steps: list[Start | End | Say] = []
    for number, pieces in enumerate(parts):
        calls = [Call(f"c{number}-{index}", "read", "a.py") for index in range(between if number else 0)]
        steps += [*map(Start, calls), *map(End, calls), Say(tuple(pieces))]
    return Turn("go", tuple(steps))


def joined(events, kind):
    return "".join(event.text for event in events if event.kind == kind)


@pytest.mark.parametrize("name", DIALECTS)
@given(parts=segments, between=st.integers(0, 2))
@settings(max_examples=20)
def test_the_segments_together_are_the_results_text(name, parts, between):
    turn = spoken(parts, between)
    bodies = list(DIALECTS[name].lines(turn))
    events = events_of([json.dumps(body).encode() + b"\n" for body in bodies])
    assert joined(events, "assistant") == turn.text
    if name != "payload":  # it has no text in its results
        assert stream.result_of(events[-1]).text == turn.text
    streamed = joined(events, "assistant:delta")
    assert streamed == (turn.text if "pieces" in name else "")


@given(segments, st.data())
@settings(max_examples=40)
def test_segments_that_were_not_streamed_are_missing_from_the_pieces_alone(parts, data):
    turn = spoken(parts, 1)
    streamed = [data.draw(st.booleans()) for _ in parts]
    flags, bodies = iter(streamed), []
    for number, step in enumerate(turn.steps):
        writer = Current(partial=isinstance(step, Say) and next(flags))
        bodies += writer.step(step, last=number == len(turn.steps) - 1)
    events = events_of([json.dumps(body).encode() + b"\n" for body in bodies])
    assert joined(events, "assistant") == turn.text
    told = ["".join(pieces) for pieces, flag in zip(parts, streamed, strict=True) if flag]
    assert joined(events, "assistant:delta") == "".join(told)


# Tool calls


@st.composite
def interleaved(draw):
    """Calls and an order in which each ends after its start, among them one whose start nobody saw."""
    count = draw(st.integers(1, 5))
    ids = draw(
        st.lists(st.text(st.sampled_from("ab\n_0"), min_size=1, max_size=6), min_size=count, max_size=count, unique=True)
    )
    calls = [Call(call_id, draw(st.sampled_from(sorted(TOOLS))), f"subject-{index}") for index, call_id in enumerate(ids)]
    order = draw(st.permutations([*range(count), *range(count)]))
    seen, found = set(), []
    for index in order:
        found.append(End(calls[index]) if index in seen else Start(calls[index]))
        seen.add(index)
    return found


@given(interleaved(), st.booleans(), st.sampled_from(["current", "documented", "function", "flat", "payload"]))
@settings(max_examples=100)
def test_each_end_names_what_its_own_call_was_applied_to(order, bare, name):
    writer = DIALECTS[name]
    ordered = [step._replace(bare=bare) if isinstance(step, End) else step for step in order]
    last = () if isinstance(writer, Payload) else (False,)
    bodies = [body for step in ordered for body in writer.step(step, *last)]
    events = events_of([json.dumps(body).encode() + b"\n" for body in bodies])
    for step, event in zip(order, events, strict=True):
        assert event.text.partition(" → ")[0] == f"{step.call.tool}: {step.call.subject}"


@given(st.lists(st.booleans(), min_size=1, max_size=6))
@settings(max_examples=30)
def test_an_id_that_is_used_again_stands_for_the_newest_call(seen):
    steps: list[Start | End] = []
    for number, started in enumerate(seen):
        call = Call("again", "shell", f"command-{number}")
        steps += [Start(call), End(call, bare=True)] if started else [End(call)]
    bodies = [body for step in steps for body in Current().step(step, last=False)]
    events = events_of([json.dumps(body).encode() + b"\n" for body in bodies])
    assert [event.text.partition(" → ")[0] for event in events] == [f"shell: {step.call.subject}" for step in steps]


def test_what_an_end_says_itself_counts_before_what_its_start_said():
    asked, done = Call("c", "edit", "a.py"), Call("c", "edit", "/w/a.py")
    bodies = [body for step in (Start(asked), End(done)) for body in Current().step(step, last=False)]
    events = events_of([json.dumps(body).encode() + b"\n" for body in bodies])
    assert [event.text.partition(" → ")[0] for event in events] == ["edit: a.py", "edit: /w/a.py"]


def test_a_second_end_of_one_call_is_told_from_its_own_line():
    call = Call("once", "shell", "make")
    bodies = [
        body for step in (Start(call), End(call, bare=True), End(call, bare=True)) for body in Current().step(step, False)
    ]
    events = events_of([json.dumps(body).encode() + b"\n" for body in bodies])
    assert [event.text.partition(" → ")[0] for event in events] == ["shell: make", "shell: make", "shell"]


# Long lines


def huge(head, tail=b'"}', size=64 * 1024 * 1024):
    """A line of many megabytes in chunks that don't need them all at once, and the next line."""
    yield head
    filling = b"x" * CHUNK
    for _ in range(size // CHUNK):
        yield filling
    yield tail + b'\n{"type":"user","message":{"content":"next"}}\n'


def peak_of(chunks):
    tracemalloc.start()
    try:
        found = events_of(chunks)
        return found, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


LONGEST = 24 * 1024 * 1024
"""What a line may need at most: what is kept of it, the same put together, and room."""


def test_a_line_of_64_megabytes_costs_a_bounded_memory_and_no_other_line():
    head = b'{"type":"tool_call","subtype":"completed","tool_call":{"editToolCall":{"result":{"success":{"content":"'
    found, peak = peak_of(huge(head, b'"}}}}}'))
    assert peak < LONGEST
    cut, after = found
    assert cut.kind == "raw"
    assert cut.text.startswith(head.decode())
    assert cut.text.endswith(f"… [cut: {len(head) + 64 * 1024 * 1024 + 6} bytes]")
    assert len(cut.text) < stream.MAX_TEXT + 100
    assert (after.kind, after.text) == ("user", "next")


@pytest.mark.parametrize(("flag", "kind"), [(b"false", "result:success"), (b"true", "result:error")])
def test_a_result_of_64_megabytes_still_ends_its_turn(flag, kind):
    head = b'{"type":"result","subtype":"success","duration_ms":1.5e3,"is_error":' + flag + b',"result":"'
    found, peak = peak_of(huge(head))
    assert peak < LONGEST
    assert [event.kind for event in found] == [kind, "user"]
    result = stream.result_of(found[0])
    assert result.is_error is (flag == b"true")
    assert result.text.startswith("xxx")
    assert "cut" in result.text


@pytest.mark.parametrize("size", [1, 2, 100])
def test_a_long_line_that_arrives_in_crumbs_costs_what_is_kept_of_it(size):
    def crumbs():
        for _ in range(CHUNK // size):
            yield b"x" * size

    _, peak = peak_of(crumbs())
    assert peak < 8 * CHUNK


def test_a_line_of_exactly_the_limit_is_whole():
    head, tail = b'{"type":"thinking","subtype":"delta","session_id":"' + SESSION.encode() + b'","text":"', b'"}'
    for more, kind in ((0, "thinking:delta"), (1, "raw")):
        filling = b"x" * (1000 - len(head) - len(tail) + more)
        (event,) = events_of([head + filling + tail + b"\n"], 1000)
        assert event.kind == kind
        assert event.text.count("x") >= len(filling)


def test_the_time_of_a_turn_is_that_of_its_own_lines():
    call = Call("c", "shell", "make")
    (start,), (end,) = Current().step(Start(call), False), Current().step(End(call), False)
    end["timestamp_ms"] = TIME + 2500
    events = events_of([json.dumps(body).encode() + b"\n" for body in (start, end)])
    assert events[1].text == "shell: make → exit 0 (2.5 s)"
