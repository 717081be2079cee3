"""Makes a temporary directory with a daemon of the soak's own, finds their processes, and removes everything."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress

import trio
from harness import BIN, STANDIN

from soaking import workspaces
from substrat.core.agents import cgroup_limits
from substrat.daemon.kernel import file_server

ENTER = 'echo 0 >"$0"/cgroup.procs && exec "$@"'
LEAKS = os.path.join(os.path.dirname(__file__), "leaks.py")
REMOVAL_S = 15.0
"""How long the kernel may take to end killed processes: a network namespace alone takes it tenths of a second."""


class Place:
    """A directory with everything in it that the soak makes; `remove` takes it away.

    Args:
        leak: kinds of leaks that are put into the daemon (`leaks`), separated by commas; none if empty.
    """

    def __init__(self, leak: str = "") -> None:
        self.root = os.path.realpath(tempfile.mkdtemp(prefix="substrat-soak-"))
        self.state, self.run, self.temporary = (f"{self.root}/{name}" for name in ("state", "run", "tmp"))
        for path in (f"{self.root}/home", self.temporary):
            os.mkdir(path, 0o700)
        self.socket = f"{self.run}/daemon.sock"
        self.process: subprocess.Popen[bytes] | None = None
        self.service = _divided_cgroup()
        self._leak = leak
        self.workspaces = workspaces.make(self.root)

    @property
    def pid(self) -> int:
        """The daemon's process."""
        assert self.process is not None
        return self.process.pid

    def environment(self) -> dict[str, str]:
        """Return the environment of the daemon and of its clients."""
        return {
            "PATH": os.environ["PATH"], "HOME": f"{self.root}/home", "LANG": "C.UTF-8", "TMPDIR": self.temporary,
            "SUBSTRAT_SOCKET": self.socket,
        }  # fmt: skip

    def _command(self) -> list[str]:
        program = [f"{BIN}/substratd"] if not self._leak else [sys.executable, LEAKS, self._leak]
        enter = ["/bin/sh", "-c", ENTER, f"{self.service}/daemon"] if self.service is not None else []
        return [*enter, *program, "--state-dir", self.state, "--runtime-dir", self.run]

    async def start(self, patience: float) -> None:
        """Start the daemon and wait until it says that it is ready.

        Raises:
            TooSlowError: it didn't within so many seconds.
        """
        notify = f"{self.root}/notify"
        environ = self.environment() | {"SUBSTRAT_AGENT_BINARY": STANDIN, "NOTIFY_SOCKET": notify}
        with trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_DGRAM) as ready:
            await ready.bind(notify)
            try:
                with open(f"{self.root}/log", "ab") as log:
                    # A session of its own, so that Ctrl-C is for the soak alone, and none of the soak's pipes, whose
                    # readers would wait for the daemon where the soak itself was killed.
                    self.process = subprocess.Popen(  # noqa: ASYNC220 - it returns at once
                        self._command(), env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                        start_new_session=True,
                    )  # fmt: skip
                with trio.fail_after(patience):
                    while b"READY=1" not in await ready.recv(4096):
                        pass
            finally:
                os.unlink(notify)

    async def gone(self) -> int:
        """Wait until the daemon has ended; returns its exit status."""
        assert self.process is not None
        with suppress(ProcessLookupError):
            pidfd = os.pidfd_open(self.process.pid)
            try:
                await trio.lowlevel.wait_readable(pidfd)
            finally:
                os.close(pidfd)
        return self.process.wait()

    def sandboxed(self) -> dict[int, str]:
        """Return the processes of turns' sandboxes, each with the id of its agent where that is known."""
        found: dict[int, str] = {}
        # Not kept for later: the kernel reuses a namespace's number as soon as it is free.
        namespaces: set[str] = set()
        mark = f"{self.state}/agents/"
        pids = _pids()
        for pid in set(pids) - self._known():
            for path in _links(pid):
                if path.startswith(mark):
                    found[pid] = path[len(mark) :].partition("/")[0]
            if pid in found:
                with suppress(OSError):
                    namespaces.add(os.readlink(f"/proc/{pid}/ns/pid"))
        namespaces.discard(os.readlink("/proc/self/ns/pid"))
        for pid in pids:
            with suppress(OSError):
                if os.readlink(f"/proc/{pid}/ns/pid") in namespaces and not _is_zombie(pid):
                    found.setdefault(pid, "")
        return found

    def processes(self) -> dict[int, str]:
        """Return all processes but the daemon's and this one that have anything to do with the directory, with a name."""
        found = {}
        sandboxed = self.sandboxed()
        for pid in set(_pids()) - self._known():
            with suppress(OSError):
                parts = b"".join(_content(pid, name) for name in ("cmdline", "environ"))
                if _content(pid, "comm").decode("utf-8", "replace").strip() == file_server.NAME:
                    continue
                ours = pid in sandboxed or os.fsencode(self.root) in parts or any(self.root in path for path in _links(pid))
                if ours and not _is_zombie(pid):
                    found[pid] = _content(pid, "comm").decode("utf-8", "replace").strip()
        return found

    def prompt_of(self, agent: str, turn: int) -> str:
        """Return a turn's prompt as it was launched with, and the items that went into it.

        A turn that was stopped before its launch has no prompt yet, and one that goes on repeats another's.
        """
        found = ""
        with suppress(OSError), open(f"{self.state}/agents/{agent}/turns/{turn}/prompt", encoding="utf-8") as file:
            found = file.read()
        where = (
            "SELECT items.text FROM items JOIN turns ON items.turn = turns.id WHERE turns.agent = ? AND turns.number = ?"
        )
        return "\n".join([found, *(text for (text,) in self.query(where, agent, turn))])

    def is_at_rest(self) -> bool:
        """Say whether no agent has a turn now, or a reminder that will begin one; of one moment, as the database is."""
        busy = (
            "SELECT (SELECT count(*) FROM agents WHERE phase NOT IN ('idle', 'ended')) + (SELECT count(*) FROM reminders)"
        )
        return self.query(busy) == [(0,)]

    def comes_with_a_turn(self, token: str) -> bool:
        """Say whether the item that holds a token waits for a turn that it doesn't start, as another family's message."""
        waiting = "SELECT count(*) FROM items WHERE text LIKE ? AND turn IS NULL AND NOT starts_turn"
        return self.query(waiting, f"%{token}%") != [(0,)]

    def whereabouts(self, token: str) -> str:
        """Return the state of the item that holds a token, for example `its message went into turn 3 (outcome …)`."""
        rows = self.query(
            "SELECT items.kind, items.turn, turns.number, turns.outcome, turns.stop FROM items LEFT JOIN turns "
            "ON items.turn = turns.id WHERE items.text LIKE ?", f"%{token}%",
        )  # fmt: skip
        return "; ".join(
            f"its {kind} went into turn {number} (outcome {outcome}, stop {stop})"
            if number
            else f"its {kind}: {turn or 'waits'}"
            for kind, turn, number, outcome, stop in rows
        )

    def query(self, statement: str, *values: object) -> list[tuple]:
        """Ask the daemon's database, beside the daemon."""
        with closing(sqlite3.connect(f"file:{self.state}/substrat.db?mode=ro", uri=True)) as database:
            return database.execute(statement, values).fetchall()

    def _known(self) -> set[int]:
        return {os.getpid(), self.process.pid if self.process is not None else 0}

    def remove(self) -> None:
        """End every process and remove every file, mount and cgroup, also after a failure."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        deadline = time.monotonic() + REMOVAL_S
        while (left := self.processes()) and time.monotonic() < deadline:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            mounted = [line.split()[4] for line in file]
        for path in reversed(mounted):
            if path.startswith(f"{self.root}/"):
                subprocess.run(["umount", "-l", path], check=False)
        self._remove_cgroup(deadline)
        shutil.rmtree(self.root, ignore_errors=True)

    def _remove_cgroup(self, deadline: float) -> None:
        if self.service is None:
            return
        for top, _, _ in os.walk(self.service, topdown=False):
            while time.monotonic() < deadline:
                try:
                    os.rmdir(top)
                except OSError:
                    time.sleep(0.05)  # a process that was killed leaves its cgroup when the kernel is done with it
                else:
                    break


def _divided_cgroup() -> str | None:
    """Make a service's cgroup, as systemd does for the daemon, where this user may; None where not."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        found = cgroup_limits.mount_point(file.read())
    if found is None:
        return None
    service = f"{found[0]}/substrat-soak-{os.getpid()}"
    try:
        os.makedirs(f"{service}/daemon")
    except OSError:
        return None
    return service


def _pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _links(pid: int) -> list[str]:
    found = []
    with suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                found.append(os.readlink(f"/proc/{pid}/fd/{number}"))
    return found


def _content(pid: int, name: str) -> bytes:
    with suppress(OSError), open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()
    return b""


def _is_zombie(pid: int) -> bool:
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[0] in "ZX"
