"""cursor-agent's lines: what each shape is called and says, and what a result holds."""

from hypothesis import given
from hypothesis import strategies as st

from substrat.core.programs.cursor import stream
from substrat.core.programs.program import TurnResult
from tests.core.programs.cursor.lines import KINDS, SESSION, call, decode, follow, said


def test_the_kind_of_each_documented_shape():
    for body, kind in KINDS:
        event = decode(body)
        assert event.kind == kind
        assert event.body == body
        assert event.verbatim is True


TEXTS = [
    ({"type": "user", "message": {"content": [{"text": "one "}, {"text": "two"}]}}, "one two"),
    ({"type": "user", "message": {"content": "plain"}}, "plain"),
    ({"type": "thinking", "subtype": "delta", "text": "hm"}, "hm"),
    ({"type": "assistant", "message": said("it ", "works")}, "it works"),
    ({"type": "assistant", "message": {"content": [{"type": "image"}, {"type": "text", "text": "seen"}]}}, "seen"),
    ({"type": "result", "subtype": "success", "result": "all done"}, "all done"),
    ({"type": "result", "subtype": "error", "error": "it broke"}, "it broke"),
]


def test_the_readable_form():
    for body, text in TEXTS:
        assert decode(body).text == text


def test_init_names_session_and_model():
    event = decode({"type": "system", "subtype": "init", "session_id": SESSION, "model": "Composer 2.5 Fast"})
    assert SESSION in event.text
    assert "Composer 2.5 Fast" in event.text
    assert stream.session_of(event) == SESSION


def test_a_session_that_is_none():
    for session in (None, "", 7, (), {"id": SESSION}, True):
        assert stream.session_of(decode({"type": "system", "subtype": "init", "session_id": session})) is None


def test_only_init_names_the_session():
    assert stream.session_of(decode({"type": "user", "session_id": SESSION})) is None
    assert stream.session_of(decode(b"nonsense")) is None


# Words cut anywhere: deltas of a segment, then the segment again as a flush; the last flush has no time.
segments = st.lists(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=4), min_size=1, max_size=4)


@given(segments)
def test_deltas_and_flushes_each_give_the_whole_text(parts):
    bodies = []
    for number, segment in enumerate(parts):
        bodies += [{"type": "assistant", "message": said(delta), "timestamp_ms": 1} for delta in segment]
        flush = {"type": "assistant", "message": said("".join(segment))}
        last = number == len(parts) - 1
        bodies.append(flush if last else {**flush, "timestamp_ms": 1, "model_call_id": "m"})
    events = [decode(body) for body in bodies]
    whole = "".join(delta for segment in parts for delta in segment)
    assert "".join(event.text for event in events if event.kind == "assistant:delta") == whole
    assert "".join(event.text for event in events if event.kind == "assistant") == whole


# Tool calls

STARTS = [
    ("shell", {"command": "ls -l"}, "shell: ls -l"),
    ("read", {"path": "/w/a.py"}, "read: /w/a.py"),
    ("edit", {"path": "/w/a.py", "streamContent": "x"}, "edit: /w/a.py"),
    ("glob", {"targetDirectory": "/w", "globPattern": "*.py"}, "glob: *.py"),
    ("grep", {"pattern": "def "}, "grep: def"),
    ("webFetch", {"url": "https://example.org"}, "webFetch: https://example.org"),
    ("webSearch", {"searchTerm": "trio"}, "webSearch: trio"),
    ("mcp", {"toolName": "whoami", "name": "substrat-whoami", "args": {"a": 1}}, 'mcp whoami: {"a": 1}'),
    ("inventedYesterday", {"query": "why"}, "inventedYesterday: why"),
    ("inventedYesterday", {"depth": 3}, "inventedYesterday"),
    ("shell", {"command": "a\n  b\tc"}, "shell: a b c"),
]


def test_a_started_call_in_one_line():
    for kind, args, text in STARTS:
        assert decode(call("started", kind, args=args)).text == text


def test_a_long_call_is_told_shortly():
    for command in ["x" * 10_000, "line\n" * 3000]:
        text = decode(call("started", "shell", args={"command": command})).text
        assert len(text) <= 200
        assert "\n" not in text
        assert text.endswith("…")


ENDS = [
    ("shell", {"success": {"exitCode": 0}}, "exit 0"),
    ("shell", {"failure": {"exitCode": 3, "aborted": False}}, "exit 3"),
    ("read", {"success": {"content": "x"}}, "done"),
    ("read", {"error": {"errorMessage": "File not found"}}, "failed: File not found"),
    ("webFetch", {"rejected": {"reason": "User Rejected"}}, "rejected: User Rejected"),
    ("shell", {"permissionDenied": {"error": "blocked"}}, "denied: blocked"),
    ("mcp", {"success": {"isError": False, "content": []}}, "done"),
]


def test_a_completed_call_says_how_it_ended():
    for kind, result, verdict in ENDS:
        assert decode(call("completed", kind, args={"command": "c", "path": "p"}, result=result)).text.endswith(
            f"→ {verdict}"
        )


def test_a_tool_that_answers_with_an_error_has_failed():
    result = {"success": {"isError": True, "content": [{"text": {"text": "no such agent"}}]}}
    text = decode(call("completed", "mcp", args={"toolName": "send_message"}, result=result)).text
    assert "→ failed" in text


def test_a_completed_call_is_told_with_what_its_start_said():
    done = {"success": {"exitCode": 0}}
    texts = follow(
        call("started", "shell", at=1000, args={"command": "make"}), call("completed", "shell", at=3500, result=done)
    )
    assert texts == ["shell: make", "shell: make → exit 0 (2.5 s)"]


def test_parallel_calls_end_in_any_order():
    one, two = "call-1-0\nfc_a_0", "call-1-1\nfc_b_0"
    done = {"success": {"exitCode": 0}}
    texts = follow(
        call("started", "shell", at=0, call_id=one, args={"command": "first"}),
        call("started", "read", at=0, call_id=two, args={"path": "second"}),
        call("completed", "read", at=100, call_id=two, result={"success": {}}),
        call("completed", "shell", at=200, call_id=one, result=done),
    )
    assert texts[2:] == ["read: second → done (0.1 s)", "shell: first → exit 0 (0.2 s)"]


def test_a_call_nobody_saw_start_is_told_all_the_same():
    rejected = {"rejected": {"reason": "User Rejected"}}
    (text,) = follow(call("completed", "webSearch", at=5, result=rejected))
    assert "rejected: User Rejected" in text


def test_calls_without_end_cost_bounded_memory():
    bodies = [call("started", "shell", at=0, call_id=f"c{number}", args={"command": "x"}) for number in range(3000)]
    texts = follow(*bodies, call("completed", "shell", at=5, call_id="c2999", result={"success": {"exitCode": 0}}))
    assert texts[-1] == "shell: x → exit 0 (0.0 s)"


# Results


def test_a_result_with_usage():
    usage = {"inputTokens": 15, "outputTokens": 3, "cacheReadTokens": 0, "cacheWriteTokens": 0}
    result = stream.result_of(decode({"type": "result", "subtype": "success", "result": "done", "usage": usage}))
    assert result == TurnResult("done", is_error=False, usage=usage)


def test_a_result_of_an_old_build_has_no_usage():
    result = stream.result_of(decode({"type": "result", "subtype": "success", "result": "done"}))
    assert result == TurnResult("done", is_error=False, usage=None)


def test_a_strange_usage_does_not_harm_the_result():
    for usage in (None, 7, (), "many", {"inputTokens": "many", "nested": {}, "outputTokens": 1.5}):
        result = stream.result_of(decode({"type": "result", "subtype": "success", "result": "done", "usage": usage}))
        assert result.text == "done"
        assert result.usage in ({}, None)


def test_an_error_result():
    result = stream.result_of(decode({"type": "result", "subtype": "error", "is_error": True, "error": "quota"}))
    assert result == TurnResult("quota", is_error=True, usage=None)


def test_the_words_of_a_result_are_its_result_whatever_else_it_holds():
    for other in [{"subtype": "success", "text": "more"}, {"subtype": "error", "error": "more"}]:
        assert stream.result_of(decode({"type": "result", "result": "done", **other})).text == "done"


def test_what_is_no_result():
    for body in [{"type": "assistant", "result": "done"}, {"type": "turn_ended"}, {"result": "x"}]:
        assert stream.result_of(decode(body)) is None
