"""A model server for the real `claude` and `codex`, beside them in the sandbox: it answers each prompt by a script in it.

A prompt begins with `go`. A line `/shell COMMAND` calls the shell, `/tool NAME {…}` one of the companion's tools, `/status
CODE` fails with an HTTP status, `/hang` answers nothing, `/count WORDS` says how many parts of the request hold the words,
and `/tools` how many tokens the descriptions of its tools are, by four characters each. Each answer plays the next line;
then the model says how many prompts it has seen.

Run with a program and its arguments, it becomes that program and leaves the server behind.
"""

from __future__ import annotations

import json
import os
import re
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WRAPPER = """#!/usr/bin/env python3
import os, sys
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import model_server
model_server.run({program!r}, sys.argv[1:])
"""
"""A program that starts the server beside an agent program, in the sandbox; this file lies beside it."""
_LINE = re.compile(r"^/(shell|tool|tools|status|hang|count)\b ?(.*)$", re.MULTILINE)
_KINDS = {401: "authentication_error", 402: "billing_error", 404: "not_found_error", 429: "rate_limit_error"}
_USAGE = {"input_tokens": 150, "input_tokens_details": {"cached_tokens": 50}, "output_tokens": 20, "total_tokens": 170}


class Model(BaseHTTPRequestHandler):
    """The parts of two APIs that the programs use.

    docs.anthropic.com/en/api/messages-streaming, platform.openai.com/docs/api-reference/responses-streaming.
    """

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_claude = "messages" in request
        said = request["messages" if is_claude else "input"]
        # Both say more as a user, such as where they work.
        prompts = [number for number, item in enumerate(said) if _prompt(item)]
        script = _LINE.findall(_prompt(said[prompts[-1]])) if prompts else []
        done = sum(_results(item) for item in said[prompts[-1] :]) if prompts else 0
        verb, rest = script[done] if done < len(script) else ("say", f"prompts seen: {len(prompts)}")
        match verb:
            case "hang":
                time.sleep(600)
            case "status":
                error = {"type": _KINDS.get(int(rest), "api_error"), "message": "as the prompt says"}
                self._send(int(rest), "application/json", json.dumps({"type": "error", "error": error}))
                return
            case "count":
                verb, rest = "say", f"{sum(rest in json.dumps(item) for item in said if not _prompt(item))} parts"
            case "tools":
                verb, rest = "say", str(len(json.dumps(request["tools"])) // 4)
        events = _events(request, _block(verb, rest, done)) if is_claude else _responses(verb, rest)
        self._send(200, "text/event-stream", "".join(f"event: {it['type']}\ndata: {json.dumps(it)}\n\n" for it in events))

    def _send(self, status: int, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _prompt(item: dict[str, Any]) -> str:
    """Return the prompt that a message of a user's is; empty: it is none."""
    texts = [block.get("text", "") for block in _blocks(item.get("content") or [])] if item.get("role") == "user" else []
    return next((text for text in texts if text.startswith("go")), "")


def _results(item: dict[str, Any]) -> int:
    """Count the ends of tool calls in an item."""
    if item.get("type") == "function_call_output":
        return 1
    return sum(block.get("type") == "tool_result" for block in _blocks(item.get("content") or []))


def _blocks(content: Any) -> list[dict[str, Any]]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _block(verb: str, rest: str, number: int) -> dict[str, Any]:
    if verb == "say":
        return {"type": "text", "text": rest}
    name, _, arguments = rest.partition(" ")
    call = ("Bash", {"command": rest}) if verb == "shell" else (f"mcp__substrat__{name}", json.loads(arguments or "{}"))
    return {"type": "tool_use", "id": f"call_{time.time_ns()}_{number}", "name": call[0], "input": call[1]}


def _events(request: dict[str, Any], block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    usage = {"input_tokens": 100, "cache_creation_input_tokens": 10, "cache_read_input_tokens": 50, "output_tokens": 1}
    is_call = block["type"] == "tool_use"
    empty = {**block, "input": {}} if is_call else {"type": "text", "text": ""}
    delta = (
        {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        if is_call
        else {"type": "text_delta", "text": block["text"]}
    )
    message = {"id": f"msg_{time.time_ns()}", "type": "message", "role": "assistant", "model": request["model"],
               "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}  # fmt: skip
    yield {"type": "message_start", "message": message}
    yield {"type": "content_block_start", "index": 0, "content_block": empty}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    stop = {"stop_reason": "tool_use" if is_call else "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 20}}
    yield {"type": "message_stop"}


def _responses(verb: str, rest: str) -> list[dict[str, Any]]:
    answer = {"type": "response.output_item.done", "output_index": 0, "item": _item(verb, rest)}
    end = {"type": "response.completed", "response": {"id": "r", "usage": _USAGE}}
    return [{"type": "response.created", "response": {"id": "r"}}, answer, end]


def _item(verb: str, rest: str) -> dict[str, Any]:
    if verb == "say":
        content = [{"type": "output_text", "text": rest, "annotations": []}]
        return {"type": "message", "id": f"msg_{time.time_ns()}", "role": "assistant", "content": content}
    name, _, arguments = rest.partition(" ")
    call: dict[str, Any] = {"type": "function_call", "call_id": f"call_{time.time_ns()}"}
    if verb == "shell":
        return {**call, "name": "exec_command", "arguments": json.dumps({"cmd": rest})}
    return {**call, "name": name, "namespace": "mcp__substrat", "arguments": arguments or "{}"}


def run(program: str, arguments: Sequence[str]) -> None:
    """Start the server, and become the program, which is told where the server is; with NO_MODEL there is none."""
    if "NO_MODEL" in os.environ:
        os.execv(program, [program, *arguments])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    server.daemon_threads = True
    if os.fork() == 0:
        quiet = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(quiet, descriptor)
        server.serve_forever()
    url = f"http://127.0.0.1:{server.server_port}"
    if arguments[0] != "exec":
        os.environ["ANTHROPIC_BASE_URL"] = url
        os.execv(program, [program, *arguments])
    provider = f'model_providers.test={{name="test",base_url="{url}/v1",wire_api="responses"}}'
    os.execv(program, [program, arguments[0], "-c", provider, "-c", 'model_provider="test"', *arguments[1:]])
