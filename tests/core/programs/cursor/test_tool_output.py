"""What tools gave, as text: each kind's own form, and bounds."""

import pytest

from substrat.core.programs.cursor.tool_calls import Call
from substrat.core.programs.cursor.tool_output import MAX_OUTPUT, output, shortened
from tests.support.cases import each


def gave(kind, outcome, arm="success"):
    return output(Call("c", None, kind, None, arm, outcome, None, None))


@pytest.mark.parametrize(
    ("kind", "outcome", "text"),
    [
        ("shell", {"interleavedOutput": "a\nb\n", "stdout": "a", "stderr": "b"}, "a\nb"),
        ("shell", {"stdout": "out\n", "stderr": "err\n"}, "out\nerr"),
        ("shell", {"stdout": "", "stderr": ""}, ""),
        ("shell", {"outputHead": "first", "outputTail": "last", "elidedChars": "9", "outputLocation": "/f"},
         "first\n… [9 characters in /f] …\nlast"),
        ("read", {"content": "text\n"}, "text"),
        ("edit", {"diffString": "+a", "message": "wrote"}, "+a"),
        ("edit", {"message": "wrote"}, "wrote"),
        ("glob", {"files": ["a", "b"]}, "a\nb"),
        ("grep", {"workspaceResults": {"/w": {"content": {"matches": [
            {"file": "./a.py", "matches": [{"lineNumber": 3, "content": "def a"}, {"lineNumber": 9, "content": "a()\n"}]},
            {"file": "b.py", "matches": [{"lineNumber": 1, "content": "a"}]}], "totalLines": 3, "clientTruncated": True}}}},
         "./a.py:3: def a\n./a.py:9: a()\nb.py:1: a\n… [there is more]"),
        ("grep", {"workspaceResults": {"/w": {"files": {"files": ["a", "b"], "totalFiles": 2}}, "/x": {"files": {}},
                                       "/y": {"count": {"counts": [{"file": "c", "count": 4}]}}}},
         "/w:\na\nb\n/y:\nc: 4"),
        ("grep", {"workspaceResults": {"/w": {"content": {"matches": [], "totalLines": 0}}}}, "nothing found"),
        ("semSearch", {"results": '<search_result path="a.py">x</search_result>', "codeResults": [{"path": "a.py"}]},
         '<search_result path="a.py">x</search_result>'),
        ("await", {"complete": {"taskId": "7", "outputFilePath": "/w/7.txt", "outputLength": "4", "exitCode": 0}},
         "its output is in /w/7.txt, 4 long"),
        ("await", {"stillRunning": {"taskId": "7"}}, ""),
        ("mcp", {"content": [{"text": {"text": "hi"}}, {"text": "there"}]}, "hi\nthere"),
        ("getMcpTools", {"content": "{}"}, "{}"),
        ("task", {"conversationSteps": [{"assistantMessage": {"text": "one"}}, {}, {"assistantMessage": {"text": "two"}}]},
         "one\n\ntwo"),
        ("updateTodos", {"todos": [{"content": "x", "status": "TODO_STATUS_IN_PROGRESS"}, 3]}, "[in progress] x"),
        ("new", {"content": "plain"}, "plain"),
        ("new", {"odd": 1}, '{\n "odd": 1\n}'),
        ("new", {}, ""),
    ],
)  # fmt: skip
def test_each_kind_has_its_form(kind, outcome, text):
    assert gave(kind, outcome) == text


def test_a_refusal_gives_nothing_more_than_its_verdict():
    assert gave("webFetch", {"reason": "User Rejected"}, arm="rejected") == ""


@each("kind", ["shell", "read", "glob", "grep", "await", "mcp", "task", "updateTodos", "new"])
@each("value", [None, 3, [], [None], [[1]], {"text": 1}, "x"])
def test_wrong_types_do_not_break_it(kind, value):
    keys = ("interleavedOutput", "content", "files", "conversationSteps", "todos", "stdout", "workspaceResults")
    assert isinstance(gave(kind, dict.fromkeys(keys, value)), str)


def test_a_long_output_keeps_its_beginning_and_its_end():
    text = gave("read", {"content": "a" * MAX_OUTPUT + "z"})
    assert text.startswith("aaa")
    assert text.endswith("z")
    assert "1 characters cut" in text
    assert shortened("abcdef", 4) == "ab\n… [2 characters cut] …\nef"
