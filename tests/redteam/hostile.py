"""An agent program that does whatever Python its prompt holds, inside its sandbox, and what such prompts begin with."""

import json
import os

INSIDE = (os.geteuid() or 1000, os.getegid() if os.geteuid() else 1000)
"""The uid and gid of agents inside: root's have ordinary ones."""

PROGRAM = """
begin()
exec(compile(prompt, "prompt", "exec"), globals())
finish(json.dumps(answer))
"""
"""The prompt leaves what it has to say in `answer`."""

TRIED = """
import errno


def tried(do):
    '''What an attempt returned, or the error it got.'''
    try:
        return do()
    except OSError as problem:
        return errno.errorcode[problem.errno]


"""

DOOR = r"""
import json, os, socket

class Door:
    '''A raw connection to the agent's own socket, as any program in the sandbox may open it.'''

    def __init__(self, relay=None, greet=True):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(door_path())
        self.socket.settimeout(20)
        self.rest, self.number = b"", 0
        if relay is not None:
            self.send({"substrat": "companion", "version": 1, "relay": relay})
        if greet:
            self.send({"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": {
                "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}}})
            self.receive()
            self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message):
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.socket.sendall(data + b"\n")

    def receive(self):
        while b"\n" not in self.rest:
            data = self.socket.recv(65536)
            if not data:
                return None
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        return json.loads(line)

    def ask(self, method, params, number=None):
        self.number += 1
        number = self.number if number is None else number
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return number

    def answer(self, number):
        while (message := self.receive()) is not None:
            if message.get("id") == number and "method" not in message:
                return message

    def raw(self, method, **params):
        return self.answer(self.ask(method, params))

    def call(self, tool, number=None, **arguments):
        '''The tool's answer, `!` before an error.'''
        done = self.answer(self.ask("tools/call", {"name": tool, "arguments": arguments}, number))
        if "error" in done:
            return "!" + done["error"]["message"]
        return ("!" if done["result"].get("isError") else "") + done["result"]["content"][0]["text"]


def door_path():
    servers = json.load(open(".cursor/mcp.json"))["mcpServers"]
    return servers["substrat"]["env"]["SUBSTRAT_SOCKET"]

"""


def said(agent):
    """What an agent's attack came to; its turn must have gone well."""
    assert agent["turn"]["outcome"] == "success", agent["turn"]["error"]
    return json.loads(agent["turn"]["result"])


def again(daemon, name, code):
    """Suspend, kill the daemon, start another one, and let the agent attack again."""
    daemon.ok("suspend", name)
    daemon.kill()
    daemon.start()
    daemon.ctl("resume", name, "--wait", "--prompt-file", "-", stdin=code.encode())
    return said(daemon.wait(name))
