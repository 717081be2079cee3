"""A private stage for the demo: a daemon of its own in a temporary directory, its timeline, and nothing left behind."""

from __future__ import annotations

import json
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from substrat import errors
from substrat.cli import output
from substrat.cli.render import Chorus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    Event = dict[str, object]

_PATIENCE_S = 15.0


class StageFailed(errors.SubstratError):
    """The demo couldn't go on."""


class DemoStage:
    """A daemon, a timeline, and the commands a person would type.

    Args:
        show: whether to print the events.
        environ: the demo's own environment; its home, directories and socket are not used.
    """

    def __init__(self, *, show: bool, environ: Mapping[str, str]) -> None:
        self._show = show
        self._colour = show and output.has_colour(sys.stdout)
        self.root = tempfile.mkdtemp(prefix="substrat-demo-")
        self.home = self._directory("home")
        self.state = self._directory("state")
        self._environ = {
            "PATH": environ.get("PATH", os.defpath),
            "HOME": self.home,
            "LANG": "C.UTF-8",
            "SUBSTRAT_AGENT_BINARY": _beside_us("cursor-agent-standin"),
            "SUBSTRAT_STATE_DIR": self.state,
            "SUBSTRAT_RUNTIME_DIR": self._directory("run"),
            "SUBSTRAT_CONFIG": os.path.join(self.root, "config.toml"),
        }
        self._daemon: subprocess.Popen[bytes] | None = None
        self._timeline: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self.events: list[Event] = []
        self._chapter_start = 0
        self._names: dict[str, str] = {}
        self._chorus = Chorus(self._names, colour=self._colour)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End every process and remove every file of the demo."""
        try:
            if self._daemon is None or self._daemon.poll() is not None:
                self.start_daemon()
            subprocess.run(
                self._line("shutdown", "--suspend"),
                env=self._environ,
                check=False,
                capture_output=True,
                timeout=_PATIENCE_S,
            )
        finally:
            for child in (self._timeline, self._daemon):
                if child is not None:
                    child.kill()
                    child.wait()
                    if child.stdout is not None:
                        child.stdout.close()
            shutil.rmtree(self.root, ignore_errors=True)

    def say(self, text: str = "") -> None:
        """Print a line of the story."""
        if self._show:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()

    def chapter(self, text: str) -> None:
        """Begin a part of the story, and print its heading."""
        self._chapter_start = len(self.events)
        self.say()
        self.say(output.paint(text, output.BOLD, on=self._colour))

    @property
    def environ(self) -> dict[str, str]:
        """The environment of the demo's programs."""
        return dict(self._environ)

    # The daemon

    def start_daemon(self) -> None:
        """Start the daemon and wait until it says that it is ready, as systemd would.

        Raises:
            StageFailed: it didn't become ready; the message is the daemon's own.
        """
        address = os.path.join(self.root, "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, open(self._log, "ab") as log:
            ready.bind(address)
            self._daemon = subprocess.Popen(
                [_beside_us("substratd")],
                env={**self._environ, "NOTIFY_SOCKET": address},
                stderr=log,
                start_new_session=True,
            )
            pidfd = os.pidfd_open(self._daemon.pid)
            try:
                readable = select.select([ready.fileno(), pidfd], [], [], _PATIENCE_S)[0]
            finally:
                os.close(pidfd)
                os.unlink(address)
        if self._daemon.poll() is not None or not readable:
            with open(self._log, encoding="utf-8", errors="replace") as said:
                raise StageFailed(f"the demo's daemon didn't start: {said.read().strip()[-400:]}")

    def kill_daemon(self) -> None:
        """Kill the daemon with SIGKILL."""
        assert self._daemon is not None
        self.say(f"$ kill -9 {self._daemon.pid}        # the daemon")
        self._daemon.send_signal(signal.SIGKILL)
        self._daemon.wait()

    # A person's acts

    def command(self, *words: str, status: int = errors.DONE) -> str:
        """Run `substratctl` as a person would, and show it.

        Args:
            words: its arguments.
            status: the exit status that it must have.

        Returns:
            Its output.

        Raises:
            StageFailed: it had another one; the message is its own.
        """
        self.say("$ substratctl " + " ".join(_short(word) for word in words))
        done = subprocess.run(
            self._line(*words), env=self._environ, check=False, capture_output=True, text=True, timeout=_PATIENCE_S
        )
        if done.returncode != status:
            raise StageFailed(done.stderr.strip().removeprefix("substratctl: ") or f"substratctl {words[0]} failed")
        shown = done.stdout + done.stderr if status else done.stdout
        if words[0] != "spawn" and shown.strip():
            self.say(output.paint(shown.rstrip(), output.DIM, on=self._colour))
        return done.stdout

    def shell(self, *words: str) -> str:
        """Run a program outside of any sandbox, and show it.

        Raises:
            StageFailed: it failed.
        """
        self.say("$ " + " ".join(_short(word) for word in words))
        done = subprocess.run(words, env=self._environ, check=False, capture_output=True, text=True, timeout=_PATIENCE_S)
        if done.returncode != 0:
            raise StageFailed(f"{shlex.join(words)}: {done.stderr.strip()}")
        if done.stdout.strip():
            self.say(output.paint(done.stdout.rstrip(), output.DIM, on=self._colour))
        return done.stdout

    def agent(self, name: str) -> dict[str, object]:
        """Return an agent object."""
        done = subprocess.run(
            self._line("show", name, "--json"), env=self._environ, check=True, capture_output=True, timeout=_PATIENCE_S
        )
        found = json.loads(done.stdout)
        assert isinstance(found, dict)
        return found

    # The timeline

    def open_timeline(self) -> None:
        """Follow all events from the beginning, as `substratctl events -f` does."""
        self._timeline = subprocess.Popen(
            self._line("events", "-f", "--since", "0", "--json"), env=self._environ, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def watch(self, awaited: str, until: Callable[[Event], bool]) -> Event:
        """Show events as they come, until the one that the story waits for.

        It may have been shown already, in this chapter: an agent's tool calls reach the daemon by a socket, its lines by a
        file, so a message may come before a line that the agent printed earlier.

        Args:
            awaited: names that event, for the error when it doesn't come.
            until: recognises it.

        Raises:
            StageFailed: it didn't come in time.
        """
        for event in self.events[self._chapter_start :]:
            if until(event):
                return event
        deadline = time.monotonic() + _PATIENCE_S
        while (left := deadline - time.monotonic()) > 0:
            for event in self._read(left):
                self._show_event(event)
                if until(event):
                    # Events that came in the same breath are shown with the next watch.
                    return event
        raise StageFailed(f"waited {_PATIENCE_S:g} s for this in vain: {awaited}")

    def _read(self, seconds: float) -> list[Event]:
        """Give the next event that has arrived, as a list of at most one."""
        assert self._timeline is not None
        assert self._timeline.stdout is not None
        if b"\n" not in self._pending:
            if not select.select([self._timeline.stdout], [], [], seconds)[0]:
                return []
            data = os.read(self._timeline.stdout.fileno(), 65536)
            if not data:
                raise StageFailed("the timeline ended")
            self._pending += data
        line, newline, rest = self._pending.partition(b"\n")
        if not newline:
            return []
        self._pending = rest
        return [json.loads(line)]

    def _show_event(self, event: Event) -> None:
        self.events.append(event)
        agent = str(event["agent"])
        if agent not in self._names:
            self._names[agent] = str(self.agent(agent)["name"])
        if self._show:
            sys.stdout.write(self._chorus.feed(event))
            sys.stdout.flush()

    @property
    def _log(self) -> str:
        return os.path.join(self.root, "daemon.log")

    def _directory(self, name: str) -> str:
        path = os.path.join(self.root, name)
        os.mkdir(path, 0o700)
        return path

    def _line(self, *words: str) -> list[str]:
        return [_beside_us("substratctl"), *words]


def _beside_us(program: str) -> str:
    """Find a program of this installation."""
    path = os.path.join(os.path.dirname(sys.executable), program)
    if os.path.exists(path):
        return path
    if found := shutil.which(program):
        return found
    raise StageFailed(f"{program} isn't installed beside {sys.executable}: install Substrat with pip or `make`")


def _short(word: str) -> str:
    text = word if len(word) <= 60 and "\n" not in word else word.splitlines()[0][:56] + " …"
    return shlex.quote(text)
