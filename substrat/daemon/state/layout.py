"""The paths of the daemon's own files, of agents and of turns, and reading and writing the files of a turn.

For example turn 3 of an agent is `<state>/agents/<uuid>/turns/3`, and its output is `stdout` there.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace

from sandbox.spec import NetworkMode
from substrat.core.programs.table import CURSOR, chats_folder
from substrat.daemon.kernel import descriptors, nofollow
from substrat.names import is_uuid

COMPANION_IN_SANDBOX = "/run/substrat/companion.py"
SOCKET_DIR_IN_SANDBOX = "/run/substrat/door"
SOCKET_IN_SANDBOX = f"{SOCKET_DIR_IN_SANDBOX}/agent.sock"
OWN_MCP_IN_SANDBOX = "/run/substrat/own-mcp.json"
RELAY_IN_SANDBOX = "/run/substrat/netrelay.py"
SHARED_IN_SANDBOX = "/run/substrat/shared"
"""The directory that an agent's family shares, at the same path for each member; `$SUBSTRAT_SHARED` names it."""
SSH_AGENT_SOCKET = "ssh-agent.sock"
"""Beside the agent socket, for an agent that may use the person's ssh-agent."""
SSH_AGENT_IN_SANDBOX = f"{SOCKET_DIR_IN_SANDBOX}/{SSH_AGENT_SOCKET}"


SCRATCH = "scratch"
"""The name of a directory of an agent's own in `<state>/agents/<uuid>`."""

_LEAST_ROOM = 64 * 1024
"""Bytes; a pipe's size (pipe(7)), which programs write at most at once."""
MOST_RECORD = 64 * 1024 * 1024
"""Bytes of a file that the daemon writes for the next one. Lists of paths have less; a larger file isn't the daemon's, and
reading it could take all the memory there is."""
_REPORT_BYTES = 64 * 1024
"""Bytes of bubblewrap's reports and of a program's last complaints; a few lines of each count."""
_ID_BYTES = 64
"""Bytes of a note such as a turn's id, which has 36."""


def copy_of(database: str) -> str:
    """Return where a database's daily copy lies, which needn't be there."""
    return os.path.join(os.path.dirname(database), "backup", os.path.basename(database))


class _Path:
    """The path of something in one of an object's directories, as an attribute of the object.

    Args:
        name: its name there.
        directory: the attribute that has the directory.
    """

    def __init__(self, name: str, directory: str = "root") -> None:
        self._name = name
        self._directory = directory

    def __get__(self, owner: object, _: object) -> str:
        return os.path.join(getattr(owner, self._directory), self._name)


@dataclass(frozen=True, slots=True)
class Layout:
    """The directories of one daemon."""

    state: str
    runtime: str

    agents = _Path("agents", "state")
    """Where the agents' directories are."""
    trash = _Path("trash", "state")
    """Directories that are about to be deleted."""
    trees = _Path("trees", "state")
    """Where agents' private clones are, unless `clone.dir` says otherwise."""
    shared = _Path("shared", "state")
    """Where the directories that families share are."""

    def shared_by(self, family: str) -> str:
        """Return the directory that a family shares, given the id of its root.

        An agent can take its own rights to it away, so it lies in a directory that can be moved all the same.
        """
        return os.path.join(self.shared, family, "files")

    damaged = _Path("damaged", "state")
    """Files that couldn't be read and were set aside."""
    authorities = _Path("authorities.pem", "state")
    """The certificate authorities that agents trust, where a company has its own."""
    exec_dir = _Path("visits", "state")
    """Where the operator's commands in agents' sandboxes have their files, while they run."""
    exec_sockets = _Path("visits", "runtime")
    """Where the operator's commands in agents' sandboxes have their sockets, while they run."""

    def agent(self, agent_id: str) -> AgentDir:
        """Return an agent's directories."""
        return AgentDir(os.path.join(self.agents, agent_id), os.path.join(self.runtime, "agents", agent_id))

    def exec_session(self, agent_id: str, number: str) -> tuple[AgentDir, TurnDir]:
        """Return the directories of a command in an agent's sandbox: its generated files and sockets are its own."""
        root = os.path.join(self.exec_dir, number)
        own = replace(self.agent(agent_id), generated_dir=root, socket_dir=os.path.join(self.exec_sockets, number))
        return own, TurnDir(root)


@dataclass(frozen=True, slots=True)
class TurnDir:
    """A turn's directory."""

    root: str

    id = _Path("id")
    """The id of the turn that the directory is of: numbers are given again when records are lost, ids never are."""
    prompt = _Path("prompt")
    """The standard input of the agent program."""
    stdout = _Path("stdout")
    """Its standard output: stream-json lines."""
    stderr = _Path("stderr")
    """Its standard error."""
    status = _Path("status")
    """The reports of bubblewrap: the inner pid, the exit code."""
    lock = _Path("lock")
    """A file that the turn's sandbox holds a lock on until its last process has ended."""
    names = _Path("names")
    """The names that the turn's network has given addresses to."""
    network_mode = _Path("form")
    """The mode of the turn's `filtered` network."""
    own_chats = _Path("own-chats")
    """A file that says that the sandbox had the agent's own chats; without it, it had the user's whole folder."""

    def showed_all_chats(self) -> bool:
        """Say whether the turn was started by a version that showed a sandbox the user's whole folder of chats."""
        return os.path.lexists(self.prompt) and not os.path.lexists(self.own_chats)

    protected = _Path("guard")
    """The paths of the workspace that are protected in the turn."""

    def read_id(self) -> str | None:
        """Return the id of the turn that the directory was made for, None when that can't be told.

        An older version wrote none, and a launch may have been cut short before it was written.
        """
        with suppress(OSError):
            found = (nofollow.read_own(self.id, _ID_BYTES) or b"").decode("ascii", "replace")
            return found if is_uuid(found) else None
        return None

    def is_of(self, turn_id: str, *, unless_told: bool) -> bool:
        """Say whether the directory is a certain turn's.

        Args:
            turn_id: the turn.
            unless_told: the answer where there is no id.
        """
        found = self.read_id()
        return unless_told if found is None else found == turn_id

    def write_protected(self, data: bytes) -> None:
        """Write the record of protected paths, whole or not at all."""
        with open(f"{self.protected}.part", "wb") as file:
            file.write(data)
        os.replace(f"{self.protected}.part", self.protected)

    def read_protected(self) -> bytes | None:
        """Return the record of protected paths, None when none was written.

        Raises:
            OSError: there are no descriptors left.
        """
        return nofollow.read_own(self.protected, MOST_RECORD)

    def read_network_mode(self) -> NetworkMode | None:
        """Return the mode of the turn's `filtered` network; None: none was written."""
        with suppress(OSError):
            said = nofollow.read_own(self.network_mode, _ID_BYTES)
            return next((mode for mode in NetworkMode if mode.value.encode() == said), None)
        return None

    def take_lock(self) -> int:
        """Lock the turn for a sandbox that is about to be started; the caller closes the descriptor.

        Raises:
            BlockingIOError: a sandbox of the turn is there already.
        """
        try:
            descriptor = self._open_lock()
        except PermissionError:
            # An agent can take the rights away, through `/proc/1/fd` of its sandbox, but not the ownership.
            os.chmod(self.lock, 0o600)
            descriptor = self._open_lock()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _open_lock(self) -> int:
        return nofollow.open_file(self.lock, os.O_RDWR | os.O_CREAT)

    def is_held(self) -> bool:
        """Say whether a sandbox of the turn is there, also one that hasn't reported anything yet.

        Raises:
            OSError: there are no descriptors left.
        """
        try:
            os.close(self.take_lock())
        except BlockingIOError:
            return True
        except OSError as problem:  # there is no directory, or no file in the lock's place
            if descriptors.is_short(problem):
                raise
        return False

    def make(
        self,
        prompt: str,
        protected: bytes | None = None,
        mode: NetworkMode | None = None,
        *,
        own_chats: bool = False,
        turn: str | None = None,
    ) -> None:
        """Make the directory and its files; a directory left from a launch that was cut short is made anew.

        Args:
            prompt: the standard input of the agent program.
            protected: the record of protected paths, for `read_protected`.
            mode: the mode of its `filtered` network, if it has one.
            own_chats: whether its sandbox has the agent's own chats, for `showed_all_chats`.
            turn: the turn's id, for `read_id`.
        """
        shutil.rmtree(self.root, ignore_errors=True)
        os.makedirs(self.root, mode=0o700)
        if turn is not None:  # first of all: everything in the directory belongs to the turn that it names
            with open(self.id, "w", encoding="ascii") as note:
                note.write(turn)
        if own_chats:  # before the prompt, so that a directory which is cut short isn't taken for an older version's
            os.close(os.open(self.own_chats, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        with open(self.prompt, "w", encoding="utf-8", errors="replace") as file:
            file.write(prompt)
        if protected is not None:
            with open(self.protected, "wb") as record:
                record.write(protected)
        if mode is not None:
            with open(self.network_mode, "w", encoding="ascii") as note:
                note.write(mode.value)

    def read_prompt(self) -> bytes:
        """Return the prompt that `make` wrote."""
        prompt = nofollow.read_own(self.prompt, MOST_RECORD)
        if prompt is None:
            raise OSError(errno.ENOENT, "the prompt was taken away or replaced", self.prompt)
        return prompt

    def prompt_text(self) -> str:
        """Return the prompt as text; empty when its file is gone."""
        with suppress(OSError):
            return self.read_prompt().decode(errors="replace")
        return ""

    def read_status(self) -> bytes:
        """Return the reports of bubblewrap so far."""
        return nofollow.read_end(self.status, _REPORT_BYTES)

    def has_output(self) -> bool:
        """Say whether the program wrote anything to its standard output."""
        try:
            return os.path.getsize(self.stdout) > 0
        except FileNotFoundError:
            return False

    def is_full(self) -> bool:
        """Say whether there is no room for more output: less than a program writes at once, or no further file."""
        try:
            found = os.statvfs(self.root)
        except FileNotFoundError:
            return False
        return found.f_bavail * found.f_frsize < _LEAST_ROOM or (found.f_files > 0 and not found.f_favail)

    def printed_since(self, offset: int) -> float | None:
        """Return when the program last wrote, in seconds since the epoch, if that was after a byte of its standard output.

        Args:
            offset: the byte up to which its standard output is known.
        """
        with suppress(FileNotFoundError):
            output, errors = os.stat(self.stdout), os.stat(self.stderr)
            if output.st_size > offset or errors.st_mtime > output.st_mtime:
                return max(output.st_mtime, errors.st_mtime)
        return None

    @staticmethod
    def written_at(*paths: str) -> float | None:
        """Return when the last of some files was written, in seconds since the epoch; None: there is none of them."""
        times = []
        for path in paths:
            with suppress(OSError):
                times.append(os.stat(path, follow_symlinks=False).st_mtime)
        return max(times, default=None)

    def output_size(self) -> int:
        """Return how many bytes the program has written to standard output, error and the lock, which it can reach."""
        size = 0
        for path in (self.stdout, self.stderr, self.lock):
            with suppress(OSError):
                size += os.stat(path, follow_symlinks=False).st_size
        return size

    def read_errors(self) -> str:
        """Return the end of the program's standard error."""
        return nofollow.read_end(self.stderr, _REPORT_BYTES).decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class AgentDir:
    """An agent's directories.

    Args:
        root: `<state>/agents/<uuid>`.
        socket_dir: `<runtime>/agents/<uuid>`, the directory of its sockets; a command's own is `<runtime>/visits/<number>`.
        generated_dir: the directory of a command's own generated files; empty: `root`, whose files a running turn may be
            using.
    """

    root: str
    socket_dir: str
    generated_dir: str = ""

    @property
    def generated(self) -> str:
        """The directory of the generated files."""
        return self.generated_dir or self.root

    @property
    def scratch(self) -> str:
        """The workspace of an agent that has a directory of its own, by its physical path; it goes with the agent."""
        return os.path.join(os.path.realpath(self.root), SCRATCH)

    cursor = _Path("cursor", "generated")
    """A directory that is bound over `<workspace>/.cursor`."""
    mcp_json = _Path(CURSOR.places.mcp, "cursor")
    """The generated MCP configuration."""
    program = _Path("program", "generated")
    """The program's generated files, a directory that is bound as `program.GENERATED`."""

    def home(self, name: str) -> str:
        """Return the agent's own directory for one of its program's in the home, such as `dot-cursor` for `.cursor`."""
        return os.path.join(self.root, f"dot-{name.removeprefix('.')}")

    chats = _Path("chats")
    """A directory that is bound over `~/.cursor/chats`, so that the agent can't put a link in its place."""

    def chat(self, workspace: str, session: str) -> str:
        """Return the directory of a session that is the agent's own until it is moved to the user's."""
        return os.path.join(self.chats, chats_folder(workspace), session)

    session = _Path("session")
    """A record of the user's chat that is the agent's: `chat_places.Record`."""
    cache = _Path("cache")
    """The agent's own `~/.cache`."""
    setup = _Path("setup")
    """The files that the set-up of its clone was given: the user's ignored ones, and a script."""
    setup_log = _Path("setup.log")
    """The output of the set-up of its clone."""
    etc = _Path("etc", "generated")
    """Generated files for `/etc`."""
    gitconfig = _Path("gitconfig", "generated")
    """The generated `~/.gitconfig`."""
    git = _Path("git", "generated")
    """Generated git files that keep our files in `.cursor` out of the agent's commits; its `~/.config/git`."""
    own_mcp_json = _Path("own-mcp.json", "generated")
    """The workspace's own `.cursor/mcp.json`, as git must see it."""
    no_alternates = _Path("no-alternates", "generated")
    """An empty file, shown in the place of lists of alternates where an agent has a clone."""
    socket = _Path("agent.sock", "socket_dir")
    """The agent socket."""
    network_socket = _Path("network.sock", "socket_dir")
    """Where the proxy form of a `filtered` network is served: a turn's, or that of a command beside it."""

    @property
    def network_socket_in_sandbox(self) -> str:
        """The same as seen from inside."""
        return f"{SOCKET_DIR_IN_SANDBOX}/{os.path.basename(self.network_socket)}"

    def turn(self, number: int) -> TurnDir:
        """Return the directory of a turn."""
        return TurnDir(os.path.join(self.root, "turns", str(number)))

    def remove_sockets(self) -> None:
        """Delete the sockets and their directory."""
        shutil.rmtree(self.socket_dir, ignore_errors=True)
