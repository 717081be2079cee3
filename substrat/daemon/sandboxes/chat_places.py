"""Where an agent's chat is: in the agent's own directory, or among the user's chats; no link is followed.

A chat of the user's is an agent's when it was adopted or moved: when the session is `stored`, or the record names exactly
that directory. An agent's own word about its session counts for nothing: another agent's session stays that agent's.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import chain, islice
from typing import TYPE_CHECKING

import msgspec

from substrat.core.agents.records import Session
from substrat.core.programs.table import CURSOR, chats_folder, program_of
from substrat.daemon.kernel import nofollow
from substrat.daemon.workspaces.checking import identify
from substrat.errors import Refused, SessionMissing, SubstratError, WorkspaceUnusable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from substrat.core.agents.records import Agent
    from substrat.daemon.state.layout import AgentDir
    from substrat.daemon.workspaces.user import User

_MOST_ENTRIES = 10_000
"""Of all directories of a level that are looked at: an agent writes there, and a program has a session a turn at most."""
_RECORD_BYTES = 4096
"""A record has some 100 bytes; a longer file isn't one."""


class Record(msgspec.Struct, frozen=True):
    """An agent's `session` file, for example `{"session":"0f…","device":65024,"inode":1234}`.

    Args:
        session: the session's id.
        device: the file system of its directory among the user's chats; 0: it couldn't be moved there yet.
        inode: the directory's number on that file system.
    """

    session: str
    device: int = 0
    inode: int = 0


def chats_of(user: User, workspace: str) -> str:
    """Return the physical path of a workspace's folder in the user's own `~/.cursor/chats`."""
    return os.path.join(os.path.realpath(user.place(CURSOR.places.chats)), chats_folder(workspace))


def session_is_stored(user: User, workspace: str, session: str) -> bool:
    """Say whether a session's chat is among the user's own, without following a link that an agent may have left there."""
    return is_chat(os.path.join(chats_of(user, workspace), session))


def is_chat(path: str) -> bool:
    """Say whether a directory is a chat: it has a file `CURSOR.places.chat_file`. No link is followed."""
    try:
        with nofollow.opened(path) as directory:
            return stat.S_ISREG(os.stat(CURSOR.places.chat_file, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False


def has_session_file(directory: str, pattern: str) -> bool:
    """Say whether a file of an agent's own directory holds a session. No link is followed.

    Args:
        directory: the agent's own directory for its program's.
        pattern: where the file is there, such as `projects/*/ID.jsonl`.
    """
    *folders, name = pattern.split("/")
    found = [directory]
    for folder in folders:
        found = [entry.path for entry in _entries(found, folder) if entry.is_dir(follow_symlinks=False)]
    return any(entry.is_file(follow_symlinks=False) for entry in _entries(found, name))


def _entries(directories: list[str], pattern: str) -> list[os.DirEntry[str]]:
    looked_at = islice(chain.from_iterable(map(_listed, directories)), _MOST_ENTRIES)
    return [entry for entry in looked_at if fnmatchcase(entry.name, pattern)]


def _listed(directory: str) -> Iterator[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(directory) as entries:
        yield from entries


def make_chats_folder(user: User, workspace: str) -> str:
    """Make the workspace's folder in the user's own `~/.cursor/chats` and return it.

    Raises:
        WorkspaceUnusable: a part of the path isn't a directory or can't be made.
    """
    chats = user.place(CURSOR.places.chats)
    path = os.path.join(chats, chats_folder(workspace))
    for place in (os.path.dirname(chats), chats, path):
        try:
            os.makedirs(place, 0o755)
        except FileExistsError:
            # The user may have made it a link; no agent can, because none sees a directory above its own chats.
            if not os.path.isdir(place):
                raise WorkspaceUnusable(f"{place} isn't a directory: {CURSOR.name} keeps its chats there") from None
        except OSError as problem:
            raise WorkspaceUnusable(f"{place} can't be made: {problem.strerror}") from None
    return path


def make_ready(user: User, agent_dir: AgentDir, agent: Agent) -> str | None:
    """Make the folder in which an agent's turn leaves its chat, and return its chat there, as `shared_chat` does.

    Raises:
        WorkspaceUnusable: the folder can't be made.
    """
    if program_of(agent).session_file is None:
        make_chats_folder(user, agent.workspace)
    return shared_chat(user, agent_dir, agent)


def shared_chat(user: User, agent_dir: AgentDir, agent: Agent) -> str | None:
    """Return the directory of an agent's session among the user's chats, None if there is none that is the agent's.

    Args:
        user: whose chats they are.
        agent_dir: the agent's directories.
        agent: the agent.
    """
    if agent.session is None or program_of(agent).session_file is not None:
        return None
    path = os.path.join(chats_of(user, agent.workspace), agent.session.id)
    found = identify(path)
    if found is None:
        return None
    record = read_record(agent_dir)
    is_recorded = record == Record(agent.session.id, found.device, found.inode)
    return path if agent.session.stored or is_recorded or _showed_all_chats(agent_dir, agent) else None


def _is_anothers(user: User, agent_dir: AgentDir, agent: Agent) -> bool:
    """Say whether an agent's session is among the user's chats without being the agent's."""
    if agent.session is None or shared_chat(user, agent_dir, agent) is not None:
        return False
    return os.path.lexists(os.path.join(chats_of(user, agent.workspace), agent.session.id))


def _is_there(user: User, agent_dir: AgentDir, agent: Agent) -> bool:
    """Say whether the chat that an agent's next turn continues is where it was seen last; true if none was seen yet."""
    if agent.session is None:
        return True
    shared = shared_chat(user, agent_dir, agent)
    own = agent_dir.chat(agent.workspace, agent.session.id)
    if (shared is not None and is_chat(shared)) or is_chat(own):
        return True
    record = read_record(agent_dir)
    was_kept = record is not None and record.session == agent.session.id and not record.inode
    return not agent.session.stored and not was_kept


def is_stored(user: User, agent_dir: AgentDir, agent: Agent) -> bool:
    """Say whether an agent's session is among the user's chats, and the agent's, or where its program keeps it."""
    if program_of(agent).session_file is not None:
        return _is_kept(agent_dir, agent)
    chat = shared_chat(user, agent_dir, agent)
    return chat is not None and is_chat(chat)


def check_resumable(user: User, agent_dir: AgentDir, agent: Agent) -> None:
    """Find out whether an agent's session can be continued: cursor-agent would silently start an empty one.

    Raises:
        SessionMissing: a chat that was there is gone.
        Refused: the chat is one of the user's and not the agent's.
    """
    if agent.session is None:
        return
    session, program = agent.session.id, program_of(agent)
    if program.session_file is not None:
        if agent.session.stored and not _is_kept(agent_dir, agent):
            raise SessionMissing(
                f"the session {session} of {agent.name} is gone from its own ~/{program.places.home}: spawn another agent"
            )
        return
    if _is_anothers(user, agent_dir, agent):
        raise Refused(
            f"the session {session} is among your chats and isn't {agent.name}'s: remove the agent, and let another one "
            f"adopt it"
        )
    if not _is_there(user, agent_dir, agent):
        folder = os.path.join(chats_of(user, agent.workspace), session)
        raise SessionMissing(
            f"the session {session} of {agent.name} is gone: {folder}/{CURSOR.places.chat_file} doesn't exist; "
            f"put it back, or spawn another agent"
        )


def obstacles(user: User, agent_dir: AgentDir, agent: Agent, sessions: frozenset[str]) -> dict[str, str]:
    """Say of each session that can't be continued as an agent's why that is so."""
    found = {}
    for session in sessions:
        try:
            check_resumable(user, agent_dir, replace(agent, session=Session(session)))
        except SubstratError as problem:
            found[session] = problem.message
    return found


def _is_kept(agent_dir: AgentDir, agent: Agent) -> bool:
    """Say whether the file is there in which an agent's program keeps its session, of a program with such files."""
    program = program_of(agent)
    if program.session_file is None or agent.session is None:
        return False
    return has_session_file(agent_dir.home(program.places.home), program.session_file(agent.session.id))


def _showed_all_chats(agent_dir: AgentDir, agent: Agent) -> bool:
    """Say whether the agent's newest turn that has files was started by a version that showed it all chats."""
    number = agent.turn.number if agent.turn is not None else 0
    turns = (agent_dir.turn(number), agent_dir.turn(number - 1))
    newest = next((turn for turn in turns if os.path.lexists(turn.prompt)), None)
    return newest is not None and newest.showed_all_chats()


def read_record(agent_dir: AgentDir) -> Record | None:
    """Return an agent's record, None where there is none that can be read."""
    data = nofollow.read_small(agent_dir.session, _RECORD_BYTES)
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(data, type=Record) if data else None
    return None


def write_record(agent_dir: AgentDir, record: Record) -> None:
    """Replace an agent's record in one step."""
    staging = f"{agent_dir.session}.new"
    with open(staging, "wb") as file:
        file.write(msgspec.json.encode(record))
        file.flush()
        os.fsync(file.fileno())
    os.replace(staging, agent_dir.session)
