"""Tool calls in words: what each kind is applied to, how each alternative of a result ends, and what it took."""

from substrat.core.programs.cursor import dialects, stream, tool_calls
from substrat.core.programs.cursor.tool_calls import Pairing, ended_line, read, summary, verdict
from substrat.core.programs.ndjson import Line
from substrat.standin import recorded
from tests.support.cases import each
from tests.support.optional import present


def body(kind, subtype="started", *, call_id="c1", at=None, beside=None, **inner):
    """A line in the shape of current builds."""
    call = {f"{kind}ToolCall": inner, "hookAdditionalContexts": [], "toolCallId": call_id, **(beside or {})}
    line = {"type": "tool_call", "subtype": subtype, "call_id": call_id, "tool_call": call}
    return line if at is None else {**line, "timestamp_ms": at}


SUBJECTS = [
    ("shell", {"command": "make", "description": "Build it"}, "shell: make"),
    ("read", {"path": "/w/a.py", "offset": 1}, "read: /w/a.py"),
    ("edit", {"path": "/w/a.py", "streamContent": "x"}, "edit: /w/a.py"),
    ("write", {"path": "/w/a.py", "fileText": "x"}, "write: /w/a.py"),
    ("delete", {"path": "/w/a.py"}, "delete: /w/a.py"),
    ("ls", {"path": "/w", "ignore": ["x"]}, "ls: /w"),
    ("glob", {"targetDirectory": "/w", "globPattern": "*.py"}, "glob: *.py"),
    ("glob", {"targetDirectory": "/w"}, "glob: /w"),
    ("grep", {"path": "/w", "pattern": "def", "glob": "*.py"}, "grep: def"),
    ("semSearch", {"query": "where is it", "explanation": "because"}, "semSearch: where is it"),
    ("readLints", {"paths": ["/w/a.py", "/w/b.py"]}, "readLints: /w/a.py, /w/b.py"),
    ("webFetch", {"url": "https://example.org"}, "webFetch: https://example.org"),
    ("fetch", {"url": "https://example.org"}, "fetch: https://example.org"),
    ("webSearch", {"searchTerm": "weather"}, "webSearch: weather"),
    ("getMcpTools", {"server": "notes", "toolName": "add"}, "getMcpTools: add"),
    ("getMcpTools", {"server": "notes"}, "getMcpTools: notes"),
    ("task", {"description": "Look around", "prompt": "Look"}, "task: Look around"),
    ("await", {"taskId": "7", "blockUntilMs": 1000}, "await: 7"),
    ("askQuestion", {"title": "Which way?", "questions": []}, "askQuestion: Which way?"),
    ("createPlan", {"name": "A plan", "plan": "1. Look"}, "createPlan: A plan"),
    ("switchMode", {"mode": "plan"}, "switchMode: plan"),
    ("generateImage", {"description": "A house"}, "generateImage: A house"),
    ("listMcpResources", {"server": "notes"}, "listMcpResources: notes"),
    ("readMcpResource", {"server": "notes", "uri": "notes://1"}, "readMcpResource: notes://1"),
    ("writeShellStdin", {"shellId": "7", "chars": "y"}, "writeShellStdin: 7"),
    ("sendToAgent", {"agentId": "a1", "message": "hello"}, "sendToAgent: a1"),
    ("readAgentTranscript", {"agentId": "a1"}, "readAgentTranscript: a1"),
    ("mcp", {"toolName": "add", "name": "notes-add", "args": {"n": 1}}, 'mcp add: {"n": 1}'),
    ("mcp", {"name": "notes-add"}, "mcp notes-add: {}"),
    ("updateTodos", {"todos": [{"content": "a"}, {"content": "b"}]}, "updateTodos: 2 items"),
    ("updateTodos", {"merge": True}, "updateTodos"),
]


@each(("kind", "args", "line"), SUBJECTS)
def test_a_call_is_told_by_what_it_is_applied_to(kind, args, line):
    assert summary(read(body(kind, args=args))) == line


def test_every_kind_with_words_of_its_own_is_tested():
    assert {kind for kind, _, _ in SUBJECTS} == {*tool_calls._SUBJECTS, "mcp", "updateTodos"}


def test_a_kind_that_nobody_knows_is_told_by_the_usual_arguments():
    for key in tool_calls._ANY_SUBJECT:
        assert summary(read(body("inventedYesterday", args={"depth": 3, key: "it"}))) == "inventedYesterday: it"
        assert summary(read(body("inventedYesterday", args={"depth": 3}))) == "inventedYesterday"


def test_a_call_without_arguments_is_told_by_its_kind():
    for kind in ["shell", "mcp", "updateTodos", "inventedYesterday"]:
        assert summary(read(body(kind, "completed", result={"rejected": {}}))) == kind


def test_a_call_of_no_kind_is_a_tool_call():
    assert summary(read({"type": "tool_call", "subtype": "started"})) == "tool call"


ENDS = [
    ("success", {}, "done"),
    ("success", {"exitCode": 0}, "exit 0"),
    ("success", {"isError": True, "content": [{"text": {"text": "no such note"}}]}, "failed: no such note"),
    ("success", {"isError": True, "content": []}, "failed"),
    ("failure", {"exitCode": 2, "aborted": False}, "exit 2"),
    ("failure", {"exitCode": 130, "aborted": True}, "exit 130 (aborted)"),
    ("failure", {"abortReason": "USER_ABORT"}, "failed: USER_ABORT"),
    ("error", {"errorMessage": "File not found"}, "failed: File not found"),
    ("error", {"error": "EISDIR"}, "failed: EISDIR"),
    ("rejected", {"reason": "User Rejected"}, "rejected: User Rejected"),
    ("rejected", {"reason": ""}, "rejected"),
    ("permissionDenied", {"error": "blocked"}, "denied: blocked"),
    ("readPermissionDenied", {"path": "/w/a"}, "denied"),
    ("writePermissionDenied", {"error": "EACCES"}, "denied: EACCES"),
    ("timeout", {"timeoutMs": 30000}, "timed out"),
    ("spawnError", {"error": "spawn ENOENT"}, "could not start: spawn ENOENT"),
    ("fileNotFound", {"path": "/w/a"}, "no such file"),
    ("toolNotFound", {"name": "add"}, "no such tool"),
    ("serverNotFound", {"name": "notes"}, "no such server"),
    ("postponed", {"until": "later"}, "postponed"),
]


def test_each_end_has_its_words():
    for arm, outcome, words in ENDS:
        assert verdict(read(body("shell", "completed", result={arm: outcome}))) == words


ASYNC_ENDS = [
    ("shell", {"success": {"exitCode": 0, "shellId": 7, "backgroundReason": "SHELL_BACKGROUND_REASON_USER_REQUEST"}},
     "runs in the background (shell 7)"),
    ("shell", {"success": {"exitCode": 0, "shellId": 7, "backgroundReason": "SHELL_BACKGROUND_REASON_TIMEOUT"}},
     "goes on in the background, its time is up (shell 7)"),
    ("shell", {"isBackground": True, "success": {"exitCode": 0}}, "runs in the background"),
    ("shell", {"isBackground": False, "success": {"exitCode": 0, "backgroundReason": ""}}, "exit 0"),
    ("await", {"success": {"complete": {"taskId": "7", "runtimeMs": "1500", "exitCode": 2}}},
     "exit 2 after 1.5 s"),
    ("await", {"success": {"stillRunning": {"taskId": "7"}}}, "still running"),
    ("await", {"success": {}}, "done"),
]  # fmt: skip


def test_what_goes_on_after_its_call_is_told_by_its_state():
    for kind, result, words in ASYNC_ENDS:
        call = read(body(kind, "completed", args={"command": "make"}, result=result))
        assert verdict(call) == words
        assert call.succeeded
        assert call.exit_code == (0 if words == "exit 0" else None)


def test_every_end_with_words_of_its_own_is_tested():
    assert {arm for arm, _, _ in ENDS} >= set(tool_calls._WORDS) - {""}


def test_an_end_without_a_result_is_an_end():
    call = read(body("shell", "completed", args={"command": "ls"}))
    assert ended_line(call) == "shell: ls → done"
    assert call.succeeded


def test_what_succeeded_is_what_says_so():
    for arm, outcome, words in ENDS:
        call = read(body("shell", "completed", result={arm: outcome}))
        assert call.succeeded == (words in {"done", "exit 0"})


CLAIMS = [
    ({"beside": {"startedAtMs": "1000", "completedAtMs": "3500"}}, {"executionTime": 7}, "2.5"),
    ({"beside": {"startedAtMs": "3500", "completedAtMs": "1000"}}, {"executionTime": 700}, "0.7"),
    ({}, {"durationMs": "1500"}, "1.5"),
    ({}, {"executionTime": 1200}, "1.2"),
]


def test_the_line_itself_may_say_what_a_call_took():
    for line, outcome, seconds in CLAIMS:
        call = read(body("task", "completed", args={"description": "x"}, result={"success": outcome}, **line))
        assert ended_line(call) == f"task: x → done ({seconds} s)"


def test_a_call_takes_its_arguments_and_kind_from_its_start():
    pairing = Pairing()
    pairing.start(read(body("shell", at=1000, call_id="call-1\nfc_1", args={"command": "make"})))
    nameless = {"type": "tool_call", "subtype": "completed", "call_id": "call-1\nfc_1", "timestamp_ms": 1500}
    assert ended_line(pairing.end(read(nameless))) == "shell: make → done (0.5 s)"


def test_open_calls_hold_a_bounded_part_of_their_lines():
    pairing, size = Pairing(), 1_000_000
    for number in range(100):
        pairing.start(read(body("shell", call_id=f"c{number}", args={"command": f"make {number}"})), size)
    ends = [ended_line(pairing.end(read(body("shell", "completed", call_id=f"c{number}")))) for number in range(100)]
    assert [number for number, end in enumerate(ends) if "make" in end] == [96, 97, 98, 99]
    pairing.start(read(body("edit", call_id="long", args={"path": "/a"})), 100 * size)
    assert "/a" in ended_line(pairing.end(read(body("edit", "completed", call_id="long")))), (
        "one that is longer is held alone"
    )


def shapes():
    return [(kind, arm) for kind, (_, arms) in recorded.table("shapes").items() for arm in arms]


@each(("kind", "arm"), shapes())
def test_every_call_the_stand_in_shows_is_told_with_its_kind_and_its_end(kind, arm):
    args, arms = recorded.table("shapes")[kind]
    line = ended_line(read(body(kind, "completed", args=args, result={arm: arms[arm]})))
    assert line.startswith(kind)
    words = tool_calls._WORDS.get(arm, arm)
    assert f"→ {words}" in line or "→ exit " in line


def test_a_call_of_an_older_shape_is_told_alike():
    """Three ways to write one call; `dialects` brings them to one."""
    lines = [
        b'{"type":"tool_call","subtype":"started","call_id":"c1","tool_call":{"shellToolCall":{"args":{"command":"ls"}}}}',
        b'{"type":"tool-call-started","tool_call_id":"c1","tool_name":"Shell","parameters":{"command":"ls"}}',
        b'{"type":"tool_call","subtype":"started","call_id":"c1","tool_call":{"function":{"name":"shell","arguments":{"command":"ls"}}}}',
    ]
    calls = [read(dialects.normalise(present(stream.decode(Line(0, len(line), line)).body))) for line in lines]
    assert {summary(call) for call in calls} == {"shell: ls"}
    assert {call.id for call in calls} == {"c1"}
