"""Runs the real stand-in in a home and a workspace of the test's own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.waiting import is_readable

ROOT = Path(__file__).parents[2]
MCP_SERVER = Path(__file__).with_name("scripted_mcp_server.py")
USUAL = ("-p", "--trust", "--force", "--approve-mcps", "--output-format", "stream-json")
PATIENCE = 30.0


class Outcome:
    """What a finished run printed and returned."""

    def __init__(self, code, stdout, stderr):
        self.code = code
        self.stdout = stdout
        self.stderr = stderr.decode()

    @property
    def lines(self):
        return [json.loads(line) for line in self.stdout.decode().splitlines()]

    @property
    def result(self):
        assert self.code == 0, self.stderr
        assert self.lines[-1]["type"] == "result"
        return self.lines[-1]

    @property
    def text(self):
        return self.result["result"]

    def of(self, kind, subtype=None):
        return [line for line in self.lines if line["type"] == kind and subtype in (None, line.get("subtype"))]

    def calls(self, kind):
        """The results of the completed calls of one kind of tool."""
        calls = [line["tool_call"] for line in self.of("tool_call", "completed")]
        return [call[f"{kind}ToolCall"]["result"] for call in calls if f"{kind}ToolCall" in call]


class Running:
    """A run that goes on; its stdout is read line by line with a bound."""

    def __init__(self, process):
        self.process = process
        self.pid = process.pid
        self._unread = b""

    def read_line(self):
        deadline = time.monotonic() + PATIENCE
        while b"\n" not in self._unread:
            assert is_readable(self.process.stdout, max(0, deadline - time.monotonic())), "no line came"
            data = os.read(self.process.stdout.fileno(), 1 << 20)
            assert data, f"stdout ended: {self.process.communicate()[1]!r}"
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return json.loads(line)

    def read_until(self, kind, subtype=None):
        while True:
            line = self.read_line()
            if line["type"] == kind and subtype in (None, line.get("subtype")):
                return line

    def finish(self):
        stdout, stderr = self.process.communicate(timeout=PATIENCE)
        return Outcome(self.process.returncode, self._unread + stdout, stderr)

    def signal(self, number):
        self.process.send_signal(number)
        return self.finish()


class Standin:
    """The stand-in with a home and a workspace."""

    def __init__(self, directory):
        self.home = directory / "home"
        self.workspace = directory / "workspace"
        self.home.mkdir()
        self.workspace.mkdir()
        self.environ = {"HOME": str(self.home), "PATH": os.environ["PATH"], "TMPDIR": str(directory)}
        self.temporary = directory
        self._running = []

    @property
    def chats(self):
        """The directories of the chats that exist."""
        return sorted((self.home / ".cursor" / "chats").glob("*/*"))

    @property
    def project(self):
        (directory,) = (self.home / ".cursor" / "projects").iterdir()
        return directory

    def start(self, prompt, *flags, usual=USUAL, stdin=None, cwd=None):
        """Start a run whose prompt comes from a file, as the daemon starts it."""
        if stdin is None:
            stdin = (self.temporary / f"prompt-{len(self._running)}").open("w+b")
            stdin.write(prompt.encode() if isinstance(prompt, str) else prompt)
            stdin.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-m", "substrat.standin.main", *usual, *flags],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd or self.workspace,
            env=self.environ | {"PYTHONPATH": str(ROOT)},
            process_group=0,  # which its servers share
        )
        if not isinstance(stdin, int):
            stdin.close()
        running = Running(process)
        self._running.append(running)
        return running

    def run(self, prompt, *flags, **options):
        return self.start(prompt, *flags, **options).finish()

    def kill_all(self):
        for running in self._running:
            if running.process.returncode is None:  # until it is waited for, its number is its group's alone
                os.killpg(running.pid, signal.SIGKILL)
            running.process.communicate()

    def use_mcp(self, *arguments, name="echo", environ=None):
        """Configure the scripted server; returns the file in which it records what it saw."""
        record = self.temporary / f"{name}.jsonl"
        path = self.workspace / ".cursor" / "mcp.json"
        path.parent.mkdir(exist_ok=True)
        value = json.loads(path.read_text()) if path.exists() else {"mcpServers": {}}
        command = [sys.executable, "-I", "-S", str(MCP_SERVER), str(record), *arguments]
        value["mcpServers"][name] = {"command": command[0], "args": command[1:], "env": environ or {}}
        path.write_text(json.dumps(value))
        return record


@pytest.fixture
def standin(tmp_path):
    standin = Standin(tmp_path)
    yield standin
    standin.kill_all()
