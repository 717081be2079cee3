"""A model server for the real `claude`, beside it in the sandbox: it answers each prompt by the script in the prompt.

A line `/shell COMMAND` calls the shell, `/tool NAME {…}` one of the companion's tools, `/status CODE TYPE` fails with an
HTTP status, `/hang` answers nothing. Each answer plays the next line; then the model says how many prompts it has seen.

Run with a program and its arguments, it becomes that program and leaves the server behind.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_LINE = re.compile(r"^ ?/(shell|tool|status|hang)\b ?(.*)$", re.MULTILINE)


class Model(BaseHTTPRequestHandler):
    """The part of the Messages API that claude uses (docs.anthropic.com/en/api/messages-streaming)."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        blocks = [_blocks(message["content"]) for message in request["messages"] if message["role"] == "user"]
        is_prompt = [all(block["type"] == "text" for block in each) for each in blocks]
        last = max((number for number, found in enumerate(is_prompt) if found), default=0)
        script = [found for block in blocks[last] for found in _LINE.findall(block.get("text", ""))]
        done = sum(block["type"] == "tool_result" for each in blocks[last + 1 :] for block in each)
        verb, rest = script[done] if done < len(script) else ("say", f"prompts seen: {sum(is_prompt)}")
        if verb == "hang":
            time.sleep(600)
        if verb == "status":
            status, kind = rest.split()
            error = {"type": "error", "error": {"type": kind, "message": "as the prompt says"}}
            self._send(int(status), "application/json", json.dumps(error))
            return
        self._send(200, "text/event-stream", "".join(
            f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in _events(request, _block(verb, rest, done))
        ))  # fmt: skip

    def _send(self, status: int, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


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


def run(program: str, arguments: Sequence[str]) -> None:
    """Start the server, and become the program, which is told where the server is."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    server.daemon_threads = True
    if os.fork() == 0:
        quiet = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(quiet, descriptor)
        server.serve_forever()
    os.environ["ANTHROPIC_BASE_URL"] = f"http://127.0.0.1:{server.server_port}"
    os.execv(program, [program, *arguments])


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2:])
