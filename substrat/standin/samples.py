"""Tool calls that are only shown: one of each kind and of each alternative of its result, with nothing done.

The shapes are those of builds up to 2026.10. A kind whose result was never recorded comes with an empty one.
"""

from __future__ import annotations

import json

from substrat.standin import shells
from substrat.standin.errors import MalformedActionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from substrat.standin.stream import Json
    from substrat.standin.turn import TurnContext

# Stands for the workspace in the shapes below.
_HERE = "@workspace"
_FILE = f"{_HERE}/example.txt"
_WHERE = {"command": "make", "workingDirectory": _HERE}
# A call that was refused comes back without its arguments.
_WITHOUT_ARGUMENTS = frozenset({"rejected", "permissionDenied"})


def show(turn: TurnContext, text: str) -> None:
    """`/show KIND [ARM]`: a tool call of that kind with that result, only shown and not performed."""
    kind, _, arm = text.strip().partition(" ")
    if kind not in SHAPES:
        raise MalformedActionError(f"KIND must be one of {', '.join(SHAPES)}")
    args, arms = SHAPES[kind]
    arm = arm.strip() or next(iter(arms))
    if arm not in arms:
        raise MalformedActionError(f"ARM must be one of {', '.join(arms)}")
    call_id = turn.stream.next_call_id()
    if kind == "shell":
        args = shells.arguments(turn, "make", call_id, in_background=False)
    elif "toolCallId" in args:
        args = args | {"toolCallId": call_id}
    call = turn.stream.start_tool(call_id, kind, _placed(args, turn.workspace))
    call.complete(_placed({arm: arms[arm]}, turn.workspace), with_args=arm not in _WITHOUT_ARGUMENTS)
    turn.stream.next_model_call()


def _placed(shape: Json, workspace: str) -> Json:
    """A shape with the workspace in it."""
    inside = json.dumps(workspace)[1:-1]
    placed: Json = json.loads(json.dumps(shape).replace(_HERE, inside))
    return placed


_RAN: Json = {**_WHERE, "exitCode": 0, "signal": "", "stdout": "made\n", "stderr": "", "executionTime": 5}
_EXAMPLE: Json = {
    "content": "hi\n", "isEmpty": False, "exceededLimit": False, "totalLines": 2, "fileSize": 3, "path": _FILE,
    "readRange": {"startLine": 1, "endLine": 2}, "relatedCursorRulePaths": [], "relatedCursorRules": [],
}  # fmt: skip
_EDITED: Json = {
    "path": _FILE, "linesAdded": 1, "linesRemoved": 1, "diffString": "-hello\n+hi", "beforeFullFileContent": "hello\n",
    "afterFullFileContent": "hi\n", "message": f"Wrote contents to {_FILE}",
}  # fmt: skip
_TODO: Json = {
    "id": "1", "content": "look", "status": "TODO_STATUS_PENDING", "createdAt": "17", "updatedAt": "17", "dependencies": [],
}  # fmt: skip
_MCP: Json = {
    "name": "notes-add", "args": {"text": "hi"}, "toolCallId": "", "providerIdentifier": "notes", "toolName": "add",
    "smartModeApprovalOnly": False, "skipApproval": False, "serverIdentifier": "notes",
}  # fmt: skip
_TASK: Json = {
    "description": "Look around", "prompt": "Look around and tell", "subagentType": {"unspecified": {}}, "model": "auto",
    "agentId": "a1", "attachments": [], "mode": "", "respondingToMessageIds": [], "environment": "",
    "machine": {"sameMachine": {}},
}  # fmt: skip
_TASK_DONE: Json = {
    "conversationSteps": [{"assistantMessage": {"text": "All is quiet."}}], "agentId": "a1", "isBackground": False,
    "durationMs": "1500", "backgroundReason": "",
}  # fmt: skip
_AWAITED: Json = {
    "taskId": "7", "runtimeMs": "40", "outputFilePath": f"{_HERE}/7.txt", "outputLength": "4", "regexRequested": False,
    "exitCode": 0,
}  # fmt: skip
_QUESTION: Json = {
    "title": "Which way?",
    "questions": [{"id": "q", "prompt": "Which way?", "options": [{"id": "l", "label": "Left"}], "allowMultiple": False}],
    "runAsync": False, "asyncOriginalToolCallId": "",
}  # fmt: skip
_ERROR: Json = {"error": "It went wrong"}
_REFUSED: Json = {"reason": "User Rejected"}
_BLOCKED: Json = {"error": "Command blocked by permissions configuration", "isReadonly": False}

# fmt: off
SHAPES: dict[str, tuple[Json, dict[str, Json]]] = {
    "shell": ({}, {
        "success": _RAN,
        "failure": {**_RAN, "exitCode": 130, "signal": "SIGINT", "aborted": True, "abortReason": "USER_ABORT"},
        "timeout": {**_WHERE, "timeoutMs": 30000},
        "spawnError": {**_WHERE, "error": "spawn ENOENT"},
        "rejected": {**_WHERE, "reason": "", "isReadonly": False},
        "permissionDenied": {**_WHERE, **_BLOCKED},
    }),
    "read": ({"path": _FILE, "offset": 1, "limit": 2}, {
        "success": _EXAMPLE, "error": {"errorMessage": "File not found"},
    }),
    "edit": ({"path": _FILE, "streamContent": "hi\n"}, {
        "success": _EDITED,
        "error": {"path": _FILE, "error": "EISDIR", "modelVisibleError": "It is a directory"},
        "fileNotFound": {"path": _FILE},
        "readPermissionDenied": {"path": _FILE},
        "writePermissionDenied": {"path": _FILE, "error": "EACCES", "isReadonly": False},
        "rejected": {"path": _FILE, "reason": "User Rejected"},
    }),
    # Builds of 2025 only.
    "write": ({"path": _FILE, "fileText": "hi\n"}, {"success": {"path": _FILE, "linesCreated": 1, "fileSize": 3}}),
    "delete": ({"path": _FILE, "toolCallId": ""}, {
        "success": {"path": _FILE, "deletedFile": _FILE, "fileSize": "3", "prevContent": "hi\n"},
        "rejected": {"path": _FILE, "reason": "User Rejected"},
    }),
    "ls": ({"path": _HERE, "ignore": []}, {"success": {"directoryTreeRoot": {"absPath": _HERE, "childrenFiles": []}}}),
    "glob": ({"targetDirectory": _HERE, "globPattern": "*.txt"}, {"success": {
        "pattern": "*.txt", "path": _HERE, "files": ["example.txt"], "totalFiles": 1, "clientTruncated": False,
        "ripgrepTruncated": False,
    }}),
    "grep": ({"pattern": "hi", "path": _HERE, "outputMode": "files_with_matches"}, {"success": {
        "pattern": "hi", "path": _HERE, "outputMode": "files_with_matches",
        "workspaceResults": {_HERE: {"files": {"files": ["example.txt"], "totalFiles": 1}}},
    }}),
    "semSearch": ({"query": "where is it", "targetDirectories": [], "explanation": ""}, {"success": {"results": ""}}),
    "readLints": ({"paths": [_FILE]}, {"success": {}}),
    "updateTodos": ({"todos": [_TODO], "merge": False}, {
        "success": {"todos": [_TODO], "totalCount": 1, "wasMerge": False}, "error": _ERROR,
    }),
    "webFetch": ({"url": "https://example.org", "toolCallId": ""}, {
        "success": {"url": "https://example.org", "markdown": "# Example"}, "rejected": _REFUSED, "error": _ERROR,
    }),
    "fetch": ({"url": "https://example.org"}, {"success": {}, "error": _ERROR}),
    "webSearch": ({"searchTerm": "weather", "toolCallId": ""}, {
        "success": {"references": []}, "rejected": _REFUSED, "error": _ERROR,
    }),
    "getMcpTools": ({"server": "notes", "toolName": "add", "toolCallId": ""}, {"success": {"content": "{}"}}),
    "mcp": (_MCP, {
        "success": {"content": [{"text": {"text": "added"}}], "isError": False, "systemReminders": []},
        "error": {"error": "MCP error -32001: Request timed out", "readToolDefReminder": ""},
        "rejected": {**_REFUSED, "isReadonly": False},
        "permissionDenied": _BLOCKED,
        "toolNotFound": {"name": "add", "availableTools": []},
        "serverNotFound": {"name": "notes", "availableServers": []},
    }),
    "listMcpResources": ({"server": "notes"}, {"success": {}}),
    "readMcpResource": ({"server": "notes", "uri": "notes://1"}, {"success": {}}),
    "task": (_TASK, {"success": _TASK_DONE, "error": _ERROR}),
    "await": ({"taskId": "7", "blockUntilMs": 1000}, {"success": {"complete": _AWAITED}}),
    "askQuestion": (_QUESTION, {"rejected": {"reason": "Questions skipped by the user, continue with the information you "
                                                       "already have"}}),
    "createPlan": ({"name": "Plan", "overview": "", "plan": "1. Look", "todos": []}, {"success": {}}),
    "switchMode": ({"targetModeId": "plan", "explanation": "", "toolCallId": ""}, {"success": {}, "rejected": _REFUSED}),
    "generateImage": ({"description": "A house"}, {"success": {}}),
    "writeShellStdin": ({"shellId": 7, "chars": "y\n"}, {"success": {}, "error": _ERROR}),
    "sendToAgent": ({"agentId": "a1", "message": "hello"}, {"success": {}}),
    "readAgentTranscript": ({"agentId": "a1"}, {"success": {}}),
}
# fmt: on
