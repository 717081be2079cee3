"""An agent's socket: identities of calls, whatever the client's ids are."""

import json
from typing import Any, cast

import trio

from mcp_server import hook
from substrat.daemon.agents.turn_words import Words
from substrat.daemon.failpoints import Failpoints
from substrat.daemon.servers.agent import AgentServer

HANDSHAKE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class Noted:
    """Has words that wait until it is noted that they were handed over."""

    def __init__(self):
        self.text = "use tabs"

    def waiting(self, turn, newest):
        assert (turn, newest) == ("t", 0)
        return Words(self.text, (), 0)

    def note(self, turn, prompts):
        assert (turn, prompts) == ("t", ())
        self.text = ""


async def test_words_wait_until_the_hook_says_that_it_has_printed_them(tmp_path):
    path = str(tmp_path / "agent" / "agent.sock")

    async def ask(answer):
        async with await trio.open_unix_socket(path) as stream:
            await stream.send_all(hook.HELLO + b"\n")
            said = await stream.receive_some()
            await stream.send_all(answer)
            await stream.send_eof()
            assert not await stream.receive_some()
        return said

    async with trio.open_nursery() as nursery:
        unused: Any = None
        server = AgentServer(Failpoints({}), unused, unused, cast("Any", Noted()), lambda _agent: None, unused)
        await nursery.start(server.serve, "a", "t", path)
        assert [await ask(answer) for answer in (b"", hook.GIVEN + b"\n", b"")] == [b'"use tabs"\n'] * 2 + [b"\n"]
        nursery.cancel_scope.cancel()


async def test_a_call_of_any_id_has_an_identity_that_can_be_stored(tmp_path):
    identities = []

    async def call(_agent, _turn, _tool, _arguments, identity):
        identities.append(identity)
        return "done", False

    path = str(tmp_path / "agent" / "agent.sock")
    ids = ["\ud800" * 70, "\ud800", "x" * 70, "é", 7]
    async with trio.open_nursery() as nursery:
        server = AgentServer(
            Failpoints({}), call, lambda _turn: None, cast("Any", None), lambda _agent: None, lambda _agent: True
        )
        await nursery.start(server.serve, "a", "t", path)
        async with await trio.open_unix_socket(path) as stream:
            lines: list[dict[str, object]] = [{"substrat": "companion", "relay": "7f3a"}]
            lines.append({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HANDSHAKE})
            lines += [{"jsonrpc": "2.0", "id": one, "method": "tools/call", "params": {"name": "whoami"}} for one in ids]
            await stream.send_all(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
            said = b""
            while said.count(b"\n") < len(ids) + 1:
                data = await stream.receive_some()
                assert data, "the connection ended"
                said += data
        nursery.cancel_scope.cancel()
    answers = [json.loads(line) for line in said.splitlines()][1:]
    assert [answer["id"] for answer in answers] == ids
    assert all("result" in answer for answer in answers)
    assert [identity.encode().decode() for identity in identities] == identities
    assert identities[-2:] == ["7f3a:é", "7f3a:7"]
    assert len(set(identities)) == len(ids)
    assert all(len(identity) < 80 for identity in identities)
