"""Agents and the daemon through MCP: with the stand-in's client, with the official SDK's, and by hand."""

import json
import sys

from tests.support import script

TOOLS = [
    "whoami", "list_agents", "get_agent", "send_message", "check_inbox", "spawn_agent", "interrupt_agent", "end_agent",
    "wait_agents", "complete", "report_status", "ask_operator", "cancel_question", "remind_me", "cancel_reminder",
    "add_tasks", "claim_task", "finish_task", "list_tasks",
]  # fmt: skip

# The official SDK's stdio client in the agent's place. `{calls}` is Python that may use `call(name, arguments)`.
SDK = """
import asyncio, mcp
from mcp.client.stdio import stdio_client

server = json.load(open(".cursor/mcp.json"))["mcpServers"]["substrat"]
found = {}


async def main():
    parameters = mcp.StdioServerParameters(
        command=server["command"], args=server["args"] + ADDED, env={**server["env"], **ENVIRONMENT}
    )
    async with stdio_client(parameters) as (reader, writer), mcp.ClientSession(reader, writer) as session:
        answer = await session.initialize()
        found["initialize"] = answer.model_dump(mode="json")
        found["tools"] = [tool.model_dump(mode="json") for tool in (await session.list_tools()).tools]
        await session.send_ping()

        async def call(name, arguments):
            try:
                answer = await session.call_tool(name, arguments)
            except mcp.MCPError as error:
                return "raised: " + str(error)
            return ("!" if answer.is_error else "") + "".join(part.text for part in answer.content)

        found["answers"] = [await call(*words) for words in json.loads(prompt)]


begin()
asyncio.run(main())
mark("found", json.dumps(found))
finish()
"""


def sdk(daemon, calls, *, added=(), environment=None):
    """Let an agent that is the SDK's client make calls; returns what it found."""
    program = daemon.program(SDK.replace("ADDED", repr(list(added))).replace("ENVIRONMENT", repr(environment or {})))
    program.write_text(program.read_text().replace("#!/usr/bin/env python3\n", script.head()))
    daemon.start(agent=program, config=f"[agent]\nbind_ro = {json.dumps([sys.prefix, sys.base_prefix])}\n")
    work = daemon.workspace()
    agent = daemon.spawn("anna", work, json.dumps(calls))
    stderr = daemon.agents_directory(agent) / "turns" / "1" / "stderr"
    assert agent["turn"]["outcome"] == "success", stderr.read_text()
    return json.loads((work / "found").read_text())


def test_the_official_client_finds_the_tools_and_gets_clear_errors(daemon):
    """The id on the companion's command line and the environment decide nothing."""
    calls = [
        ["fly", {}],
        ["send_message", {}],
        ["send_message", {"to": "nobody", "text": "hi"}],
        ["send_message", {"to": "anna", "text": 7}],
        ["send_message", {"to": "operator", "text": "hi", "from": "somebody"}],
        ["spawn_agent", {"prompt": "x", "network": "moon"}],
        ["spawn_agent", {"prompt": "x", "directory": "/etc"}],
        ["spawn_agent", {"prompt": "x", "name": "bad name"}],
        ["spawn_agent", {"prompt": "x", "name": "anna"}],
        ["send_message", {"to": "operator", "text": "hello"}],
        ["whoami", {}],
    ]
    found = sdk(
        daemon, calls, added=["--agent-id", "00000000-0000-0000-0000-000000000000"],
        environment={"SUBSTRAT_AGENT": "somebody-else"},
    )  # fmt: skip
    assert found["initialize"]["protocol_version"]
    assert [tool["name"] for tool in found["tools"]] == TOOLS
    for tool in found["tools"]:
        assert tool["description"]
        assert tool["input_schema"]["type"] == "object"
    *answers, sent, who = found["answers"]
    assert "anna" in who, "the session is well after all of that"
    assert "somebody-else" not in who
    for words, answer in zip(calls[:-2], answers, strict=True):
        assert answer.startswith(("!", "raised: ")), (words, answer)
        assert "Traceback" not in answer
    assert "fly" in answers[0]
    assert "text" in answers[1] or "to" in answers[1]
    assert "nobody" in answers[2]
    assert [agent["name"] for agent in daemon.ok("ls")] == ["anna"]
    assert not sent.startswith("!")
    (message,) = daemon.ok("inbox")
    assert (message["from"], message["text"]) == ("anna", "hello")


def test_a_child_has_a_parent_and_its_result_comes_back(running, until):
    work = running.workspace()
    words = {"prompt": "/shell pwd\n/say the child's answer", "name": "child"}
    running.spawn("anna", work, "/tool spawn_agent " + json.dumps(words))
    assert "child" in running.tool("anna")[0]
    until(lambda: (now := running.show("anna"))["state"] == "idle" and now["turn"]["number"] == 2, "the result's turn")
    child, anna = running.show("child"), running.show("anna")
    assert child["parent"] in {"anna", anna["id"]}
    assert child["workspace"] == str(work)
    assert (child["model"], child["network"]) == (anna["model"], anna["network"])
    prompt = running.events("anna", "user")[-1]["text"]
    assert "child" in prompt
    assert "the child's answer" in prompt
    assert anna["parent"] is None
    tree = running.ctl("ls", "--tree").out
    assert tree.index("anna") < tree.index("child")


def test_what_does_not_exist_and_what_may_not_be_seen_look_the_same(running):
    """An ended agent, a removed one and one that never was are answered alike or clearly, and never by accident."""
    work = running.workspace()
    running.spawn("gone", work)
    running.ok("rm", "gone")
    running.spawn("over", work)
    running.ok("end", "over")
    script = "\n".join("/tool send_message " + json.dumps({"to": to, "text": "x"}) for to in ("gone", "never", "over"))
    running.spawn("anna", work, script)
    gone, never, over = running.tool("anna")
    assert gone.replace("gone", "X") == never.replace("never", "X")
    assert over.startswith("!")


INITIALIZE = json.dumps({
    "jsonrpc": "2.0", "id": 0, "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "Cursor", "version": "1.0.0"}},
})  # fmt: skip
INITIALIZED = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"})


def request(number, method, **params):
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
