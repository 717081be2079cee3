"""codex's lines as events, transcripts and API objects of the one shape; recorded from codex 0.171.0 in November 2026."""

import json

from hypothesis import given
from hypothesis import strategies as st

from substrat.core.programs.codex import dialect
from substrat.core.programs.cursor import stream
from substrat.core.programs.program import gets_further
from tests.core.programs import printed
from tests.core.programs.printed import decoded, line_of
from tests.support.cases import each

FALLBACK = "Defaulting to fallback metadata; this can degrade performance and cause issues."
SESSION = "01a219c6-2586-7c62-8805-d8956c208681"


def lines_of(name):
    return printed.recorded("codex", name)


def told(name):
    return printed.told(lines_of(name))


def call(stage, **item):
    return line_of(type=f"item.{stage}", item={"id": "item_1", **item})


def test_a_recorded_turn_is_told_like_one_of_cursor_agents():
    assert told("turn.jsonl") == [
        ("system:init", f"session {SESSION}"),
        ("system:notice", f"Model metadata for `gpt-5-codex` not found. {FALLBACK}"),
        ("system:init", None),
        ("thinking:delta", "**Looking around**\n"),
        ("assistant", "I will look around first."),
        ("tool-call-started", "shell: echo hello from the shell; ls; exit 3"),
        ("tool-call-completed", "shell: echo hello from the shell; ls; exit 3 → exit 3"),
        ("tool-call-started", "mcp whoami: {}"),
        ("tool-call-completed", "mcp whoami: {} → done"),
        ("assistant", "The shell said hello and whoami answered. Prompts seen: 1."),
        ("result:success", None),
    ]


def test_a_warning_of_an_option_of_ours_is_no_notice():
    warning = "`--dangerously-bypass-hook-trust` is enabled. Enabled hooks may run without review for this invocation."
    line = line_of(type="item.completed", item={"id": "item_0", "type": "error", "message": warning})
    assert printed.told([line]) == [("system:init", None)]


def test_the_transcript_is_made_from_what_the_api_gives():
    steps = printed.steps(lines_of("turn.jsonl"))
    assert [step.kind for step in steps] == ["note", "thinking", "text", "tool", "tool", "text"]
    shell, whoami = steps[3].tool, steps[4].tool
    assert (shell.kind, shell.args, shell.exit_code) == ("shell", {"command": "echo hello from the shell; ls; exit 3"}, 3)
    assert (shell.status, shell.output) == ("failed", "hello from the shell\nREADME")
    assert (whoami.kind, whoami.status) == ("mcp", "done")
    assert whoami.args == {"toolName": "whoami", "providerIdentifier": "substrat", "args": {}}
    assert json.loads(whoami.output)["workspace"] == "/home/me/app"


def test_the_api_gives_a_call_in_the_one_shape():
    started = printed.objects(lines_of("turn.jsonl"))[5]
    assert started["raw"] == {
        "type": "tool_call", "subtype": "started", "call_id": "item_3",
        "tool_call": {"shellToolCall": {"args": {"command": "echo hello from the shell; ls; exit 3"}}},
    }  # fmt: skip


def test_only_the_first_line_names_the_session():
    sessions = [stream.session_of(event) for event in decoded(lines_of("turn.jsonl"))]
    assert [session for session in sessions if session is not None] == [SESSION]


def test_tries_to_connect_are_told_apart_from_the_failure_that_ends_the_turn():
    why = "unexpected status 401 Unauthorized: invalid x-api-key, url: http://127.0.0.1:8787/v1/responses"
    assert told("login-refused.jsonl")[3:] == [
        ("connection:reconnecting", f"Reconnecting... 1/5 ({why})"),
        ("error", why),
        ("result:error", why),
    ]
    waits = told("no-network.jsonl")[3:]
    assert {kind for kind, _ in waits} == {"connection:reconnecting"}
    assert not gets_further("connection:reconnecting")
    assert all(gets_further(kind) for kind, _ in told("turn.jsonl"))
    assert waits[0][1] == "Reconnecting... waiting for network (Connection failed: error sending request)"


@each(
    ("item", "text", "output"),
    [
        ({"type": "file_change", "changes": [{"path": "/w/hello.txt", "kind": "add"}], "status": "completed"},
         "edit: /w/hello.txt → done", "add /w/hello.txt"),
        ({"type": "file_change", "changes": [{"path": "/w/m", "kind": "add"}, {"path": "/w/n", "kind": "delete"}],
          "status": "completed"}, "edit: /w/m, /w/n → done", "add /w/m\ndelete /w/n"),
        ({"type": "command_execution", "command": "/bin/bash -lc true", "aggregated_output": "", "exit_code": 0,
          "status": "completed"}, "shell: true → exit 0", ""),
        ({"type": "command_execution", "command": "/bin/sh -c \"echo 'a'\"", "aggregated_output": "a\n", "exit_code": 0,
          "status": "completed"}, "shell: /bin/sh -c \"echo 'a'\" → exit 0", "a"),
        ({"type": "mcp_tool_call", "server": "substrat", "tool": "ask", "arguments": {"x": 1},
          "result": {"content": [{"type": "text", "text": "no such agent"}], "structured_content": None}, "error": None,
          "status": "failed"}, 'mcp ask: {"x": 1} → failed: no such agent', "no such agent"),
        ({"type": "mcp_tool_call", "server": "substrat", "tool": "ask", "arguments": {}, "result": None, "error": {
            "message": "tool call error\n\nCaused by:\n    it faulted\n\nStack backtrace:\n   0: <unknown>"},
          "status": "failed"}, "mcp ask: {} → failed: tool call error Caused by: it faulted", ""),
        ({"type": "todo_list", "items": [{"text": "look", "completed": True}, {"text": "do", "completed": False}]},
         "updateTodos: 2 items → done", "[completed] look\n[pending] do"),
    ],
)  # fmt: skip
def test_the_end_of_a_call_says_how_it_ended(item, text, output):
    line = call("completed", **item)
    assert [event.text for event in decoded([line])] == [text]
    assert [step.tool.output for step in printed.steps([line])] == [output]


def test_a_list_of_tasks_is_no_call_that_stays_open():
    line = call("started", type="todo_list", items=[{"text": "look", "completed": False}])
    assert [event.kind for event in decoded([line])] == ["tool-call-completed"]


def test_a_command_that_outlives_the_turn_stays_open():
    item = {"type": "command_execution", "command": "/bin/bash -lc 'sleep 30'", "exit_code": None, "status": "in_progress"}
    (step,) = printed.steps([call("started", **item)])
    assert (step.text, step.tool.status) == ("shell: sleep 30", "open")


@each(
    ("usage", "counts"),
    [
        ({"input_tokens": 450, "cached_input_tokens": 150, "cache_write_input_tokens": 20, "output_tokens": 60,
          "reasoning_output_tokens": 15}, {"inputTokens": 280, "outputTokens": 60, "cacheReadTokens": 150,
                                           "cacheWriteTokens": 20}),
        ({"input_tokens": "many"}, {"inputTokens": 0, "outputTokens": 0, "cacheReadTokens": 0, "cacheWriteTokens": 0}),
    ],
)  # fmt: skip
def test_a_result_has_the_counts_of_the_whole_thread(usage, counts):
    (event,) = decoded([line_of(type="turn.completed", usage=usage)])
    assert stream.result_of(event).usage == counts


@each(
    "body",
    [
        {"type": "item.completed", "item": {"id": "item_1", "type": "dance"}},
        {"type": "item.completed", "item": None},
        {"type": "error", "message": "no"},
        {"type": "assistant", "message": {"content": [{"type": "text", "text": "Hello"}]}},
        {"type": ["turn.completed"]},
    ],
)
def test_what_is_not_known_stays_as_it_is(body):
    assert dialect.normalise(body) is body


values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "a", "completed", "Reconnecting..."]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["text", "message", "content"]), inner),
    max_leaves=4,
)
kinds = st.sampled_from(["agent_message", "reasoning", "error", *dialect._CALLS])
members = ["id", "text", "message", "command", "exit_code", "changes", "items", "result", "error", "arguments", "status"]
items = st.builds(lambda kind, rest: {"type": kind, **rest}, kinds, st.dictionaries(st.sampled_from(members), values))


@given(
    st.sampled_from(["thread.started", "turn.completed", "turn.failed", "item.started", "item.completed", "error"]),
    st.dictionaries(st.sampled_from(["thread_id", "usage", "error", "message"]), values),
    items,
)
def test_no_value_of_a_member_makes_reading_fail(kind, rest, item):
    line = line_of(type=kind, item=item, **rest)
    (event,) = decoded([line])
    assert event.kind != "raw"
    stream.session_of(event)
    stream.result_of(event)
    printed.steps([line])
