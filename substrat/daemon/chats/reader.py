"""The user's chats in `~/.cursor/chats`: asks `inside.chatreader` in a sandbox for them; never opens one itself."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, TypeVar

import attrs
import msgspec

from sandbox.spec import Bind, Directory, Mount
from substrat.core.programs.table import CHAT_MODULES, CURSOR, chats_folder
from substrat.daemon.sandboxes import oneshot
from substrat.daemon.sandboxes.inside import inside
from substrat.errors import SandboxFailed, SessionDamaged, SessionMissing, WorkspaceUnusable
from substrat.inside import chatreader
from substrat.names import is_uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from substrat.daemon.chats.sessions import Sessions
    from substrat.daemon.kernel.files import Files
    from substrat.daemon.sandboxes.sandboxes import Sandboxes

T = TypeVar("T")
_CHATS = "/run/chats"
_OWN = "/run/own"
_MOST_OWN = 100
"""How many chats are shown that aren't among the user's yet: each is a mount, which costs some 0.1 ms."""


class Chat(msgspec.Struct, frozen=True):
    """One chat on disk.

    Args:
        session: its UUID.
        updated_at: when its store last changed, in seconds since the epoch.
        size: its bytes on disk.
        title: what cursor-agent calls it.
        model: the model last used.
        created_ms: when it began, in milliseconds since the epoch.
        damage: a sentence about its damage, None if it has none.
    """

    session: str
    updated_at: float
    size: int
    title: str = ""
    model: str | None = None
    created_ms: int | None = None
    damage: str | None = None


class NumberedMessage(msgspec.Struct, frozen=True):
    """One message of a chat; its number is where to read on after."""

    number: int
    role: str
    text: str
    calls: tuple[str, ...]


class Head(msgspec.Struct, frozen=True):
    """A chat's title and model, and a sentence about its damage if it has any."""

    title: str = ""
    model: str | None = None
    created_ms: int | None = None
    damage: str | None = None


@attrs.define(eq=False)
class Chats:
    """Reads one user's chats."""

    _files: Files
    _sandboxes: Sandboxes
    sessions: Sessions

    async def list_all(self, workspace: str) -> list[Chat]:
        """List a workspace's chats, the newest first; a damaged one is listed with a sentence about the damage.

        Chats whose first turn still runs, or couldn't be moved, are among them, at most 100.

        Args:
            workspace: its physical path.

        Raises:
            SandboxFailed: they couldn't be read.
        """
        try:
            return await self._list_all(workspace)
        except WorkspaceUnusable:  # a chat was moved to the user's meanwhile
            return await self._list_all(workspace)

    async def _list_all(self, workspace: str) -> list[Chat]:
        folder = self._folder(workspace)
        own = dict(list(self.sessions.own_chats(workspace).items())[-_MOST_OWN:])
        if await self._look(os.path.isdir, folder):
            found = [msgspec.json.decode(line, type=Chat) for line in await self._read(folder, own, "list", _CHATS, _OWN)]
        elif own:
            found = [msgspec.json.decode(line, type=Chat) for line in await self._read(None, own, "list", _OWN)]
        else:
            return []
        # The user's own comes first where a session is in both places.
        chats = {chat.session: chat for chat in reversed(found) if is_uuid(chat.session)}
        return sorted(chats.values(), key=lambda chat: chat.updated_at, reverse=True)

    async def read(self, workspace: str, session: str, after: int = 0) -> tuple[Head, list[NumberedMessage]]:
        """Read a page of a chat's messages, those before the damage if it is damaged further on.

        Args:
            workspace: the workspace's physical path.
            session: the chat's id.
            after: the number of the last message that was read already.

        Raises:
            SessionMissing: there is no such chat.
            SessionDamaged: nothing of the page can be read.
            SandboxFailed: the reader couldn't be run.
        """
        try:
            return await self._read_page(workspace, session, after)
        except WorkspaceUnusable:  # it was moved to the user's meanwhile
            return await self._read_page(workspace, session, after)

    async def _read_page(self, workspace: str, session: str, after: int) -> tuple[Head, list[NumberedMessage]]:
        folder: str | None = self._folder(workspace)
        own = {}
        store = os.path.join(self._folder(workspace), session, CURSOR.places.chat_file)
        if is_uuid(session) and not await self._look(os.path.isfile, store):
            folder, own = None, {name: path for name, path in self.sessions.own_chats(workspace).items() if name == session}
        if not is_uuid(session) or (folder is None and not own):
            raise SessionMissing(
                f"there is no session {session} of {workspace}: `substratctl sessions -w {shlex.quote(workspace)}` lists "
                f"those there are"
            )
        lines = await self._read(folder, own, "read", _OWN if own else _CHATS, session, str(after))
        head = msgspec.json.decode(lines[0], type=Head)
        messages = []
        for line in lines[1:]:
            if b'"damage"' in line[:12]:
                head = msgspec.structs.replace(head, damage=msgspec.json.decode(line, type=Head).damage)
                break
            messages.append(msgspec.json.decode(line, type=NumberedMessage))
        if head.damage is not None and not messages:
            raise SessionDamaged(f"the session {session} is damaged: {head.damage}; nothing was changed")
        return head, messages

    def _folder(self, workspace: str) -> str:
        return os.path.join(self._sandboxes.user.place(CURSOR.places.chats), chats_folder(workspace))

    async def _look(self, function: Callable[[str], T], path: str) -> T:
        return await self._files.run(self._sandboxes.user.place(CURSOR.places.chats), function, path)

    async def _read(self, folder: str | None, own: dict[str, str], *arguments: str) -> list[bytes]:
        """Run the reader, which sees a folder as `_CHATS`, and in `_OWN` agents' own directories by their names."""
        command, shown = inside(chatreader, *arguments, modules=CHAT_MODULES)
        mounts: tuple[Mount, ...] = (
            *shown,
            Directory(_OWN),
            *(Bind(path, f"{_OWN}/{name}", held=True) for name, path in own.items()),
        )
        if folder is not None:
            chats = await self._look(os.path.realpath, os.path.dirname(folder))
            mounts += (Bind(os.path.join(chats, os.path.basename(folder)), _CHATS, held=True),)
        preparer = self._sandboxes.preparer
        system = await preparer.unreadable.system_mounts()
        files, bubblewrap = self._files, await preparer.machine.find_bubblewrap()
        done = await oneshot.run(files, bubblewrap, command, mounts, "/", system=system)
        if done.status != 0:
            said = done.errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
            where = folder or next(iter(own.values()))
            raise SandboxFailed(f"the chats in {where} can't be read: {said or f'exit status {done.status}'}")
        return done.output.splitlines()
