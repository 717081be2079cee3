"""A scripted daemon on a real socket, and ways to run `substratctl` in this process and as a program."""

import contextlib
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from substrat import errors
from substrat.cli import main as cli
from substrat.protocol import framing

PATIENCE = 20.0
PROGRAMS = Path(sys.executable).parent
HELLO = {"protocol": 1, "server": "substratd 9.9", "pid": 1, "state_dir": "/state"}
AGENT = {
    "id": "11111111-1111-4111-8111-111111111111", "name": "anna", "state": "idle", "session_id": None,
    "workspace": "/work", "program": "cursor", "model": "auto", "network": "host", "parent": None,
    "created_at": "2026-01-01T00:00:00Z", "unread": 0, "turn": None,
}  # fmt: skip
TURN = {
    "id": "t1", "number": 3, "outcome": "success", "started_at": "2026-01-01T00:00:00Z",
    "ended_at": "2026-01-01T00:00:05Z", "exit_code": 0, "result": "all done", "usage": {"inputTokens": 5}, "error": None,
}  # fmt: skip


class Peer:
    """One client's connection, as the scripted daemon sees it."""

    def __init__(self, connection):
        self.socket = connection
        self._file = connection.makefile("rb")

    def read(self):
        """The next request; None when the client has gone."""
        line = self._file.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def write(self, *parts):
        self.socket.sendall(b"".join(parts))

    def answer(self, request, result=None):
        self.write(framing.success(request["id"], result))

    def fail(self, request, problem):
        self.write(framing.failure(request and request["id"], problem))

    def event(self, subscription, event):
        self.write(framing.notification("event", {"subscription": subscription, "event": event}))

    def greet(self):
        """Read and answer `hello`."""
        hello = self.read()
        assert hello["method"] == "hello", hello
        self.answer(hello, HELLO)
        return hello

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self._file.close()
        self.socket.close()


class FakeDaemon:
    """Listens on a socket; each connection is served by a script in a thread of its own.

    The script is a function of a `Peer`, or a table from methods to answers: a value, a `SubstratError`, or a function
    of the parameters that gives or raises one.
    """

    def __init__(self, path, script):
        self.path = str(path)
        self.requests = []
        self.failures = []
        self._script = script if callable(script) else lambda peer: self._serve_table(peer, script)
        self._peers = []
        directory = os.open(os.path.dirname(self.path), os.O_PATH)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"/proc/self/fd/{directory}/{os.path.basename(self.path)}")
        os.close(directory)
        self._listener.listen(16)
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def calls(self, method):
        """The parameters of each request for a method."""
        return [request["params"] for request in self.requests if request["method"] == method]

    def _accept(self):
        while True:
            try:
                peer = Peer(self._listener.accept()[0])
            except OSError:
                return
            self._peers.append(peer)
            thread = threading.Thread(target=self._serve, args=(peer,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, peer):
        try:
            self._script(peer)
        except (BrokenPipeError, ConnectionResetError):
            pass
        except Exception as problem:
            self.failures.append(problem)
        finally:
            peer.close()

    def _serve_table(self, peer, table):
        while (request := peer.read()) is not None:
            self.requests.append(request)
            answer = {"hello": HELLO, **table}[request["method"]]
            try:
                answer = answer(request["params"]) if callable(answer) else answer
            except errors.SubstratError as problem:
                answer = problem
            if isinstance(answer, errors.SubstratError):
                peer.fail(request, answer)
            else:
                peer.answer(request, answer)

    def stop(self):
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join(PATIENCE)
        for peer in self._peers:
            with contextlib.suppress(OSError):
                peer.socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a script went on"


class Terminal(io.StringIO):
    """Standard input or output on a terminal."""

    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def _environment(monkeypatch, tmp_path):
    """No test sees this machine's daemon, login or colours."""
    for name in [name for name in os.environ if name.startswith(("SUBSTRAT_", "XDG_", "CURSOR_"))]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SUBSTRAT_SOCKET", str(tmp_path / "daemon.sock"))


@pytest.fixture
def fake(tmp_path):
    """Start a scripted daemon on the socket that `SUBSTRAT_SOCKET` names, or on another."""
    started = []

    def start(script, path=None):
        started.append(FakeDaemon(path or tmp_path / "daemon.sock", script))
        return started[-1]

    yield start
    for daemon in started:
        daemon.stop()
    for daemon in started:
        assert daemon.failures == []


class Result:
    def __init__(self, code, out, err):
        self.code = code
        self.out = out
        self.err = err

    def __repr__(self):
        return f"<{self.code} out={self.out!r} err={self.err!r}>"

    @property
    def json(self):
        assert self.out.count("\n") == 1, self
        return json.loads(self.out)

    @property
    def error(self):
        """The one line on standard error."""
        assert self.err.startswith("substratctl: "), self
        assert self.err.endswith("\n"), self
        assert self.err.count("\n") == 1, self
        return self.err.removeprefix("substratctl: ").removesuffix("\n")


@pytest.fixture
def ctl(capsys, monkeypatch):
    """Run `substratctl` in this process."""
    # It redirects descriptor 1, which is pytest's here.
    monkeypatch.setattr(cli, "_give_up_output", lambda: None)

    def run(*words):
        capsys.readouterr()
        code = cli.main([str(word) for word in words])
        return Result(code, *capsys.readouterr())

    return run


@pytest.fixture
def program():
    """Run one of the installed programs as a process, with a small environment."""

    def run(*words, environment=None, name="substratctl", **how):
        basic = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "LANG": "C.UTF-8"}
        basic["SUBSTRAT_SOCKET"] = os.environ["SUBSTRAT_SOCKET"]
        how = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": PATIENCE, **how}
        done = subprocess.run([PROGRAMS / name, *words], env={**basic, **(environment or {})}, check=False, **how)
        return Result(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def agent():
    """Make an agent object; `turn` takes a turn's fields."""

    def make(turn=None, **fields):
        return {**AGENT, "turn": None if turn is None else {**TURN, **turn}, **fields}

    return make


@pytest.fixture
def event():
    """Make an event object."""

    def make(kind, text=None, *, raw=None, agent=AGENT["id"], cursor=1, time="2026-01-01T10:20:30Z"):
        return {"cursor": cursor, "agent": agent, "turn": 1, "time": time, "kind": kind, "text": text, "raw": raw}

    return make


@pytest.fixture
def executable(tmp_path):
    """Write a shell script and return its path."""

    def write(name, body, directory=None):
        path = (directory or tmp_path / "programs") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    return write


@pytest.fixture(scope="module")
def real_daemon():
    """A real daemon with the stand-in as its agent program; gives its socket."""
    directory = Path(tempfile.mkdtemp(prefix="cli-", dir="/tmp"))
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(directory), "LANG": "C.UTF-8",
        "SUBSTRAT_AGENT_BINARY": str(PROGRAMS / "cursor-agent-standin"),
    }  # fmt: skip
    reader, writer = os.pipe()
    places: list[str | Path] = ["--state-dir", directory / "state", "--runtime-dir", directory / "run"]
    process = subprocess.Popen(
        [PROGRAMS / "substratd", *places], env=environment, stdin=subprocess.DEVNULL, stdout=writer, stderr=writer,
        cwd=directory,
    )  # fmt: skip
    os.close(writer)
    log: list[bytes] = []
    drain = threading.Thread(target=lambda: log.extend(iter(lambda: os.read(reader, 65536), b"")), daemon=True)
    drain.start()
    path = directory / "run" / "daemon.sock"
    deadline = time.monotonic() + PATIENCE
    try:
        while not _listens(path):
            assert process.poll() is None, b"".join(log).decode()
            assert time.monotonic() < deadline, b"".join(log).decode()
            time.sleep(0.01)
        yield str(path)
    finally:
        process.terminate()
        process.wait(PATIENCE)
        drain.join(PATIENCE)
        os.close(reader)
        shutil.rmtree(directory, ignore_errors=True)


def _listens(path):
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0
