"""An agent's socket: identities of calls, whatever the client's ids are."""

import json

import trio

from substrat.daemon.failpoints import Failpoints
from substrat.daemon.servers.agent import AgentServer

HANDSHAKE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


async def test_a_call_of_any_id_has_an_identity_that_can_be_stored(tmp_path):
    identities = []

    async def call(_agent, _turn, _tool, _arguments, identity):
        identities.append(identity)
        return "done", False

    path = str(tmp_path / "agent" / "agent.sock")
    ids = ["\ud800" * 70, "\ud800", "x" * 70, "é", 7]
    async with trio.open_nursery() as nursery:
        server = AgentServer(Failpoints({}), call, lambda _turn: None, lambda _agent: None)
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
