"""One turn told in each dialect reads the same, and every shape that is documented has a name and sensible words."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from substrat.core.programs.cursor import dialects, stream, tool_calls
from substrat.core.programs.cursor.tool_calls import Pairing
from substrat.core.programs.ndjson import Line
from tests.core.dialect_writer import DIALECTS, MODEL, SESSION, TIME, TOOLS, Call, End, Payload, Say, Start, Think, Turn
from tests.support.cases import each


def decode(*bodies):
    pairing = Pairing()
    return [stream.decode(Line(0, len(data), data), pairing) for data in (json.dumps(body).encode() for body in bodies)]


def told(events):
    """What a reader of any dialect is told: pieces and thinking left out, an answer's parts put together, no durations."""
    found: list[tuple] = []
    for event in events:
        text = event.text
        if event.kind.startswith("thinking") or event.kind == "assistant:delta":
            continue
        if event.kind == "assistant" and found and found[-1][0] == "assistant":
            text = found.pop()[1] + text
        if event.kind == "tool-call-completed":
            text = re.sub(r" \(-?[0-9.]+ s\)$", "", text)
        found.append((event.kind, None if event.kind.startswith("result") else text))
    return found


def expected(turn):
    """The same from the turn itself, without any decoder."""
    found = [("system:init", f"session {SESSION}, model {MODEL}"), ("user", turn.prompt)]
    for step in turn.steps:
        match step:
            case Say():
                before = found.pop()[1] if found[-1][0] == "assistant" else ""
                found.append(("assistant", before + step.text))
            case Start(call):
                found.append(("tool-call-started", f"{call.tool}: {call.subject}"))
            case End(call):
                found.append(("tool-call-completed", f"{call.tool}: {call.subject} → {verdict(call)}"))
    return [*found, (f"result:{'success' if turn.failure is None else 'error'}", None)]


def verdict(call):
    if call.end == "done":
        return f"exit {call.code}" if call.tool == "shell" else "done"
    words = {"rejected": "rejected", "permissionDenied": "denied", "error": "failed"}
    return f"{words[call.end]}: {call.reason}"


# A word survives being told in one line as it is.
words = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=10)
calls = st.builds(
    Call,
    id=st.just(""),
    tool=st.sampled_from(sorted(TOOLS)),
    subject=words,
    end=st.sampled_from(["done", "done", "error", "rejected", "permissionDenied"]),
    reason=words,
    code=st.sampled_from([0, 0, 1, 127]),
)
says = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=4).map(lambda pieces: Say(tuple(pieces)))


@st.composite
def turns(draw):
    """A turn: thoughts, segments, and between them calls side by side that end in any order."""
    steps, number = [], 0
    for _ in range(draw(st.integers(0, 3))):
        steps += draw(st.lists(words.map(Think), max_size=1)) + draw(st.lists(says, max_size=1))
        group = []
        for call in draw(st.lists(calls, min_size=1, max_size=3)):
            number += 1
            group.append(call._replace(id=f"call-{number}\nfc_{number}"))
        steps += [Start(call) for call in group]
        steps += [End(call, bare=draw(st.booleans())) for call in draw(st.permutations(group))]
    steps += draw(st.lists(says, max_size=1))
    return Turn(draw(words), tuple(steps), draw(st.none() | words))


@pytest.mark.parametrize("name", DIALECTS)
@given(turn=turns())
@settings(max_examples=50)
def test_a_turn_reads_the_same_in_each_dialect(name, turn):
    events = decode(*DIALECTS[name].lines(turn))
    assert told(events) == expected(turn)


@pytest.mark.parametrize("name", DIALECTS)
@given(turn=turns())
@settings(max_examples=20)
def test_each_dialect_names_session_and_outcome(name, turn):
    events = decode(*DIALECTS[name].lines(turn))
    assert stream.session_of(events[0]) == SESSION
    result = stream.result_of(events[-1])
    assert result.is_error is (turn.failure is not None)
    if name != "payload":  # it has no text in its results
        assert result.text == (turn.text if turn.failure is None else turn.failure)


def test_thinking_is_told_in_each_dialect_that_has_it():
    for name in [name for name in DIALECTS if name not in {"documented", "function"}]:
        events = decode(*DIALECTS[name].lines(Turn("go", (Think("hm, so"), Say(("yes",))))))
        assert [(event.kind, event.text) for event in events[2:4]] == [
            ("thinking:delta", "hm, so"),
            ("thinking:completed", None),
        ]


@pytest.mark.parametrize("name", ["current", "documented", "function", "flat", "payload"])
@given(turn=turns())
@settings(max_examples=20)
def test_normalising_is_done_once_and_changes_nothing_it_was_given(name, turn):
    for body in DIALECTS[name].lines(turn):
        before = json.dumps(body)
        once = dialects.normalise(body)
        assert dialects.normalise(once) == once
        assert json.dumps(body) == before


# What differs inside a dialect


def started(**rest):
    return {"type": "tool_call", "subtype": "started", **rest}


def completed(**rest):
    return {"type": "tool_call", "subtype": "completed", **rest}


def test_a_payloads_end_is_told_with_its_starts_tool():
    call = Call("t", "shell", "make")
    _, end = decode(*Payload().step(Start(call)), *Payload().step(End(call)))
    assert end.text == "shell: make → exit 0"


def test_a_payloads_end_whose_start_nobody_saw_names_no_tool():
    (event,) = decode(completed(payload={"toolCall": {"id": "t", "result": {"exitCode": 3}}}))
    assert event.text == "tool call → exit 3"


def test_a_payloads_call_may_have_its_arguments_bare():
    events = decode(
        started(payload={"toolCall": {"id": "w", "writeFileToolCall": {"path": "hello.py", "contents": "x"}}}),
        completed(payload={"toolCall": {"id": "w", "result": {"success": True}}}),
    )
    assert [event.text for event in events] == ["edit: hello.py", "edit: hello.py → done"]


def test_a_payloads_call_may_have_its_result_where_current_builds_have_it():
    result = {"failure": {"exitCode": 2}}
    (event,) = decode(completed(payload={"toolCall": {"id": "t", "shellToolCall": {"result": result}}}))
    assert event.text == "shell → exit 2"


def test_a_payload_does_not_change_what_a_line_is():
    (event,) = decode({"type": "user", "payload": {"type": "result", "subtype": "success", "prompt": "hi"}})
    assert (event.kind, event.text) == ("user", "hi")


def test_a_tools_own_name_becomes_its_kind_wherever_it_stands():
    for name, kind in [
        ("Shell", "shell"),
        ("shell", "shell"),
        ("Write", "edit"),
        ("write_file", "edit"),
        ("WriteFile", "edit"),
        ("StrReplace", "edit"),
        ("TodoWrite", "updateTodos"),
        ("SemanticSearch", "semSearch"),
        ("read_file", "read_file"),
        ("Invented", "invented"),
    ]:
        flat: dict[str, Any] = {
            "type": "tool-call-started",
            "tool_name": name,
            "tool_call_id": "c",
            "parameters": {"path": "a"},
        }
        function = started(call_id="c", tool_call={"function": {"name": name, "arguments": '{"path": "a"}'}})
        assert tool_calls.read(dialects.normalise(flat)).kind == kind
        assert tool_calls.read(dialects.normalise(function)).kind == kind


def test_a_name_that_is_none_is_no_kind():
    names: list[Any] = [None, 7, [], {}]
    for name in names:
        flat = {"type": "tool-call-completed", "tool_name": name, "result": {"success": True}}
        function = completed(tool_call={"function": {"name": name}, "result": {"success": True}})
        assert [event.text for event in decode(flat, function)] == ["tool call → done"] * 2


def test_a_functions_arguments_are_whatever_text_a_model_wrote():
    for text, summary in [
        ('{"command": "ls"}', "shell: ls"),
        ("{}", "shell"),
        ("ls -l", "shell"),
        ("", "shell"),
        ('["ls"]', "shell"),
        ('{"command": "a\\ud800b"}', "shell: a?b"),
        ('{"command": NaN}', "shell"),
    ]:
        (event,) = decode(started(tool_call={"function": {"name": "shell", "arguments": text}}))
        assert event.text == summary
        event.text.encode()


@pytest.mark.parametrize("depth", [150, 250, 900, 960, 990, 5000])
def test_a_functions_arguments_may_be_nested_deeply(depth):
    text = '{"toolName": "x", "args": ' + "[" * depth + "]" * depth + "}"
    pairing = Pairing()
    lines = [started(call_id="c", tool_call={"function": {"name": "mcp", "arguments": text}}), completed(call_id="c")]

    def deeper(levels, line):
        return deeper(levels - 1, line) if levels else stream.decode(line, pairing)

    # The end is told from a deeper stack than its start, so what fitted then may not fit now.
    for levels, data in zip((0, 200), (json.dumps(line).encode() for line in lines), strict=True):
        assert deeper(levels, Line(0, len(data), data)).text.startswith("mcp ")


def test_a_result_says_how_a_call_ended_in_each_older_dialect():
    for result, words in [
        ({"success": True}, "done"),
        ({"success": False, "error": "no such file"}, "failed: no such file"),
        ({"error": "no such file"}, "failed: no such file"),
        ({"output": "x", "exit_code": 0}, "exit 0"),
        ({"output": "x", "exit_code": 3}, "exit 3"),
        ({"stdout": "x", "exitCode": 3}, "exit 3"),
        ("plain text", "done"),
        (None, "done"),
        ([1, 2], "done"),
        ({"readPermissionDenied": {"error": "not yours"}}, "denied: not yours"),
        ({"writePermissionDenied": {"error": "not yours"}}, "denied: not yours"),
        ({"fileNotFound": {"path": "a"}}, "no such file"),
        ({"timeout": {"timeoutMs": 5}}, "timed out"),
        ({"toolNotFound": {"name": "x"}}, "no such tool"),
        ({"serverNotFound": {"name": "x"}}, "no such server"),
    ]:
        events = decode(
            {"type": "tool-call-completed", "tool_name": "Read", "tool_call_id": "c", "result": result},
            completed(payload={"toolCall": {"id": "c", "readToolCall": {"args": {}}, "result": result}}),
            completed(tool_call={"function": {"name": "read", "arguments": "{}"}, "result": result}),
        )
        assert [event.text for event in events] == [f"read → {words}"] * 3


def test_a_field_that_is_null_is_absent():
    spoken = {"type": "assistant", "message": {"content": "x"}}
    events = decode(
        {**spoken, "timestamp_ms": None},
        {**spoken, "timestamp_ms": TIME, "model_call_id": None},
        {**spoken, "timestamp_ms": TIME, "model_call_id": "m"},
    )
    assert [event.kind for event in events] == ["assistant", "assistant:delta", "assistant"]


# Every documented shape: one line each, with the kind and the words it must have

AT = {"session_id": SESSION, "timestamp_ms": TIME}


def said(text, **rest):
    return {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": text}]}, **rest}


def query(subtype, kind, inner):
    words = {"request": "query", "response": "response"}[subtype]
    return {"type": "interaction_query", "subtype": subtype, "query_type": kind, words: {"id": 0, **inner}, **AT}


EVENTS = [
    (
        {
            "type": "system", "subtype": "init", "apiKeySource": "login", "cwd": "/w", "session_id": SESSION,
            "model": MODEL, "permissionMode": "default",
        },
        "system:init", f"session {SESSION}, model {MODEL}",
    ),
    ({"type": "system", "subtype": "init", "payload": {}}, "system:init", None),
    ({"type": "system", "subtype": "init", "session_id": SESSION}, "system:init", f"session {SESSION}"),
    ({"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": "sort it"}]}}, "user", "sort it"),
    ({"type": "thinking", "subtype": "delta", "text": "First", **AT}, "thinking:delta", "First"),
    ({"type": "thinking", "subtype": "completed", **AT}, "thinking:completed", None),
    ({"type": "thinking", "payload": {"content": "First"}}, "thinking:delta", "First"),
    (said("so", **AT), "assistant:delta", "so"),
    (said("so far", model_call_id="m-0-ab", **AT), "assistant", "so far"),
    (said("so far", session_id=SESSION), "assistant", "so far"),
    ({"type": "assistant", "payload": {"message": {"content": "as words"}}}, "assistant", "as words"),
    (
        query("request", "webFetchRequestQuery", {"webFetchRequestQuery": {"args": {"url": "u"}, "skipApproval": False}}),
        "interaction_query:request", "webFetchRequestQuery asked",
    ),
    (
        query("response", "webFetchRequestQuery", {"webFetchRequestResponse": {"rejected": {"reason": "User Rejected"}}}),
        "interaction_query:response", "webFetchRequestQuery answered: rejected, User Rejected",
    ),
    (
        query("response", "webSearchRequestQuery", {"webSearchRequestResponse": {"approved": {}}}),
        "interaction_query:response", "webSearchRequestQuery answered: approved",
    ),
    (
        query(
            "response", "askQuestionInteractionQuery",
            {"askQuestionInteractionResponse": {"result": {"rejected": {"reason": "Questions skipped"}}}},
        ),
        "interaction_query:response", "askQuestionInteractionQuery answered: rejected, Questions skipped",
    ),
    (
        query("request", "createPlanRequestQuery", {"createPlanRequestQuery": {"args": {"plan": "# Plan\n1. Look"}}}),
        "interaction_query:request", "createPlanRequestQuery asked",
    ),
    (
        query("response", "switchModeRequestQuery", {"switchModeRequestResponse": {"approved": {}}}),
        "interaction_query:response", "switchModeRequestQuery answered: approved",
    ),
    (query("request", "mcpAuthRequestQuery", {}), "interaction_query:request", "mcpAuthRequestQuery asked"),
    (query("response", "generateImageQuery", {}), "interaction_query:response", "generateImageQuery answered"),
    (
        {"type": "system", "subtype": "task_notification", "task_id": "7", "status": "success", "title": "Watch", **AT},
        "system:task_notification", "Watch: success",
    ),
    (
        {"type": "system", "subtype": "background_shell_timeout", "session_id": SESSION},
        "system:background_shell_timeout", "background shell timeout",
    ),
    (
        {"type": "connection", "subtype": "reconnecting", "attempt": 2, "endpoint_url": "https://example.org", **AT},
        "connection:reconnecting", "connection reconnecting, attempt 2",
    ),
    ({"type": "connection", "subtype": "reconnecting", **AT}, "connection:reconnecting", "connection reconnecting"),
    ({"type": "connection", "subtype": "reconnected", **AT}, "connection:reconnected", "reconnected"),
    (
        {"type": "retry", "subtype": "starting", "attempt": 1, "is_resume": True, **AT},
        "retry:starting", "retry starting, attempt 1",
    ),
    (
        {"type": "retry", "subtype": "resuming", "attempt": 3, "checkpoint_turn_count": 2, **AT},
        "retry:resuming", "retry resuming, attempt 3",
    ),
    (
        {
            "type": "result", "subtype": "success", "duration_ms": 5, "duration_api_ms": 5, "is_error": False,
            "result": "sorted", "session_id": SESSION, "request_id": "q", "usage": {"inputTokens": 1, "outputTokens": 2},
        },
        "result:success", "sorted",
    ),
    ({"type": "result", "subtype": "success", "is_error": True, "result": "quota"}, "result:error", "quota"),
    ({"type": "result", "subtype": "error", "error": "timed out", "is_error": True}, "result:error", "timed out"),
    ({"type": "text", "text": "on its own"}, "text", "on its own"),
    ({"type": "error", "message": "it broke"}, "error", "it broke"),
    ({"type": "error", "payload": {"message": "it broke"}}, "error", "it broke"),
    ({"type": "raw", "data": "not JSON"}, "raw", "not JSON"),
]  # fmt: skip


@each(("body", "kind", "text"), EVENTS)
def test_each_documented_line_has_its_kind_and_words(body, kind, text):
    (event,) = decode(body)
    assert (event.kind, event.text, event.body) == (kind, text, body)


SHELL = {"command": "make", "workingDirectory": "", "timeout": 30000, "simpleCommands": ["make"], "isBackground": False}
RAN = {
    "command": "make",
    "workingDirectory": "/w",
    "exitCode": 0,
    "signal": "",
    "stdout": "",
    "stderr": "",
    "executionTime": 1500,
}
QUESTION = {"id": "q", "prompt": "Which?", "options": [{"id": "a", "label": "A"}], "allowMultiple": False}
ECHO = {
    "name": "local-echo", "args": {"text": "A"}, "providerIdentifier": "local", "toolName": "echo", "skipApproval": False,
}  # fmt: skip
ASKED = {"description": "Look around", "prompt": "What is here?", "subagentType": {"unspecified": {}}, "model": "auto"}
TOOL_SHAPES = [
    ("shell", SHELL, {"success": RAN}, "shell: make → exit 0 (1.5 s)"),
    (
        "shell", SHELL, {"success": {**RAN, "shellId": 3, "pid": 71}, "isBackground": True},
        "shell: make → runs in the background (shell 3) (1.5 s)",
    ),
    ("shell", SHELL, {"failure": {**RAN, "exitCode": 2, "aborted": False}}, "shell: make → exit 2 (1.5 s)"),
    ("shell", SHELL, {"failure": {"exitCode": 130, "aborted": True}}, "shell: make → exit 130 (aborted)"),
    ("shell", SHELL, {"timeout": {"timeoutMs": 30000}}, "shell: make → timed out"),
    ("shell", SHELL, {"rejected": {"command": "make", "reason": "", "isReadonly": False}}, "shell: make → rejected"),
    ("shell", SHELL, {"spawnError": {"error": "no such directory"}}, "shell: make → could not start: no such directory"),
    (
        "shell", SHELL, {"permissionDenied": {"error": "Command blocked by permissions configuration"}},
        "shell: make → denied: Command blocked by permissions configuration",
    ),
    ("read", {"path": "a.py", "offset": 5, "limit": 9}, {"success": {"content": "x"}}, "read: a.py → done"),
    ("read", {"path": "a.py"}, {"error": {"errorMessage": "File not found"}}, "read: a.py → failed: File not found"),
    ("edit", {"path": "a.py", "streamContent": "x"}, {"success": {"path": "a.py", "linesAdded": 1}}, "edit: a.py → done"),
    (
        "edit", {"path": "a.py"}, {"error": {"path": "a.py", "error": "no match", "modelVisibleError": "try again"}},
        "edit: a.py → failed: no match",
    ),
    ("edit", {"path": "a.py"}, {"fileNotFound": {"path": "a.py"}}, "edit: a.py → no such file"),
    ("edit", {"path": "a.py"}, {"readPermissionDenied": {"path": "a.py"}}, "edit: a.py → denied"),
    ("edit", {"path": "a.py"}, {"writePermissionDenied": {"error": "read-only"}}, "edit: a.py → denied: read-only"),
    ("edit", {"path": "a.py"}, {"rejected": {"reason": "no"}}, "edit: a.py → rejected: no"),
    ("write", {"path": "a.py", "fileText": "x"}, {"success": {"path": "a.py", "linesCreated": 1}}, "write: a.py → done"),
    ("delete", {"path": "a.py"}, {"success": {"path": "a.py", "deletedFile": "a.py"}}, "delete: a.py → done"),
    ("delete", {"path": "a.py"}, {"rejected": {"reason": ""}}, "delete: a.py → rejected"),
    ("glob", {"targetDirectory": "/w", "globPattern": "**/*.py"}, {"success": {"files": []}}, "glob: **/*.py → done"),
    ("grep", {"pattern": "def f", "path": "/w", "outputMode": "content"}, {"success": {}}, "grep: def f → done"),
    ("ls", {"path": "/w", "ignore": []}, {"success": {"directoryTreeRoot": {}}}, "ls: /w → done"),
    ("semSearch", {"query": "loops", "targetDirectories": []}, {"success": {"results": ""}}, "semSearch: loops → done"),
    ("updateTodos", {"todos": [{"id": "1"}, {"id": "2"}], "merge": False}, {"success": {}}, "updateTodos: 2 items → done"),
    (
        "webFetch", {"url": "https://example.org"}, {"rejected": {"reason": "User Rejected"}},
        "webFetch: https://example.org → rejected: User Rejected",
    ),
    ("webSearch", {"searchTerm": "trio"}, {"success": {"references": []}}, "webSearch: trio → done"),
    ("getMcpTools", {"server": "local", "toolName": "echo"}, {"success": {"content": "{}"}}, "getMcpTools: echo → done"),
    ("mcp", ECHO, {"success": {"content": [{"text": {"text": "A"}}], "isError": False}}, 'mcp echo: {"text": "A"} → done'),
    (
        "mcp", ECHO, {"success": {"content": [{"text": {"text": "no such agent"}}], "isError": True}},
        'mcp echo: {"text": "A"} → failed: no such agent',
    ),
    ("mcp", ECHO, {"error": {"error": "late", "readToolDefReminder": ""}}, 'mcp echo: {"text": "A"} → failed: late'),
    ("mcp", ECHO, {"rejected": {"reason": "no", "isReadonly": False}}, 'mcp echo: {"text": "A"} → rejected: no'),
    ("mcp", ECHO, {"permissionDenied": {"error": "blocked"}}, 'mcp echo: {"text": "A"} → denied: blocked'),
    ("mcp", ECHO, {"toolNotFound": {"name": "echo"}}, 'mcp echo: {"text": "A"} → no such tool'),
    ("mcp", ECHO, {"serverNotFound": {"name": "local"}}, 'mcp echo: {"text": "A"} → no such server'),
    (
        "task", ASKED, {"success": {"conversationSteps": [], "agentId": "b", "isBackground": False, "durationMs": "2500"}},
        "task: Look around → done (2.5 s)",
    ),
    ("task", ASKED, {"error": {"error": "too many"}}, "task: Look around → failed: too many"),
    ("await", {"taskId": "7", "blockUntilMs": 1000}, {"success": {"complete": {"taskId": "7"}}}, "await: 7 → done"),
    (
        "askQuestion", {"title": "Which file?", "questions": [QUESTION]}, {"rejected": {"reason": "Questions skipped"}},
        "askQuestion: Which file? → rejected: Questions skipped",
    ),
    ("createPlan", {"name": "Tidy", "plan": "# Plan"}, {"success": {}}, "createPlan: Tidy → done"),
]  # fmt: skip


@each(("kind", "args", "result", "text"), TOOL_SHAPES)
def test_each_documented_tool_call_is_told_in_one_line(kind, args, result, text):
    siblings = {"hookAdditionalContexts": [], "toolCallId": "c"}
    envelope = {"call_id": "call-1-0\nfc_1", "model_call_id": "m-0-ab", "session_id": SESSION}
    ends = {f"{kind}ToolCall": {"args": args, "result": result}, **siblings}
    unfinished = {**siblings, f"{kind}ToolCall": {"args": args}}
    start, whole = decode(started(tool_call=unfinished, **envelope), completed(tool_call=ends, **envelope))
    assert (start.kind, start.text) == ("tool-call-started", text.partition(" → ")[0])
    assert (whole.kind, whole.text) == ("tool-call-completed", text)
    # The same end without its arguments, after its start and without.
    bare = {**siblings, f"{kind}ToolCall": {"result": result}}
    _, paired = decode(started(tool_call=unfinished, **envelope), completed(tool_call=bare, **envelope))
    assert paired.text == text
    (alone,) = decode(completed(tool_call=bare, **envelope))
    assert alone.text == f"{kind} → {text.partition(' → ')[2]}"


ALL_TOOLS = [
    "shell", "delete", "glob", "grep", "read", "updateTodos", "readTodos", "edit", "ls", "readLints", "mcp",
    "semSearch", "createPlan", "webSearch", "task", "listMcpResources", "readMcpResource", "applyAgentDiff",
    "askQuestion", "fetch", "switchMode", "generateImage", "recordScreen", "computerUse", "writeShellStdin", "reflect",
    "setupVmEnvironment", "truncated", "startGrindExecution", "startGrindPlanning", "webFetch", "reportBugfixResults",
    "aiAttribution", "prManagement", "mcpAuth", "await", "blameByFilePath", "getMcpTools", "reportBug",
    "setActiveBranch", "communicateUpdate", "sendFinalSummary", "createGoal", "updateGoal", "getAgentStatus",
    "sendToAgent", "readAgentTranscript", "createAgent", "stopAgent", "writeCanvas", "readCanvas", "piRead", "piBash",
]  # fmt: skip


@each("kind", ALL_TOOLS)
def test_each_tool_there_is_is_named_even_without_arguments(kind):
    for args in ({}, {"strange": {"deep": [1]}}):
        body = {f"{kind}ToolCall": {"args": args, "result": {"success": {}}}, "toolCallId": "c"}
        start, end = decode(started(call_id="c", tool_call=body), completed(call_id="c", tool_call=body))
        assert start.kind == "tool-call-started"
        assert start.text.startswith(kind)
        assert end.kind == "tool-call-completed"
        assert end.text.startswith(kind)
        assert end.text.endswith(" → done")
