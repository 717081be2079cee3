"""Finds turns and agents that have files and no records, and kills their processes.

Records are lost with commits that SQLite's log has lost. An example of the
advice: `substratctl spawn anna -w /home/u/p --adopt 0f…` goes on with the chat of such an agent.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from sandbox.bwrap import LOCK_FD
from substrat.core.programs.ndjson import Splitter
from substrat.core.programs.table import decode, session_of
from substrat.daemon.kernel import nofollow, sandbox_process
from substrat.daemon.state.archive import SUFFIX, ArchiveDamaged, Archives
from substrat.daemon.state.own_files import is_kind

if TYPE_CHECKING:
    from collections.abc import Collection

    from substrat.core.agents.records import Turn
    from substrat.daemon.state.layout import AgentDir, Layout, TurnDir

_FIRST_LINES = 64 * 1024
"""Bytes of a file's beginning that are searched: the session's id is in a turn's first line."""
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")
_DYING_SECONDS, _LOOK_AGAIN = 2.0, 0.005
"""The kernel ends a killed sandbox's processes within milliseconds; one that takes longer isn't waited for."""


class FoundAgent(NamedTuple):
    """An agent that has files but no records, as far as its files tell.

    Args:
        id: its id.
        name: its name.
        workspace: where it worked.
        session: its chat.
    """

    id: str
    name: str | None
    workspace: str | None
    session: str | None

    @property
    def command(self) -> str | None:
        """The command that goes on with its chat; None when its files don't tell which chat that is."""
        if self.session is None:
            return None
        words = ["substratctl", "spawn", *([self.name] if self.name else []), "-w", self.workspace or "DIR"]
        return shlex.join([*words, "--adopt", self.session])


class LostTurn(NamedTuple):
    """A turn that has files and no record.

    Args:
        number: its number, which another turn of the agent may have by now.
        files: its directory.
    """

    number: int
    files: TurnDir


def turns_without_records(agent_dir: AgentDir, newest: Turn | None) -> list[LostTurn]:
    """Find an agent's turns that are newer than its newest recorded one, or are in its place.

    A turn is recorded before its directory is made, so these were recorded once. Older ones aren't looked at: this is done
    for every agent at every start.

    Args:
        agent_dir: the agent's directories.
        newest: its newest recorded turn, if it has one.
    """
    last = newest.number if newest is not None else 0
    found = [LostTurn(number, agent_dir.turn(number)) for number in _turn_numbers(agent_dir) if number > last]
    if newest is not None and not (files := agent_dir.turn(last)).is_of(newest.id, unless_told=True):
        found.insert(0, LostTurn(last, files))
    return found


def describe_lost(lost: LostTurn, target: str, *, was_running: bool) -> str:
    """Return a sentence about a turn without a record, with a remedy.

    Args:
        lost: the turn.
        target: where its files are moved to.
        was_running: whether it was killed just now.
    """
    killed = "; it was still running and was killed" if was_running else ""
    return (
        f"there are files of a turn {lost.number} that isn't in the records, because the last changes to these were lost"
        f"{killed}; look in the workspace for what it has done, and send its prompt again if that is still wanted; the "
        f"prompt and the output are in {target}"
    )


def kill_left(files: TurnDir) -> bool:
    """Kill the processes of a turn's sandbox, and wait for their end, for a moment at most.

    Returns:
        Whether anything ran.

    Raises:
        OSError: there are no descriptors left.
    """
    if not files.is_held():
        return False
    started = sandbox_process.find_unrecorded(files.read_status(), files.stdout)
    if started is not None:
        sandbox_process.kill_recorded(started)  # one that has been stopped too, or has made no inner process yet
    sandbox_process.kill_holders(files.lock, LOCK_FD)
    until = time.monotonic() + _DYING_SECONDS
    while files.is_held() and time.monotonic() < until:
        time.sleep(_LOOK_AGAIN)
    return True


def kill_all_left(agent_dir: AgentDir) -> bool:
    """Kill the processes of an agent without records; return whether it had any."""
    killed = [number for number in _turn_numbers(agent_dir) if kill_left(agent_dir.turn(number))]
    return bool(killed)


def _turn_numbers(agent_dir: AgentDir) -> list[int]:
    try:
        names = os.listdir(os.path.dirname(agent_dir.turn(1).root))
    except OSError:
        return []
    return sorted(int(name) for name in names if _NUMBER.fullmatch(name))


def agents_without_records(layout: Layout, known: Collection[str] = ()) -> list[FoundAgent]:
    """Find out from their files which agents there were whose records are gone.

    Args:
        layout: the daemon's directories.
        known: the ids of agents that need none, whose directories aren't opened.
    """
    try:
        names = sorted(set(os.listdir(layout.agents)).difference(known))
    except OSError:
        return []
    return [_identify(name, layout.agent(name)) for name in names if is_kind(layout.agent(name).root, stat.S_ISDIR)]


def has_agents(layout: Layout) -> bool:
    """Say whether there are directories of agents, with or without records."""
    try:
        with os.scandir(layout.agents) as entries:
            return any(entry.is_dir(follow_symlinks=False) for entry in entries)
    except OSError:
        return False


def _identify(agent_id: str, agent_dir: AgentDir) -> FoundAgent:
    name = re.match(r"127\.0\.0\.1 localhost (\S+)", _beginning(os.path.join(agent_dir.etc, "hosts")))
    where = re.search(r'\[includeIf "gitdir:(.*)/\.git"\]', _beginning(agent_dir.gitconfig))
    workspace = where[1].replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\") if where else None
    return FoundAgent(agent_id, name[1] if name else None, workspace, _session(agent_dir))


def _session(agent_dir: AgentDir) -> str | None:
    """Return the chat that the newest turn which tells one was in."""
    for number in reversed(_turn_numbers(agent_dir)):
        stdout = agent_dir.turn(number).stdout
        data = _beginning(stdout).encode("utf-8", "surrogateescape")
        if not data:
            with suppress(OSError, ArchiveDamaged):
                data = Archives().read(stdout + SUFFIX, 0, _FIRST_LINES)
        for line in Splitter().feed(data):
            if (session := session_of(decode(line))) is not None:
                return session
    return None


def _beginning(path: str) -> str:
    """Return a file's first bytes as text; nothing when it isn't there."""
    try:
        with open(path, "rb", opener=nofollow.open_file) as file:
            return file.read(_FIRST_LINES).decode("utf-8", "surrogateescape")
    except OSError:
        return ""
