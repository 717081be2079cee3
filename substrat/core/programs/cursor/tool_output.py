"""Renders a tool call's outcome as text for people: a command's output, a file's content, an edit's diff. Pure.

`tool_calls` names a call and says whether it succeeded. A kind without a form of its own comes as its JSON.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from substrat.core.programs.cursor.tool_calls import Call, Object

MAX_OUTPUT = 64 * 1024
"""The longest output of one call, in characters: more isn't read; a longer one keeps its beginning and its end."""


def output(call: Call) -> str:
    """Return a call's output, empty when it has none worth showing.

    Args:
        call: a completed call (`Pairing.end`).
    """
    return shortened(_text(call).rstrip("\n"))


def shortened(text: str, most: int = MAX_OUTPUT) -> str:
    """Cut the middle out of a text that is too long.

    Args:
        text: any text.
        most: how many characters to keep.
    """
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n… [{len(text) - 2 * half} characters cut] …\n{text[-half:]}"


def _text(call: Call) -> str:
    found = call.outcome
    match call.kind:
        case "shell":
            return _shell(found)
        case "read":
            return _string(found, "content")
        case "edit" | "write" | "delete":
            return _string(found, "diffString", "message")
        case "glob":
            return _lines(found.get("files"))
        case "grep" if isinstance(results := found.get("workspaceResults"), dict):
            return _grep(results)
        case "semSearch":
            return _string(found, "results")
        case "await" if call.arm == "success":
            return _awaited(found)
        case "mcp" | "getMcpTools":
            return _blocks(found.get("content"))
        case "task":
            return _said(found.get("conversationSteps"))
        case "updateTodos" | "readTodos":
            return _todos(found.get("todos"))
    plain = _string(found, "content", "contents", "output", "text", "markdown", "plan")
    # A refusal's reason is told with the call's verdict already.
    return plain or (_json(found) if call.arm == "success" and found else "")


def _shell(found: Object) -> str:
    if interleaved := _string(found, "interleavedOutput"):
        return interleaved
    if head := _string(found, "outputHead"):
        cut = found.get("elidedChars")
        place = found.get("outputLocation")
        where = _string(place if isinstance(place, dict) else found, "filePath", "outputLocation")
        between = f"… [{cut if cut is not None else 'some'} characters{f' in {where}' if where else ''}] …"
        return "\n".join(part for part in (head, between, _string(found, "outputTail")) if part)
    parts = (_string(found, "stdout").rstrip("\n"), _string(found, "stderr"))
    return "\n".join(part for part in parts if part)


def _grep(results: Object) -> str:
    """Return the matches in each directory: lines as `FILE:NUMBER: TEXT`, files, or `FILE: COUNT`.

    As recorded from builds of 2026, by directory: `{"content": {"matches": [{"file", "matches": [{"lineNumber",
    "content"}]}]}}`, `{"files": {"files"}}` or `{"count": {"counts": [{"file", "count"}]}}`, each with `clientTruncated`
    and `ripgrepTruncated`.
    """
    parts = []
    for directory, result in results.items():
        lines = []
        for found in result.values() if isinstance(result, dict) else ():
            if isinstance(found, dict):
                lines += [line for key in ("matches", "files", "counts") for line in _found(found.get(key))]
                if found.get("clientTruncated") is True or found.get("ripgrepTruncated") is True:
                    lines.append("… [there is more]")
        head = [f"{directory}:"] if len(results) > 1 and lines else []
        parts += [*head, *lines]
    return "\n".join(parts) or "nothing found"


def _found(items: object) -> list[str]:
    lines = []
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict):
            file, matches = item.get("file", ""), item.get("matches")
            if isinstance(matches, list):
                lines += [_match(file, match) for match in matches if isinstance(match, dict)]
            else:
                lines.append(f"{file}: {item.get('count', '')}" if "count" in item else _match(file, item))
        else:
            lines.append(str(item))
    return lines


def _match(file: object, match: Object) -> str:
    text = _string(match, "content", "line").rstrip("\n")
    number = match.get("lineNumber")
    return f"{file}:{number}: {text}" if number is not None else f"{file}: {text}"


def _awaited(found: Object) -> str:
    """Say where the output of the task is that was waited for."""
    told = next((value for value in found.values() if isinstance(value, dict)), {})
    path, length = _string(told, "outputFilePath"), told.get("outputLength")
    return f"its output is in {path}{f', {length} long' if length is not None else ''}" if path else ""


def _string(found: Object, *keys: str) -> str:
    for key in keys:
        value = found.get(key)
        if isinstance(value, str) and value:
            return value
    return ""


def _lines(value: object) -> str:
    return "\n".join(str(item) for item in value) if isinstance(value, list) else ""


def _blocks(content: object) -> str:
    """Return the texts of MCP content; cursor-agent wraps each in an object of its own."""
    if isinstance(content, str):
        return content
    texts = []
    for block in content if isinstance(content, list) else ():
        text = block.get("text") if isinstance(block, dict) else None
        if isinstance(text, dict):
            text = text.get("text")
        texts.append(text if isinstance(text, str) else _json(block))
    return "\n".join(texts)


def _said(steps: object) -> str:
    texts = []
    for step in steps if isinstance(steps, list) else ():
        message = step.get("assistantMessage") if isinstance(step, dict) else None
        text = message.get("text") if isinstance(message, dict) else None
        if isinstance(text, str):
            texts.append(text)
    return "\n\n".join(texts)


def _todos(todos: object) -> str:
    lines = []
    for todo in todos if isinstance(todos, list) else ():
        if isinstance(todo, dict):
            status = str(todo.get("status", "")).removeprefix("TODO_STATUS_").lower().replace("_", " ")
            lines.append(f"[{status or '?'}] {todo.get('content', '')}")
    return "\n".join(lines)


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, default=str)
