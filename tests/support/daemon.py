"""A daemon of the test's own: real processes, real sandboxes, a home and directories that end with the test."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support import forked
from tests.support.processes import arguments_of, descriptors, is_alive, link, processes
from tests.support.waiting import PATIENCE, wait_until
from tests.support.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from _typeshed import StrPath

PROGRAMS = Path(sys.executable).parent
LONGEST_TURN = 120
"""Seconds that a test waits for a turn: npm and pip in one need ten of them on an idle machine."""

# What an agent program written for a test starts with: the least that counts as one, with the stored chat that a
# resume looks for. `wait_for(name)` waits for a file in the workspace, which is how a test holds and frees a turn.
PRELUDE = """\
#!/usr/bin/env python3
import hashlib, json, os, pathlib, signal, sqlite3, subprocess, sys, time, uuid


def option(name):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None


def emit(kind, subtype=None, **fields):
    line = {"type": kind, **({"subtype": subtype} if subtype else {}), **fields, "session_id": session}
    sys.stdout.write(json.dumps(line) + "\\n")
    sys.stdout.flush()


def begin():
    chat = pathlib.Path.home() / ".cursor" / "chats" / hashlib.md5(os.getcwd().encode()).hexdigest() / session
    chat.mkdir(parents=True, exist_ok=True)
    store = sqlite3.connect(chat / "store.db")
    store.execute("CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT)")
    store.commit()
    store.close()
    emit("system", "init", apiKeySource="login", cwd=os.getcwd(), model="Auto", permissionMode="default")


def say(text):
    emit("assistant", message={"role": "assistant", "content": [{"type": "text", "text": text}]})


def finish(text="done"):
    say(text)
    emit("result", "success", duration_ms=1, duration_api_ms=1, is_error=False, result=text, request_id="r", usage={})


def mark(name, text=""):
    pathlib.Path(name + ".part").write_text(text)
    os.rename(name + ".part", name)


def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.01)


prompt = sys.stdin.read()
session = option("--resume") or str(uuid.uuid4())
"""


class Result:
    """What a command printed and returned."""

    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.code = code
        self.raw = out
        self.out = out.decode(errors="replace")
        self.err = err.decode(errors="replace")

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> str:
        """The one line on stderr of a command that failed."""
        lines = self.err.splitlines()
        assert len(lines) == 1, f"not one line: {self.err!r}"
        assert "Traceback" not in self.err
        return lines[0]

    def __repr__(self) -> str:
        return f"<exit {self.code}; out {self.out[-2000:]!r}; err {self.err[-2000:]!r}>"


def _in_place(config: str) -> str:
    """Return a configuration by which agents work in place unless it says otherwise: tests say `--clone` themselves."""
    if "workspace =" in config:
        return config
    line = 'workspace = "in-place"'
    return config.replace("[agent]", f"[agent]\n{line}", 1) if "[agent]" in config else f"agent.{line}\n{config}"


class DaemonFixture:
    """A place with a home, a state directory and workspaces, and the daemon in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        # Agents' socket paths have to fit into 107 bytes, which pytest's own directories are too deep for.
        self.runtime = Path(tempfile.mkdtemp(prefix="sys-", dir="/tmp"))
        self.state = directory / "state"
        self.home = directory / "home"
        self.config = directory / "config.toml"
        self.home.mkdir(mode=0o700)
        self.socket = self.runtime / "daemon.sock"
        self.agent = PROGRAMS / "cursor-agent-standin"
        self.process: Any = None
        self._started: list[Any] = []
        self.prefix: tuple[StrPath, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.close_streams()
        wait_until(self._nothing_left, "the end of all sandboxes")
        self._kill_orphans()
        shutil.rmtree(self.runtime, ignore_errors=True)

    def close_streams(self) -> None:
        """Close the pipes of commands that have ended."""
        for process in self._started:
            if process.poll() is not None:
                for stream in filter(None, (process.stdout, process.stderr)):
                    stream.close()

    def _nothing_left(self) -> bool:
        left = self.sandboxed()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    def _kill_orphans(self) -> None:
        """Kill the children of bubblewraps that were killed before they had written a child's user map.

        Such a child waits for its user map for ever (bubblewrap.c, `child_wait_fd`). It is in no sandbox yet.
        """
        for pid in processes():
            words = arguments_of(pid)
            ours = os.path.basename(words[0]) == "bwrap" and any(f"{self.directory}/" in word for word in words)
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                if ours and not Path(f"/proc/{pid}/uid_map").read_text():
                    os.kill(pid, signal.SIGKILL)

    # Places

    def workspace(self, name: str = "work", *, git: bool = False) -> Path:
        path = self.directory / name
        path.mkdir()
        if git:
            self.git(path, "init", "-q", "-b", "main")
            (path / "README.md").write_text("hello\n")
            self.git(path, "add", ".")
            self.git(path, "commit", "-q", "-m", "first")
        return path

    def git(self, path: Path, *arguments: StrPath) -> str:
        identity = ("-c", "user.name=Test", "-c", "user.email=test@example.invalid")
        environment = {"HOME": str(self.home), "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(
            ["git", "-C", path, *identity, *arguments], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    def program(self, source: str, name: str = "agent") -> Path:
        """Write an agent program in a directory of its own; a shebang of its own replaces the prelude."""
        directory = self.directory / f"program-{name}"
        directory.mkdir()
        path = directory / name
        path.write_text(source if source.startswith("#!") else PRELUDE + source)
        path.chmod(0o755)
        return path

    def agents_directory(self, agent: dict[str, Any]) -> Path:
        return self.state / "agents" / agent["id"]

    def chat(self, agent: dict[str, Any]) -> Path:
        digest = hashlib.md5(os.fsencode(os.path.realpath(agent["workspace"]))).hexdigest()
        return self.home / ".cursor" / "chats" / digest / agent["session_id"]

    # The daemon

    def environment(self, **more: str) -> dict[str, str]:
        return {"HOME": str(self.home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", **more}

    def launch(
        self,
        *,
        config: str | None = None,
        agent: Path | None = None,
        environment: Mapping[str, str] | None = None,
        arguments: Sequence[StrPath] = (),
        prefix: Sequence[StrPath] = (),
        executed: bool = False,
    ) -> Any:
        """Start a daemon without waiting for it; `executed` when the program itself matters, see `forked`."""
        if config is not None or not self.config.exists():
            self.configure(config or "")
        self.agent = agent or self.agent
        more = {"SUBSTRAT_AGENT_BINARY": str(self.agent), **(environment or {})}
        words: list[StrPath] = ["--state-dir", self.state, "--runtime-dir", self.runtime]
        words += ["--config", self.config]
        log = self.directory / f"daemon-{len(self._started)}.log"
        prefix = (*prefix, *self.prefix)
        process: Any = forked.start(
            [*prefix, PROGRAMS / "substratd"], [*words, *arguments],
            environment=self.environment(**{name: value for name, value in more.items() if value}),
            log=log, state=self.state, directory=self.directory, executed=executed or bool(prefix),
        )  # fmt: skip
        process.log = log
        self._started.append(process)
        return process

    def configure(self, config: str) -> None:
        """Write the configuration."""
        self.config.write_text(_in_place(config))

    def start(self, **how: Any) -> Self:
        """Start a daemon and wait until it answers."""
        self.process = self.launch(**how)
        return self.ready()

    def ready(self) -> Self:
        """Wait until the daemon that was launched last answers."""

        def answers() -> bool:
            # A child of a killed daemon may hold its socket for an instant yet, until it executes its program.
            assert self.process.poll() is None, self.process.log.read_text()
            with contextlib.suppress(OSError), Wire(self.socket) as wire:
                return wire.call("daemon.status")["pid"] == self.process.pid
            return False

        wait_until(answers, "the daemon's answer")
        return self

    def refused(self, **how: Any) -> tuple[int, str]:
        """Start a daemon that is expected to end at once; returns its exit status and what it said."""
        process = self.launch(**how)
        code = process.wait(PATIENCE)
        return code, process.log.read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(PATIENCE) == 0, self.process.log.read_text()

    @property
    def log(self) -> str:
        return self.process.log.read_text()

    # The client

    def ctl(
        self, *arguments: StrPath, stdin: bytes = b"", cwd: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> Result:
        """Run a command as `substratctl` does."""
        return Result(*forked.run(
            PROGRAMS / "substratctl", arguments,
            environment=self.environment(SUBSTRAT_SOCKET=str(self.socket)) if environment is None else environment,
            stdin=stdin, directory=cwd or self.directory,
        ))  # fmt: skip

    def ok(self, *arguments: StrPath, **how: Any) -> Any:
        """Run a command that must succeed, with `--json`; returns what it printed. An agent may need a person then."""
        done = self.ctl(*arguments, "--json", **how)
        assert done.code in {0, 6}, done
        return done.json

    def follow(self, *arguments: StrPath, errors: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
        """Start a command that goes on, with its standard error in a pipe or another file."""
        process = subprocess.Popen(
            [PROGRAMS / "substratctl", *arguments],
            env=self.environment(SUBSTRAT_SOCKET=str(self.socket)),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, cwd=self.directory,
        )  # fmt: skip
        self._started.append(process)
        return process

    def wire(self, *, hello: bool = True) -> Wire:
        return Wire(self.socket, hello=hello)

    def waits(self) -> list[dict[str, Any]]:
        """The agents' open waits."""
        with self.wire() as wire:
            return wire.call("wait.list")

    def spawn(
        self,
        name: str,
        workspace: Path,
        prompt: str | None = None,
        *options: StrPath,
        environment: Mapping[str, str] | None = None,
    ) -> Any:
        """Create an agent; with a prompt, wait for its turn."""
        words = ("spawn", name, "-w", workspace, *options)
        if prompt is None:
            return self.ok(*words)
        words += ("--wait", "--timeout", str(LONGEST_TURN), "--json", "--prompt-file", "-")
        done = self.ctl(*words, stdin=prompt.encode(), environment=environment)
        assert done.code in {0, 5, 6}, done
        return done.json

    # What tests look at again and again is asked for over the socket: a process for each look takes fifty times as long.

    def show(self, name: str) -> Any:
        with self.wire() as wire:
            return wire.call("agent.show", agent=name)

    def network(self, name: str) -> Any:
        """What `agent.network` tells of an agent."""
        with self.wire() as wire:
            return wire.call("agent.network", agent=name)

    def wait(self, name: str, *until: str) -> Any:
        with self.wire() as wire:
            (found,) = wire.call("agent.wait", agents=[name], until=until, timeout=PATIENCE - 1)
            # A wait's objects are abridged; the turn may have been followed by another by now.
            whole = wire.call("agent.show", agent=found["id"])
        if found["turn"] is not None and whole["turn"]["id"] == found["turn"]["id"]:
            found["turn"] = whole["turn"]
        return found

    def events(self, name: str, kind: str | None = None) -> list[Any]:
        with self.wire() as wire:
            return [event for event in wire.pages(agent=name) if kind in (None, event["kind"])]

    def turns(self, name: str) -> list[Any]:
        with self.wire() as wire:
            return list(wire.call("agent.turns", agent=name)["turns"])

    def shell(self, name: str) -> str:
        """What the shell commands of a stand-in's turns printed, joined."""
        calls = [event["raw"]["tool_call"] for event in self.events(name, "tool-call-completed")]
        results = [call["shellToolCall"]["result"] for call in calls if "shellToolCall" in call]
        texts = [next(iter(result.values())) for result in results]
        return "".join(text.get("stdout", "") + text.get("stderr", "") for text in texts)

    def tool(self, name: str) -> list[str]:
        """What the MCP tool calls of a stand-in's turns answered, one text a call, `!` before an error."""
        answers = []
        for event in self.events(name, "tool-call-completed"):
            call = event["raw"]["tool_call"].get("mcpToolCall")
            if call is None:
                continue
            ((arm, result),) = call["result"].items()
            if arm == "success":
                text = "".join(part["text"]["text"] for part in result["content"])
                answers.append(("!" if result["isError"] else "") + text)
            else:
                answers.append("!" + json.dumps(result))
        return answers

    def held(self, name: str, workspace: Path, *options: StrPath, before: str = "") -> Any:
        """Spawn an agent whose turn runs until the workspace has the file `go`; returns once it does."""
        mark = f"ready-{name}"
        script = f"{before}/shell touch {mark}; while [ ! -e go ]; do sleep 0.02; done\n/say freed"
        self.ok("spawn", name, "-w", workspace, *options, "--prompt-file", "-", stdin=script.encode())
        wait_until((workspace / mark).exists, f"the start of {name}")
        return self.show(name)

    # Processes

    def sandboxed(self) -> set[int]:
        """The processes of this daemon's sandboxes: who holds its files open, and who shares their pid namespaces."""
        own = link("/proc/self/ns/pid")
        mine = {process.pid for process in self._started}
        # Not remembered from look to look: the kernel gives a namespace's number to a stranger's as soon as it is free.
        found, namespaces, prefixes = set(), set(), (f"{self.state}/agents/", f"{self.state}/visits/")
        for pid in processes():
            if pid in mine or not any(path.startswith(prefixes) for path in descriptors(pid)) or not is_alive(pid):
                continue
            found.add(pid)
            namespaces.add(link(f"/proc/{pid}/ns/pid"))
        namespaces -= {own, ""}
        found |= {pid for pid in processes() if link(f"/proc/{pid}/ns/pid") in namespaces and is_alive(pid)}
        return found

    def kill_sandboxed(self) -> None:
        """Kill every process of this daemon's sandboxes, and wait until they are gone."""
        # The outermost first: a program whose child was killed would go on to its end meanwhile.
        for pid in sorted(self.sandboxed()):
            with contextlib.suppress(ProcessLookupError):  # it went with one that was killed before it
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not self.sandboxed(), "the end of the sandboxes")

    def clear(self) -> None:
        """Remove all agents and files, so that the next test finds the daemon as if it were new."""
        if self.process is None or self.process.poll() is not None:
            self.start()
        for agent in self.ok("ls"):
            self.ctl("end", agent["id"])
            assert self.ctl("rm", agent["id"]).code == 0
        for path in [*self.home.iterdir(), *self.directory.iterdir()]:
            if path not in {self.state, self.home} and path.suffix != ".log":
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
