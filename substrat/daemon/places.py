"""The files of agents and turns, and where they are: state that the daemon owns; the workspace is `workspace`."""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from sandbox.netlaunch import NAMESERVER
from sandbox.spec import Form
from substrat.core import mcp_config, prompts
from substrat.core.cursor import chats_folder
from substrat.daemon.workspace import copy_cursor_directory

if TYPE_CHECKING:
    from substrat.core.records import Agent
    from substrat.daemon.workspace import User

COMPANION_IN_SANDBOX = "/run/substrat/companion.py"
DOOR_IN_SANDBOX = "/run/substrat/door"
SOCKET_IN_SANDBOX = f"{DOOR_IN_SANDBOX}/agent.sock"
OWN_MCP_IN_SANDBOX = "/run/substrat/own-mcp.json"
RELAY_IN_SANDBOX = "/run/substrat/netrelay.py"


class Places(NamedTuple):
    """Where a daemon keeps things."""

    state: str
    runtime: str

    @property
    def agents(self) -> str:
        """Where the agents' directories are."""
        return os.path.join(self.state, "agents")

    @property
    def trash(self) -> str:
        """What is to be deleted."""
        return os.path.join(self.state, "trash")

    @property
    def damaged(self) -> str:
        """What couldn't be read and was set aside."""
        return os.path.join(self.state, "damaged")

    @property
    def visits(self) -> str:
        """Where the operator's commands in agents' sandboxes have their files, while they run."""
        return os.path.join(self.state, "visits")

    def agent(self, agent_id: str) -> AgentPlace:
        """Return an agent's directories."""
        return AgentPlace(os.path.join(self.agents, agent_id), os.path.join(self.runtime, "agents", agent_id))

    def visit(self, agent_id: str, visit: str) -> tuple[AgentPlace, TurnPlace]:
        """Return the directories of a command in an agent's sandbox: the agent's own, but for what is generated anew."""
        root = os.path.join(self.visits, visit)
        return self.agent(agent_id)._replace(made=root), TurnPlace(root)

    def remove_sockets_of(self, visit: str) -> None:
        """Remove what a command of a daemon that was killed had in its agent's directory of sockets."""
        with suppress(FileNotFoundError):
            for agent_id in os.listdir(os.path.join(self.runtime, "agents")):
                with suppress(FileNotFoundError):
                    os.unlink(self.visit(agent_id, visit)[0].network_socket)


class TurnPlace(NamedTuple):
    """A turn's directory."""

    root: str

    @property
    def prompt(self) -> str:
        """What the agent program reads as its standard input."""
        return os.path.join(self.root, "prompt")

    @property
    def stdout(self) -> str:
        """What it wrote: stream-json lines."""
        return os.path.join(self.root, "stdout")

    @property
    def stderr(self) -> str:
        """What it complained about."""
        return os.path.join(self.root, "stderr")

    @property
    def status(self) -> str:
        """What bubblewrap reported: the inner pid, the exit code."""
        return os.path.join(self.root, "status")

    @property
    def lock(self) -> str:
        """What the turn's sandbox holds a lock on for as long as any of it is there."""
        return os.path.join(self.root, "lock")

    @property
    def names(self) -> str:
        """Which names the turn's network has given addresses to."""
        return os.path.join(self.root, "names")

    @property
    def form(self) -> str:
        """How the turn comes by its `filtered` network."""
        return os.path.join(self.root, "form")

    @property
    def guard(self) -> str:
        """What of the workspace is protected in the turn."""
        return os.path.join(self.root, "guard")

    def read_guard(self) -> bytes | None:
        """Return what `make` wrote about what is protected, None when it wrote nothing."""
        with suppress(OSError), open(os.open(self.guard, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            return file.read()
        return None

    def read_form(self) -> Form | None:
        """Return how the turn comes by its `filtered` network; None: nobody wrote that down."""
        with suppress(OSError), open(os.open(self.form, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            said = file.read(64)
            return next((form for form in Form if form.value.encode() == said), None)
        return None

    def take_lock(self) -> int:
        """Lock the turn for a sandbox that is about to be started; the caller closes the descriptor.

        Raises:
            BlockingIOError: a sandbox of the turn is there already.
        """
        descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise
        return descriptor

    def is_held(self) -> bool:
        """Say whether a sandbox of the turn is there, also one that hasn't reported anything yet."""
        try:
            os.close(self.take_lock())
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
        return False

    def make(self, prompt: str, guard: bytes | None = None, form: Form | None = None) -> None:
        """Make the directory and its files; a directory left from a launch that was cut short is made anew.

        Args:
            prompt: what the agent program reads.
            guard: what is protected in the workspace, for `read_guard`.
            form: how it comes by its `filtered` network, if it has one.
        """
        shutil.rmtree(self.root, ignore_errors=True)
        os.makedirs(self.root, mode=0o700)
        with open(self.prompt, "w", encoding="utf-8", errors="replace") as file:
            file.write(prompt)
        if guard is not None:
            with open(self.guard, "wb") as record:
                record.write(guard)
        if form is not None:
            with open(self.form, "w", encoding="ascii") as note:
                note.write(form.value)

    def read_status(self) -> bytes:
        """Return what bubblewrap has reported so far."""
        return _read_bounded(self.status, 64 * 1024)

    def has_output(self) -> bool:
        """Say whether the program wrote anything to its standard output."""
        try:
            return os.path.getsize(self.stdout) > 0
        except FileNotFoundError:
            return False

    def printed_at(self, least: float) -> float:
        """Return when the program last wrote anything, in seconds since the epoch, at the least a given time."""
        times = [least]
        for path in (self.stdout, self.stderr):
            with suppress(FileNotFoundError):
                times.append(os.stat(path).st_mtime)
        return max(times)

    def output_size(self) -> int:
        """Return how many bytes the program has written to standard output and error."""
        size = 0
        for path in (self.stdout, self.stderr):
            with suppress(OSError):
                size += os.stat(path, follow_symlinks=False).st_size
        return size

    def read_errors(self) -> str:
        """Return the end of what the program complained about."""
        return _read_bounded(self.stderr, 64 * 1024).decode("utf-8", "replace")


class AgentPlace(NamedTuple):
    """An agent's directories.

    Args:
        root: `<state>/agents/<uuid>`.
        door: `<runtime>/agents/<uuid>`, the directory of its socket.
        made: where the files are that `prepare` generates; empty: in `root`, which a running turn may be looking at.
    """

    root: str
    door: str
    made: str = ""

    @property
    def cursor(self) -> str:
        """What is bound over `<workspace>/.cursor`."""
        return os.path.join(self.made or self.root, "cursor")

    @property
    def mcp_json(self) -> str:
        """The generated MCP configuration."""
        return os.path.join(self.cursor, "mcp.json")

    @property
    def dot_cursor(self) -> str:
        """The agent's own `~/.cursor`."""
        return os.path.join(self.root, "dot-cursor")

    @property
    def chats(self) -> str:
        """What is bound over `~/.cursor/chats`, so that the agent can't put a link in its place."""
        return os.path.join(self.root, "chats")

    @property
    def cache(self) -> str:
        """The agent's own `~/.cache`."""
        return os.path.join(self.root, "cache")

    @property
    def etc(self) -> str:
        """Generated files for `/etc`."""
        return os.path.join(self.made or self.root, "etc")

    @property
    def gitconfig(self) -> str:
        """The generated `~/.gitconfig`."""
        return os.path.join(self.made or self.root, "gitconfig")

    @property
    def git(self) -> str:
        """Generated git files that keep our files in `.cursor` out of the agent's commits; its `~/.config/git`."""
        return os.path.join(self.made or self.root, "git")

    @property
    def own_mcp_json(self) -> str:
        """The workspace's own `.cursor/mcp.json`, as git has to see it."""
        return os.path.join(self.made or self.root, "own-mcp.json")

    @property
    def socket(self) -> str:
        """The agent socket."""
        return os.path.join(self.door, "agent.sock")

    @property
    def network_socket(self) -> str:
        """Where the proxy form of a `filtered` network is served: a turn's, or that of a command beside it."""
        return os.path.join(self.door, f"network-{os.path.basename(self.made)}.sock" if self.made else "network.sock")

    @property
    def network_socket_in_sandbox(self) -> str:
        """The same as seen from inside."""
        return f"{DOOR_IN_SANDBOX}/{os.path.basename(self.network_socket)}"

    def turn(self, number: int) -> TurnPlace:
        """Return the place of a turn."""
        return TurnPlace(os.path.join(self.root, "turns", str(number)))

    def prepare(
        self,
        agent: Agent,
        parent: str | None,
        user: User,
        python: str,
        identity: str,
        git_directories: tuple[str, ...] = (),
    ) -> str | None:
        """Make everything anew that a turn's sandbox shows of this agent.

        Args:
            agent: the agent.
            parent: its parent's name.
            user: who it is inside.
            python: the companion's interpreter.
            identity: the operator's `user.name` and `user.email` as a git configuration section.
            git_directories: where else than in its `.git` the workspace's repository is.

        Returns:
            What was left out and why, or None.

        Raises:
            WorkspaceUnusable: its `.cursor` can't be shown.
        """
        for directory in (self.dot_cursor, self.chats, self.cache, self.etc, self.git, self.door):
            os.makedirs(directory, mode=0o700, exist_ok=True)
        os.makedirs(os.path.join(self.chats, chats_folder(agent.workspace)), exist_ok=True)
        shutil.rmtree(self.cursor, ignore_errors=True)
        os.makedirs(self.cursor, mode=0o755)
        left_out = copy_cursor_directory(os.path.join(agent.workspace, ".cursor"), self.cursor)
        rules = os.path.join(self.cursor, "rules")
        if os.path.isfile(rules):
            os.unlink(rules)
        os.makedirs(rules, mode=0o755, exist_ok=True)
        own = _read_text(self.mcp_json) if os.path.isfile(self.mcp_json) else None
        ours = mcp_config.companion(python, COMPANION_IN_SANDBOX, agent.id, SOCKET_IN_SANDBOX)
        text, problem = mcp_config.merge(own, ours)
        _write(self.mcp_json, text)
        _write(os.path.join(self.cursor, "rules", "substrat.mdc"), prompts.rules(agent, parent))
        self._write_etc(user, agent)
        self._write_git(user, (f"{agent.workspace}/.git", *git_directories), identity, own)
        return problem or left_out

    def _write_git(self, user: User, git_directories: tuple[str, ...], identity: str, own: str | None) -> None:
        """Make git in the sandbox take our files in `.cursor` for what the workspace has there.

        Files that the workspace doesn't have are ignored; for its own `mcp.json`, which ours covers, a clean filter gives
        git the original. Both hold for the workspace's repository only.
        """
        os.makedirs(self.git, mode=0o700, exist_ok=True)
        there = f"{user.home}/.config/git"
        _write(self.own_mcp_json, own or "")
        _write(os.path.join(self.git, "ignore-ours"), "/.cursor/mcp.json\n/.cursor/rules/substrat.mdc\n")
        _write(os.path.join(self.git, "attributes-ours"), "/.cursor/mcp.json filter=substrat -text\n" if own else "")
        _write(
            os.path.join(self.git, "workspace"),
            f"[core]\n\texcludesFile = {there}/ignore-ours\n\tattributesFile = {there}/attributes-ours\n"
            f'[filter "substrat"]\n\tclean = cat {OWN_MCP_IN_SANDBOX}\n\tsmudge = cat\n',
        )
        include = ""
        for path in git_directories:
            where = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            include += f'[includeIf "gitdir:{where}"]\n\tpath = {there}/workspace\n'
        _write(self.gitconfig, f"{identity}[safe]\n\tdirectory = *\n{include}")

    def _write_etc(self, user: User, agent: Agent) -> None:
        _write(os.path.join(self.etc, "resolv.conf"), f"nameserver {NAMESERVER}\noptions timeout:2 attempts:2\n")
        _write(
            os.path.join(self.etc, "passwd"),
            ("root:x:0:0:root:/root:/bin/sh\n" if user.uid else "")
            + f"{user.name}:x:{user.uid}:{user.gid}::{user.home}:/bin/sh\n"
            + "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        )
        _write(
            os.path.join(self.etc, "group"),
            ("root:x:0:\n" if user.gid else "") + f"{user.name}:x:{user.gid}:\nnogroup:x:65534:\n",
        )
        _write(
            os.path.join(self.etc, "hosts"), f"127.0.0.1 localhost {agent.name}\n::1 localhost ip6-localhost {agent.name}\n"
        )

    def remove_door(self) -> None:
        """Delete the agent's socket and its directory."""
        shutil.rmtree(self.door, ignore_errors=True)


def _read_bounded(path: str, size: int) -> bytes:
    """Return a file's last bytes; a missing file is empty, and one whose writer has taken the right to read it away."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read(size)
    except (FileNotFoundError, PermissionError):
        return b""


def _read_text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _write(path: str, text: str) -> None:
    """Write a generated file, in the place of whatever the workspace has there under its name."""
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
    with open(path, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
