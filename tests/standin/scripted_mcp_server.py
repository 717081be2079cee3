"""An MCP server on stdio with habits to choose by argument; it records all it receives in a file."""

import json
import os
import signal
import sys

record_path, *habits = sys.argv[1:]


def record(**fields):
    with open(record_path, "a", encoding="utf-8") as file:
        file.write(json.dumps(fields) + "\n")


def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def tool(name):
    return {"name": name, "description": f"The tool {name}.", "inputSchema": {"type": "object"}}


def call_tool(number, params):
    name = params["name"]
    if name == "slow":
        return
    if name == "die":
        sys.exit(3)
    if name == "broken":
        send(id=number, error={"code": -32602, "message": "that is not right"})
        return
    content = [{"type": "text", "text": "echo " + json.dumps(params["arguments"])}]
    if name == "rich":
        content += [{"type": "image", "data": "AA==", "mimeType": "image/png"}, {"type": "audio", "data": "AA=="}]
    send(id=number, result={"content": content, "isError": name == "rich", "structuredContent": {"a": 1}})


def answer(message):
    number, method, params = message.get("id"), message.get("method"), message.get("params", {})
    if method == "initialize":
        version = "1999-01-01" if "old" in habits else params["protocolVersion"]
        send(id=number, result={"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "s"}})
    elif method == "tools/list":
        send(id=number, result={"tools": [tool(name) for name in ("echo", "slow", "broken", "die", "rich")]})
    elif method == "tools/call":
        call_tool(number, params)


signal.signal(signal.SIGTERM, lambda *_: record(signal="SIGTERM") if "stubborn" in habits else sys.exit(0))
record(environ=dict(os.environ), cwd=os.getcwd(), pid=os.getpid())
print("a line on stderr", file=sys.stderr, flush=True)
for line in sys.stdin:
    record(message=json.loads(line))
    if "mute" not in habits:
        answer(json.loads(line))
record(ended="stdin")
while "stubborn" in habits:
    signal.pause()
