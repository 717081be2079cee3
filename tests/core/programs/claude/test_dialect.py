"""claude's lines as versions 2.1.197 and 2.1.332 printed them: events, transcripts, the result."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.core.programs.claude import dialect
from substrat.core.programs.cursor import stream
from tests.core.programs import printed
from tests.support.cases import each

TURN, EDIT, LOGIN = "turn-2.1.332.jsonl", "edit-2.1.332.jsonl", "refused-login-2.1.332.jsonl"
TOOLS, INTERRUPTED = "tools-2.1.197.jsonl", "interrupted-2.1.197.jsonl"


def lines_of(name):
    return printed.recorded("claude", name)


def told(name):
    return printed.told(lines_of(name))


def steps_of(name):
    return printed.steps(lines_of(name))


def test_a_turn_reads_like_one_of_cursor_agents():
    assert told(TURN) == [
        ("system:init", "session 11111111-2222-4333-8444-555555555555, model claude-opus-5-5"),
        ("assistant", "I will look around first. "),
        ("tool-call-started", "shell: echo hello from the shell; ls; exit 3"),
        ("tool-call-completed", "shell: echo hello from the shell; ls; exit 3 → exit 3 (0.3 s)"),
        ("tool-call-started", "mcp whoami: {}"),
        ("tool-call-completed", "mcp whoami: {} → done (0.0 s)"),
        ("assistant", "The shell said hello and whoami answered. Prompts seen: 1. "),
        ("result:success", "The shell said hello and whoami answered. Prompts seen: 1. "),
    ]


def test_calls_side_by_side_are_told_with_their_own_ends():
    assert [text for kind, text in told(TOOLS) if kind == "tool-call-completed"] == [
        (
            "grep: hello → failed: Error: No such tool available: Grep. Grep is not available in this session — search "
            "file contents with `grep` via the Bash tool instead."
        ),
        "shell: echo one; echo two >&2 → exit 0",
        "shell: exit 3 → exit 3",
        "read: /home/me/app/a.txt → done",
        "edit: /home/me/app/a.txt → done",
        "shell: echo bg; ls / → runs in the background (shell bjazs9cp0)",
    ]


def test_no_line_without_an_act_is_unknown():
    kinds = {kind for name in (TURN, EDIT, TOOLS, LOGIN, INTERRUPTED) for kind, _ in told(name)}
    assert "unknown" not in kinds
    assert told(TOOLS)[1:3] == [("thinking:completed", None), ("thinking:delta", "Let me look.")]
    assert ("system:notice", "task started") in told(TOOLS)


def test_the_transcript_has_passages_and_calls_in_their_order_and_each_calls_output():
    assert [step.kind for step in steps_of(TURN)] == ["text", "tool", "tool", "text"]
    tools = {step.tool.id: step.tool for step in steps_of(TURN) + steps_of(EDIT) + steps_of(TOOLS) if step.tool}
    assert {call: (tool.kind, tool.status, tool.output) for call, tool in tools.items() if call != "toolu_b1"} == {
        "toolu_a1": ("edit", "done", ("File created successfully at: /home/me/app/hello.txt (file state is current in your "
                     "context — no need to Read it back)")),
        "t1": ("shell", "done", "one\ntwo"),
        "t2": ("shell", "failed", ""),
        "t3": ("read", "done", "1\thello\n2\t"),
        "t4": ("grep", "failed", ""),
        "t6": ("edit", "done", "@@ -1,1 +1,1 @@\n-hello\n+bye"),
        "t9": ("shell", "done", ""),
    }  # fmt: skip
    shell, whoami = (step.tool for step in steps_of(TURN) if step.tool)
    assert (shell.exit_code, shell.output) == (3, "hello from the shell\nREADME")
    assert json.loads(whoami.output)["name"] == "claude"


def test_the_api_gives_calls_in_the_one_shape():
    started = next(event for event in printed.objects(lines_of(TURN)) if event["kind"] == "tool-call-started")
    assert started["raw"]["call_id"] == "toolu_a1"
    assert started["raw"]["tool_call"]["shellToolCall"]["args"]["command"] == "echo hello from the shell; ls; exit 3"


def test_a_result_has_its_usage_in_the_names_of_the_one_shape():
    result = stream.result_of(printed.decoded(lines_of(TURN))[-1])
    assert result is not None
    assert result.usage == {"inputTokens": 300, "outputTokens": 60, "cacheReadTokens": 150, "cacheWriteTokens": 30}
    assert not result.is_error


def test_a_refused_login_is_an_error_although_its_subtype_is_success():
    *_, said, ended = told(LOGIN)
    assert said == ("error", "Invalid API key · Fix external API key")
    assert ended == ("result:error", "Invalid API key · Fix external API key")
    assert [kind for kind, _ in told(LOGIN)][1:3] == ["retry:starting", "retry:starting"]


def test_a_turn_that_a_signal_ends_has_no_result_and_no_prompt_of_its_own():
    *_, note, ended = printed.decoded(lines_of(INTERRUPTED))
    assert (note.kind, note.text) == ("system:notice", "[Request interrupted by user for tool use]")
    assert (ended.kind, ended.text) == ("error", "broken off (aborted_tools)")
    assert stream.result_of(ended) is None


OTHERS = [
    {"type": "system", "subtype": "weather"},
    {"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": "hi"}]}},
    {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": "a"}]}},
    {"type": "result", "subtype": "success", "is_error": False, "result": "x", "usage": {"inputTokens": 15}},
    {"type": "result", "subtype": "success", "is_error": False, "result": "x"},
]


@each("body", OTHERS)
def test_a_line_of_cursor_agents_stays_as_it_is(body):
    assert dialect.normalise(body) is body


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted({
        "type", "content", "message", "id", "name", "input", "tool_use_id", "is_error", "text", "stdout", "lines", "usage",
        "structuredPatch", "errors", "timestamp",
    })), inner, max_size=4),
    max_leaves=10,
)  # fmt: skip


@given(
    st.sampled_from([("assistant", "tool_use"), ("assistant", "thinking"), ("user", "tool_result"), ("result", "")]),
    JSON, JSON, JSON,
)  # fmt: skip
def test_no_line_is_too_odd(kinds, block, told_result, other):
    kind, block_type = kinds
    inner = {**block, "type": block_type} if isinstance(block, dict) else block
    body = {
        "type": kind, "parent_tool_use_id": None, "message": {"content": [inner]}, "tool_use_result": told_result,
        "timestamp": other, "errors": other, "usage": {"input_tokens": other},
    }  # fmt: skip
    event, _ = stream.read(body)
    assert event.kind != "unknown"


@pytest.mark.parametrize("name", [TURN, TOOLS])
def test_the_session_is_named_in_the_first_line(name):
    first, *_ = lines_of(name)
    assert stream.session_of(stream.decode(first)) == json.loads(first.data)["session_id"]
    assert stream.model_of(stream.decode(first)) == json.loads(first.data)["model"], "its price is known by that"
