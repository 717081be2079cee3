"""The actions that read and write files and call MCP tools, and how cursor-agent shows them."""

from __future__ import annotations

import errno
import json
import os

from substrat.standin.errors import MalformedActionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from substrat.standin.mcp import McpServer
    from substrat.standin.stream import Json, ToolCall
    from substrat.standin.turn import TurnContext

_REJECTED = "User Rejected"


def write(turn: TurnContext, text: str) -> None:
    """`/write PATH TEXT`: an editToolCall; the file then holds exactly TEXT."""
    name, _, content = text.partition(" ")
    path = turn.path(_required(name, "PATH"))
    turn.record_tool("Write", {"path": path, "contents": content})
    call = turn.stream.start_tool(turn.stream.next_call_id(), "edit", {"path": path, "streamContent": content})
    if not turn.may_edit:
        call.complete({"rejected": {"path": path, "reason": _REJECTED}}, with_args=False)
    else:
        call.complete(_write(path, content))
    turn.stream.next_model_call()


def tool(turn: TurnContext, text: str) -> None:
    """`/tool NAME JSON`: a call of an MCP tool: `/tool ask_operator {"question": "Which?", "options": ["a", "b"]}`."""
    _call_tool(turn, text, times=1)


def tool_twice(turn: TurnContext, text: str) -> None:
    """`/tool-twice NAME JSON`: the server gets the call twice, as after a silent retry; one call is shown."""
    _call_tool(turn, text, times=2)


def tool_timeout(turn: TurnContext, text: str) -> None:
    """`/tool-timeout SECONDS`: how long later tool calls may take, instead of 60."""
    turn.call_seconds = seconds(text)


def background_timeout(turn: TurnContext, text: str) -> None:
    """`/background-timeout SECONDS`: how long the result waits for background commands, instead of for ever."""
    turn.background_seconds = seconds(text)


def seconds(text: str) -> float:
    """An argument that is a number of seconds.

    Raises:
        MalformedActionError: It is not.
    """
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise MalformedActionError("SECONDS must be a number that is not negative")
    return value


def _write(path: str, content: str) -> Json:
    """Write the file; returns the call's result, whichever it is."""
    try:
        before = _content_before(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(content)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return {
                "writePermissionDenied": {
                    "path": path,
                    "error": error.strerror,
                    "isReadonly": error.errno == errno.EROFS,
                }
            }
        return {
            "error": {
                "path": path,
                "error": error.strerror,
                "modelVisibleError": f"Could not write {path}: {error.strerror}",
            }
        }
    removed, added = (before or "").splitlines(), content.splitlines()
    fields: Json = {"path": path, "linesAdded": len(added), "linesRemoved": len(removed)}
    fields["diffString"] = "\n".join([*(f"-{line}" for line in removed), *(f"+{line}" for line in added)])
    if before is not None:
        fields["beforeFullFileContent"] = before
    return {"success": fields | {"afterFullFileContent": content, "message": f"Wrote contents to {path}"}}


def _content_before(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return None


def _call_tool(turn: TurnContext, text: str, times: int) -> None:
    name, arguments = _tool_arguments(text)
    turn.servers.wait_connected()
    found = turn.servers.find(name)
    turn.record_tool(name, arguments)
    if found is None:
        _show_missing(turn, name, arguments)
        return
    server, own_name = found
    if turn.may_act:
        _describe_once(turn, server, own_name)
    call = _announce(turn, server.name, own_name, arguments)
    if not turn.may_act:
        call.complete({"rejected": {"reason": _REJECTED, "isReadonly": False}}, with_args=False)
    else:
        answers = [server.call(own_name, arguments, turn.call_seconds) for _ in range(times)]
        call.complete(_tool_result(answers[-1]))
    turn.stream.next_model_call()


def _tool_arguments(text: str) -> tuple[str, Json]:
    name, _, encoded = text.strip().partition(" ")
    try:
        arguments = json.loads(encoded) if encoded.strip() else {}
    except ValueError as error:
        raise MalformedActionError(f"JSON is not valid: {error}") from error
    if not isinstance(arguments, dict):
        raise MalformedActionError("JSON must be an object")
    return _required(name, "NAME"), arguments


def _show_missing(turn: TurnContext, name: str, arguments: Json) -> None:
    call = _announce(turn, "", name, arguments)
    servers = turn.servers.ready()
    if servers:
        tools = [f"{server.name}-{tool}" for server in servers for tool in server.tools]
        call.complete({"toolNotFound": {"name": name, "availableTools": tools}})
    else:
        call.complete({"serverNotFound": {"name": name, "availableServers": []}})
    turn.stream.next_model_call()


def _describe_once(turn: TurnContext, server: McpServer, name: str) -> None:
    """Look the tool up, as the model does before it first uses a tool."""
    key = f"{server.name}-{name}"
    if key in turn.described_tools:
        return
    turn.described_tools.add(key)
    call_id = turn.stream.next_call_id()
    args: Json = {"server": server.name, "toolName": name, "toolCallId": call_id}
    call = turn.stream.start_tool(call_id, "getMcpTools", args)
    known = server.tools[name]
    fields = {"tool": name, "description": known.get("description", ""), "inputSchema": known.get("inputSchema", {})}
    call.complete({"success": {"content": json.dumps(fields, indent=2, ensure_ascii=False)}})
    turn.stream.next_model_call()


def _announce(turn: TurnContext, server: str, name: str, arguments: Json) -> ToolCall:
    call_id = turn.stream.next_call_id()
    args: Json = {
        "name": f"{server}-{name}" if server else name,
        "args": arguments,
        "toolCallId": call_id,
        "providerIdentifier": server,
        "toolName": name,
        "smartModeApprovalOnly": False,
        "skipApproval": False,
        "serverIdentifier": server,
    }
    return turn.stream.start_tool(call_id, "mcp", args, f"Call {name} via {server} MCP" if server else f"Call {name}")


def _tool_result(answer: Json) -> Json:
    result, error = answer.get("result"), answer.get("error")
    if not isinstance(result, dict):
        text = str(error.get("message")) if isinstance(error, dict) else "MCP error: the answer has no result"
        return {"error": {"error": text, "readToolDefReminder": ""}}
    items = result.get("content")
    content = [_content(item) for item in items] if isinstance(items, list) else []
    # `structuredContent` is dropped, as the real client does.
    return {"success": {"content": content, "isError": result.get("isError") is True, "systemReminders": []}}


def _content(item: object) -> Json:
    if isinstance(item, dict) and item.get("type") == "text":
        return {"text": {"text": str(item.get("text", ""))}}
    if isinstance(item, dict) and item.get("type") == "image":
        return {"image": {"data": item.get("data"), "mimeType": item.get("mimeType")}}
    return {"text": {"text": json.dumps(item, ensure_ascii=False)}}


def _required(text: str, name: str) -> str:
    if not text.strip():
        raise MalformedActionError(f"{name} is missing")
    return text.strip()
