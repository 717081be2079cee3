"""Where agents' chats are, and the one move that each makes.

A chat begins in the agent's own directory, `<state>/agents/<uuid>/chats/<md5>/<session>`. At the end of the first turn it
is moved to the user's `~/.cursor/chats/<md5>/<session>`, where the user's own cursor-agent finds it, and from then on only
that one directory of the user's is shown to the agent. So no agent sees or changes another's chat.

The chat is an agent's work, so `inside.chatcopier` copies it in a sandbox that sees the two directories. The daemon only
gives the finished copy its name. Each step can be cut short by a kill and is done again at the turn's next end:

1. the chat is copied into `.substrat-<agent>-…` in the user's folder (the copy of an earlier attempt is removed);
2. the agent's `session` file notes which directory that is (`chat_places.Record`);
3. it is renamed to the session's id, never over something that is there;
4. the agent's own copy goes to the trash.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import attrs
import structlog
import trio

from sandbox.spec import Bind, Mount
from substrat.core.programs.table import CURSOR
from substrat.daemon.sandboxes import chat_places, oneshot
from substrat.daemon.sandboxes.inside import inside
from substrat.daemon.state import damaged_files
from substrat.daemon.workspaces import checking
from substrat.errors import Refused, SandboxFailed, SubstratError, WorkspaceUnusable
from substrat.inside import chatcopier
from substrat.names import is_uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from substrat.core.agents.records import Agent
    from substrat.daemon.agents.state import State
    from substrat.daemon.sandboxes.sandboxes import Sandboxes
    from substrat.daemon.state.layout import AgentDir
    from substrat.daemon.workspaces.user import User

T = TypeVar("T")
log = structlog.get_logger("substrat.sessions")

_FROM, _TO = "/run/from", "/run/to"
_CLEANING_SECONDS = 20
"""How long the end of a move waits until its copy is removed."""


class NotMoved(Exception):
    """A chat stays in its agent's own directory; the message says why, in one line."""


def make_copy_directory(folder: str, owner: str) -> str:
    """Make an empty directory in a folder of chats that a chat is copied into; returns its path.

    Copies that an earlier attempt of the same owner has left are removed first.

    Args:
        folder: the user's folder of chats; no agent can write to it.
        owner: the agent's id.

    Raises:
        OSError: it can't be made.
    """
    remove_copies(folder, owner)
    path = os.path.join(folder, f".substrat-{owner}-{secrets.token_hex(4)}")
    os.mkdir(path, 0o755)
    return path


def remove_copies(folder: str, owner: str) -> None:
    """Remove the copies of an agent's chats that didn't come to their names; one that is still written stays."""
    for name in os.listdir(folder):
        if name.startswith(f".substrat-{owner}-"):
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def publish_chat(copied: str, session: str) -> None:
    """Give a copied chat its name in the user's folder, in one step.

    Args:
        copied: a directory from `make_copy_directory`.
        session: the name.

    Raises:
        FileExistsError: a session of that name is there already.
        OSError: it can't be renamed.
    """
    target = os.path.join(os.path.dirname(copied), session)
    # rename(2) takes the place of nothing but an empty directory, which no session is; the look before keeps even that.
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
    os.rename(copied, target)
    directory = os.open(os.path.dirname(copied), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _begin_copy(user: User, directory: str, owner: str, session: str) -> str:
    """Make an empty directory among a user's chats that an agent's chat is copied into; returns its path.

    Raises:
        NotMoved: a chat of that name is there.
        OSError, WorkspaceUnusable: it can't be made.
    """
    chat_places.make_chats_folder(user, directory)
    folder = chat_places.chats_of(user, directory)
    if os.path.lexists(os.path.join(folder, session)):
        raise NotMoved(f"there is one of that name in {folder} already, which isn't this agent's")
    return make_copy_directory(folder, owner)


def _find_chats(user: User, agent_dir: AgentDir, agent: Agent, own: str) -> tuple[bool, bool]:
    """Say whether there is a chat in an agent's own directory, and whether its chat is among the user's.

    A chat that an older version's turn has made among the user's is noted, and one that cursor-agent has emptied is
    removed: it deletes a chat without a whole turn, and can't delete the directory because that is a mount.
    """
    shared = chat_places.shared_chat(user, agent_dir, agent)
    if shared is not None and agent.session is not None and not agent.session.stored:
        with suppress(OSError):
            os.rmdir(shared)  # an empty one only
        found = checking.identify(shared)
        record = chat_places.Record(agent.session.id, *found) if found is not None else None
        if record is not None and chat_places.read_record(agent_dir) != record:
            chat_places.write_record(agent_dir, record)
    return chat_places.is_chat(own), shared is not None


def _follow(user: User, agent_dir: AgentDir, agent: Agent, workspace: str) -> None:
    """Move the chat of an agent that has one to where its program looks for it in another workspace."""
    assert agent.session is not None
    session = agent.session.id
    own = agent_dir.chat(agent.workspace, session)
    try:
        if os.path.lexists(own):
            target = agent_dir.chat(workspace, session)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.rename(own, target)
        if (shared := chat_places.shared_chat(user, agent_dir, agent)) is not None:
            os.rename(shared, os.path.join(chat_places.make_chats_folder(user, workspace), session))
    except OSError as problem:
        raise Refused(f"the chat {problem.filename} can't be moved to {problem.filename2}: {problem.strerror}") from None


@attrs.define(eq=False)
class Sessions:
    """Moves the chats of one daemon's agents."""

    _state: State
    _sandboxes: Sandboxes

    def own_chats(self, directory: str) -> dict[str, str]:
        """Return the chats of a workspace that are in their agents' own directories, by session.

        Args:
            directory: the workspace's physical path.
        """
        found = {}
        for agent in self._state.registry.agents:
            if agent.workspace == directory and agent.session is not None and not agent.session.stored:
                own = self._state.layout.agent(agent.id).chat(directory, agent.session.id)
                if chat_places.is_chat(own):
                    found[agent.session.id] = own
        return found

    async def is_stored(self, agent: Agent) -> bool:
        """Say whether an agent's session is on disk for good; where nobody can say, the next turn's end looks again."""
        try:
            return await self._run(chat_places.is_stored, self._sandboxes.user, self._place(agent), agent)
        except SubstratError as problem:
            log.warning("a session isn't looked for", agent=agent.name, reason=problem.message)
            return False

    async def check_resumable(self, agent: Agent) -> None:
        """Find out whether an agent's session can be continued (`chat_places.check_resumable`)."""
        await self._run(chat_places.check_resumable, self._sandboxes.user, self._place(agent), agent)

    async def obstacles(self, agent_id: str, named: frozenset[str]) -> dict[str, str]:
        """Say of each session that an agent has named, and whose chat can't be its own, why that is so.

        Where nobody can say, none is refused now: the agent's next turn is refused then.

        Args:
            agent_id: the agent's id.
            named: what it has named, perhaps no id of a session.
        """
        agent = self._state.registry.get(agent_id)
        known = agent.session.id if agent is not None and agent.session is not None else None
        fresh = frozenset(session for session in named if session != known and is_uuid(session))
        if agent is None or not fresh:
            return {}
        try:
            return await self._run(chat_places.obstacles, self._sandboxes.user, self._place(agent), agent, fresh)
        except SubstratError as problem:
            log.warning("a session isn't looked for", agent=agent.name, reason=problem.message)
            return {}

    def _place(self, agent: Agent) -> AgentDir:
        return self._state.layout.agent(agent.id)

    async def _run(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a function that touches the user's chats in a file worker."""
        return await self._state.files.run(self._sandboxes.user.place(CURSOR.places.chats), function, *arguments)

    async def settle(self, agent: Agent) -> str | None:
        """Move an agent's chat to the user's chats, if it is there to be moved; no turn of the agent may be running.

        Returns:
            Why it stays in the agent's own directory, None when there is nothing to tell.
        """
        if agent.session is None:
            return None
        agent_dir, session = self._place(agent), agent.session.id
        try:
            await self._settle(agent, agent_dir, session)
        except NotMoved as problem:
            reason = str(problem)
        except SubstratError as problem:
            reason = problem.message
        except OSError as problem:
            reason = problem.strerror or str(problem)
        else:
            return None
        with suppress(OSError):  # on a full disk: then the chat is looked for where it is, without this note
            await trio.to_thread.run_sync(chat_places.write_record, agent_dir, chat_places.Record(session))
        return f"the session {session} stays in the agent's own directory and isn't among your chats: {reason}"

    async def follow(self, agent: Agent, workspace: str) -> None:
        """Move an agent's chat to where its program looks for it once the agent has another workspace.

        Raises:
            WorkspaceUnusable: the user's directory for it can't be made, or doesn't answer.
            Refused: it can't be moved.
        """
        if agent.session is not None:
            await self._run(_follow, self._sandboxes.user, self._place(agent), agent, workspace)

    async def _settle(self, agent: Agent, agent_dir: AgentDir, session: str) -> None:
        own = agent_dir.chat(agent.workspace, session)
        has_own, is_shared = await self._run(_find_chats, self._sandboxes.user, agent_dir, agent, own)
        if has_own and is_shared:
            self._state.trash.discard(own)  # the move was cut short before its last step
        elif has_own:
            await self._move(agent.id, agent_dir, own, agent.workspace, session)

    async def _move(self, owner: str, agent_dir: AgentDir, own: str, directory: str, session: str) -> None:
        """Move a chat.

        Raises:
            NotMoved: it can't be, or mustn't.
            OSError, SubstratError: it can't be.
        """
        points = self._state.registry.points
        points.before("chat copied")
        copied = await self._run(_begin_copy, self._sandboxes.user, directory, owner, session)
        try:
            await self._copy(own, copied)
            points.after("chat copied")
            found = await self._run(checking.identify, copied)
            if found is None:
                raise NotMoved(f"its copy in {os.path.dirname(copied)} was taken away")
            await trio.to_thread.run_sync(chat_places.write_record, agent_dir, chat_places.Record(session, *found))
            points.before("chat moved")
            await self._run(publish_chat, copied, session)
            points.after("chat moved")
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + _CLEANING_SECONDS):
                await self._run(remove_copies, os.path.dirname(copied), owner)
        self._state.trash.discard(own)

    async def _copy(self, source: str, target: str) -> None:
        command, shown = inside(chatcopier, _FROM, _TO)
        mounts: tuple[Mount, ...] = (
            *shown,
            Bind(source, _FROM, held=True),
            Bind(target, _TO, writable=True, held=True),
        )
        try:
            preparer = self._sandboxes.preparer
            bubblewrap, system = await preparer.machine.find_bubblewrap(), await preparer.unreadable.system_mounts()
            done = await oneshot.run(self._state.files, bubblewrap, command, mounts, "/", system=system)
        except WorkspaceUnusable as problem:
            raise NotMoved(problem.message) from None
        if done.status:
            said = done.errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
            why = said or f"copying it ended with exit status {done.status}"
            raise NotMoved(why if done.status == chatcopier.REFUSED else f"it can't be copied: {why}")

    async def rescue(self, directory: str, session: str) -> None:
        """Move a chat to the user's chats whose agent's records are gone, so that another agent can adopt it.

        Args:
            directory: the workspace's physical path.
            session: the session's id.

        Raises:
            SandboxFailed: it is there and can't be moved.
        """
        if await self._run(chat_places.session_is_stored, self._sandboxes.user, directory, session):
            return
        known = {agent.id for agent in self._state.registry.agents}
        found = await trio.to_thread.run_sync(self._find_without_records, known, directory, session)
        if found is None:
            return
        agent_dir = self._state.layout.agent(found)
        try:
            await self._move(found, agent_dir, agent_dir.chat(directory, session), directory, session)
        except (NotMoved, OSError) as problem:
            raise SandboxFailed(f"the session {session} can't be moved to your chats: {problem}") from None

    def _find_without_records(self, known: set[str], directory: str, session: str) -> str | None:
        """Return which directory of an agent without records has a chat; it runs in a thread of its own."""
        names = os.listdir(self._state.layout.agents) if os.path.isdir(self._state.layout.agents) else []
        for name in names:
            if name not in known and chat_places.is_chat(self._state.layout.agent(name).chat(directory, session)):
                return name
        return None

    async def keep(self, agent: Agent) -> None:
        """Move an agent's chat before its files are deleted, or set it aside where that can't be done."""
        reason = await self.settle(agent)
        own = (
            self._state.layout.agent(agent.id).chat(agent.workspace, agent.session.id)
            if agent.session is not None
            else None
        )
        if reason is None or own is None or not chat_places.is_chat(own):
            return
        kept = damaged_files.set_aside(own, self._state.layout, self._state.registry.now())
        log.warning("a removed agent's chat is set aside", agent=agent.name, reason=reason, kept=kept)
