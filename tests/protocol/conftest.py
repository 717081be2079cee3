"""A daemon of the test's own, and raw connections to it: bytes in, bytes out, nothing of `substrat.client`."""

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support import forked
from tests.support.daemon import PROGRAMS
from tests.support.waiting import PATIENCE, wait_until
from tests.support.wire import Wire


class Caller:
    """A caller of `agent.exec`, who lends the daemon descriptors. What the command writes can be read from `out`."""

    def __init__(self, running):
        self.path = str(running.root / "caller")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.settimeout(PATIENCE)
        self.listener.bind(self.path)
        self.listener.listen()
        self.channel = None
        out, self._writing = os.pipe()
        self.out = os.fdopen(out, "rb")

    def lend(self, descriptors=None):
        self.channel, _ = self.listener.accept()
        nothing = os.open(os.devnull, os.O_RDWR)
        given = [nothing, self._writing, self._writing] if descriptors is None else descriptors
        socket.send_fds(self.channel, [b"\0"], given)
        os.close(nothing)
        if descriptors is None:
            os.close(self._writing)
            self._writing = -1

    def close(self):
        self.listener.close()
        self.out.close()
        if self.channel is not None:
            self.channel.close()
        if self._writing >= 0:
            os.close(self._writing)


class ProtocolDaemon:
    """A home, a workspace and directories, and the daemon in them."""

    def __init__(self, directory):
        # Short, because the path of a socket may have 107 bytes.
        self.root = Path(tempfile.mkdtemp(prefix="pro-", dir="/tmp"))
        self.home = directory / "home"
        self.home.mkdir(mode=0o700)
        self.workspace = directory / "work"
        self.workspace.mkdir()
        self.state = directory / "state"
        self.runtime = self.root / "run"
        self.socket = self.runtime / "daemon.sock"
        self.config = directory / "config.toml"
        self.log = directory / "log"
        self.process = None

    def start(self, config=""):
        """Start a daemon and wait until it answers."""
        self.config.write_text(config)
        environment = {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "SUBSTRAT_AGENT_BINARY": str(PROGRAMS / "cursor-agent-standin"),
        }
        words = ["--state-dir", self.state, "--runtime-dir", self.runtime, "--config", self.config]
        self.process = forked.start(
            [PROGRAMS / "substratd"],
            words,
            environment=environment,
            log=self.log,
            state=self.state,
            directory=self.root,
        )
        wait_until(self._answers, "the daemon's answer")
        return self

    def _answers(self):
        assert self.process.poll() is None, self.log.read_text()
        with contextlib.suppress(OSError), self.wire() as wire:
            return wire.call("daemon.status")["pid"] == self.process.pid
        return False

    def wire(self, *, hello=True):
        return Wire(self.socket, hello=hello)

    def reload(self, config):
        """Give the daemon another configuration."""
        self.config.write_text(config)
        told = self.log.read_bytes().count(b"configuration reloaded")
        self.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.log.read_bytes().count(b"configuration reloaded") > told, "the reload")

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE)

    def close(self):
        """Ask the daemon to suspend its agents and to end, then kill by its pid what is left of it and its sandboxes."""
        if self.process is not None:
            if self.process.poll() is None:
                with contextlib.suppress(OSError, AssertionError), self.wire() as wire:
                    wire.ask("daemon.shutdown", suspend=True)
                    while wire.receive() is not None:
                        pass
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(PATIENCE)
            if self.process.poll() is None:
                self.kill()
            wait_until(self._nothing_left, "the end of the sandboxes")
        shutil.rmtree(self.root, ignore_errors=True)

    def chats(self):
        """Return where cursor-agent keeps the workspace's chats."""
        return self.home / ".cursor" / "chats" / hashlib.md5(os.fsencode(self.workspace)).hexdigest()

    def _nothing_left(self):
        """Kill the processes whose directory is the workspace; says whether there were none."""
        left = []
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if entry.isdigit() and os.readlink(f"/proc/{entry}/cwd") == str(self.workspace):
                    left.append(int(entry))
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    # Agents

    def spawn(self, wire, name="anna", prompt=None, **more):
        return wire.call("agent.spawn", workspace=str(self.workspace), name=name, prompt=prompt, **more)

    def repository(self):
        """Make a git repository with one commit, and return its path."""
        where = self.workspace.parent / "repository"
        identity = ("-c", "user.name=me", "-c", "user.email=me@example.invalid")
        if not where.exists():
            where.mkdir()
            for words in (("init", "-q", "-b", "main"), (*identity, "commit", "-q", "--allow-empty", "-m", "first")):
                subprocess.run(("git", "-C", where, *words), check=True)
        return str(where)

    def run(self, wire, name="anna", prompt="/say done"):
        """Create an agent and wait for the end of its first turn."""
        self.spawn(wire, name, prompt)
        return wire.call("agent.wait", agents=[name], timeout=PATIENCE)[0]

    def hold(self, wire, name="anna", before=""):
        """Create an agent whose turn goes on until `release`; returns once it is under way."""
        mark = self.workspace / f"ready-{name}"
        script = f"{before}/shell touch {mark.name}; while [ ! -e go ]; do sleep 0.02; done\n/say freed"
        self.spawn(wire, name, script)
        wait_until(mark.exists, f"the start of {name}")
        # The agent has written its first lines by then; the daemon may not have read them yet.
        wait_until(lambda: wire.call("agent.show", agent=name)["session_id"], f"the session of {name}")
        return wire.call("agent.show", agent=name)

    def release(self):
        (self.workspace / "go").touch()


@pytest.fixture
def daemon(tmp_path):
    """A daemon with directories of its own, which a test starts."""
    found = ProtocolDaemon(tmp_path)
    try:
        yield found
    finally:
        found.close()


@pytest.fixture
def running(daemon):
    """A daemon that runs."""
    return daemon.start()


@pytest.fixture(scope="session")
def idle(tmp_path_factory):
    """A daemon that runs, shared by all tests that create no agents."""
    found = ProtocolDaemon(tmp_path_factory.mktemp("idle"))
    try:
        yield found.start()
    finally:
        found.close()


@pytest.fixture
def idle_wire(idle):
    """A connection to the daemon without agents, which has said hello."""
    with idle.wire() as found:
        yield found


@pytest.fixture
def wire(running):
    """A connection that has said hello."""
    with running.wire() as found:
        yield found


@pytest.fixture
def caller(running):
    """A caller who lends the daemon descriptors for `agent.exec`."""
    found = Caller(running)
    yield found
    found.close()
