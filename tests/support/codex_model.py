"""A model server for the real `codex`, beside it in the sandbox: it answers each prompt by the script in the prompt.

A line `/shell COMMAND` calls the shell, `/tool NAME {…}` one of the companion's tools, `/status CODE` fails with an HTTP
status. Each answer plays the next line; then the model says how many prompts it has seen.

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
    from collections.abc import Sequence

_LINE = re.compile(r"^/(shell|tool|status)\b ?(.*)$", re.MULTILINE)
_USAGE = {"input_tokens": 150, "input_tokens_details": {"cached_tokens": 50}, "output_tokens": 20, "total_tokens": 170}


class Model(BaseHTTPRequestHandler):
    """The part of the Responses API that codex uses (platform.openai.com/docs/api-reference/responses-streaming)."""

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        # codex says more as a user, such as where it works; the prompts of the tests begin with "go".
        prompts = [number for number, item in enumerate(request["input"]) if _prompt(item)]
        script = _LINE.findall(_prompt(request["input"][prompts[-1]]))
        done = sum(item["type"] == "function_call_output" for item in request["input"][prompts[-1] :])
        verb, rest = script[done] if done < len(script) else ("say", f"prompts seen: {len(prompts)}")
        if verb == "status":
            self._send(int(rest), "application/json", json.dumps({"error": {"message": "as the prompt says"}}))
            return
        answer = {"type": "response.output_item.done", "output_index": 0, "item": _item(verb, rest)}
        end = {"type": "response.completed", "response": {"id": "r", "usage": _USAGE}}
        events = [{"type": "response.created", "response": {"id": "r"}}, answer, end]
        self._send(200, "text/event-stream", "".join(f"event: {it['type']}\ndata: {json.dumps(it)}\n\n" for it in events))

    def _send(self, status: int, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _prompt(item: dict[str, Any]) -> str:
    text = "".join(block.get("text", "") for block in item["content"]) if item.get("role") == "user" else ""
    return text if text.startswith("go") else ""


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
    """Start the server, and become the program, which is told where the server is."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    server.daemon_threads = True
    if os.fork() == 0:
        quiet = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(quiet, descriptor)
        server.serve_forever()
    url = f"http://127.0.0.1:{server.server_port}/v1"
    provider = f'model_providers.test={{name="test",base_url="{url}",wire_api="responses"}}'
    os.execv(program, [program, arguments[0], "-c", provider, "-c", 'model_provider="test"', *arguments[1:]])
