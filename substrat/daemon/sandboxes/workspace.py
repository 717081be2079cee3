"""Checks workspaces, and makes, copies and publishes directories among the user's chats; it follows no link."""

from __future__ import annotations

import errno
import os
import pwd
import secrets
import shlex
import shutil
import stat
from typing import TYPE_CHECKING, NamedTuple

from substrat.core.programs.table import PROGRAM
from substrat.daemon.kernel import nofollow
from substrat.errors import WorkspaceUnusable
from substrat.paths import is_within

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_OVERLAY_FILES = 2000
_MAX_OVERLAY_BYTES = 32 * 1024 * 1024
_MAX_OVERLAY_DEPTH = 12
"""How much of a workspace's `.cursor` is copied at each turn's start: rules and settings have some kilobytes, and a turn's
start waits for the copy."""
_NO_FOLLOW = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


_ORDINARY_NAME, _ORDINARY_ID = "agent", 1000
"""Who root's agents are inside: the first ordinary user of most systems."""


class User(NamedTuple):
    """The user whose processes the agents are, as the host sees them."""

    name: str
    uid: int
    gid: int
    home: str

    @classmethod
    def current(cls, environ: dict[str, str]) -> User:
        """Return the daemon's own user; `HOME` decides where home is."""
        uid, gid = os.geteuid(), os.getegid()
        try:
            entry = pwd.getpwuid(uid)
            name, home = entry.pw_name, entry.pw_dir
        except KeyError:
            name, home = f"u{uid}", "/"
        return cls(name, uid, gid, os.path.realpath(environ.get("HOME") or home))

    @property
    def inside(self) -> User:
        """The same user as sandboxes show it: root's agents find an ordinary uid and gid with a name.

        Programs that unpack archives (tar, node's) give files to the owners that an archive names when they find uid 0, and
        fail, because a sandbox has no capability for that. On the host it is still root, so this protects nothing.
        """
        return User(_ORDINARY_NAME, _ORDINARY_ID, _ORDINARY_ID, self.home) if self.uid == 0 else self

    @property
    def has_home(self) -> bool:
        """Whether home is a directory that can be shown empty without hiding the system."""
        return self.home == "/root" or self.home not in _SYSTEM_PLACES


def check_workspace(path: str, user: User, forbidden: tuple[str, ...]) -> str:
    """Check that a directory can be an agent's workspace.

    Args:
        path: as the client gave it.
        user: who has to be able to work in it.
        forbidden: directories that must not become visible, such as the daemon's own.

    Returns:
        Its physical path.

    Raises:
        WorkspaceUnusable: saying why not.
    """
    if "\0" in path:
        raise WorkspaceUnusable(f"the workspace {path!r} has a null character in its name: choose another")
    if not os.path.isabs(path):
        raise WorkspaceUnusable(f"the workspace {path!r} isn't an absolute path: give one")
    try:
        real = nofollow.physical(path)
        with nofollow.opened(real) as directory:
            found = os.fstat(directory)
            read_only = bool(os.fstatvfs(directory).f_flag & os.ST_RDONLY)
            cursor = _stat_beneath(directory, PROGRAM.places.workspace) if stat.S_ISDIR(found.st_mode) else None
    except PermissionError as problem:
        raise WorkspaceUnusable(f"the workspace {path} can't be used: {problem.strerror}; choose another") from None
    except OSError as problem:
        raise WorkspaceUnusable(f"the workspace {path} can't be used: {problem.strerror}; make it first") from None
    if not stat.S_ISDIR(found.st_mode):
        raise WorkspaceUnusable(f"the workspace {path} isn't a directory: choose one")
    if real in _SYSTEM_PLACES or real.startswith(("/proc/", "/sys/", "/dev/", "/usr/", "/etc/", "/boot/")):
        raise WorkspaceUnusable(f"the workspace {real} belongs to the system: choose a directory of your own")
    for other in (user.home, *closed_places(user, forbidden)):
        if is_within(other, real) or (other != user.home and is_within(real, other)):
            raise WorkspaceUnusable(
                f"the workspace {real} would open {other} to the agent: choose a directory that neither holds it "
                f"nor lies in it"
            )
    if read_only:
        raise WorkspaceUnusable(
            f"the workspace {real} is on a file system that is mounted read-only: mount it read-write, or choose another"
        )
    _check_owner(real, found, user)
    if cursor is not None and not stat.S_ISDIR(cursor.st_mode):
        path = os.path.join(real, PROGRAM.places.workspace)
        raise WorkspaceUnusable(f"{path} is a link or a file, so it can't be protected: make it a directory")
    return real


def _stat_beneath(directory: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except (FileNotFoundError, PermissionError):  # no agent can work where it may not enter: that is checked next
        return None


def closed_places(user: User, forbidden: tuple[str, ...]) -> tuple[str, ...]:
    """Return the directories no agent works in: writing there would decide about other agents, logins or the daemon."""
    own = (PROGRAM.places.home, *PROGRAM.places.settings)
    return (*forbidden, *(os.path.join(user.home, name) for name in (*own, ".ssh", ".gnupg")))


_SYSTEM_PLACES = frozenset(  # none of them is written to here: they must not become a workspace
    {"/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/mnt", "/opt", "/proc", "/root", "/run", "/sbin",
     "/srv", "/sys", "/tmp", "/usr", "/var", "/var/tmp"}  # noqa: S108
)  # fmt: skip


def _check_owner(path: str, found: os.stat_result, user: User) -> None:
    """Refuse a directory that the user couldn't write to without capabilities, which no agent has."""
    mode = found.st_mode
    groups = {user.gid, *os.getgroups()}
    bits = mode >> 6 if found.st_uid == user.uid else mode >> 3 if found.st_gid in groups else mode
    if bits & 0o7 == 0o7:
        return
    if found.st_uid == user.uid:
        raise WorkspaceUnusable(
            f"the workspace {path} has the mode {stat.S_IMODE(mode):04o}, which doesn't let {user.name} read, write and "
            f"enter it: `chmod u+rwx {shlex.quote(path)}`"
        )
    try:
        owner = pwd.getpwuid(found.st_uid).pw_name
    except KeyError:
        owner = "nobody on this machine"
    raise WorkspaceUnusable(
        f"the workspace {path} belongs to {owner} (uid {found.st_uid}) and {user.name} can't write there: "
        f"chown it to {user.name}, or choose another"
    )


def chats_of(user: User, workspace: str) -> str:
    """Return the physical path of a workspace's folder in the user's own `~/.cursor/chats`."""
    return os.path.join(os.path.realpath(os.path.join(user.home, PROGRAM.places.chats)), PROGRAM.chats_folder(workspace))


def session_is_stored(user: User, workspace: str, session: str) -> bool:
    """Say whether a session's chat is among the user's own, without following a link that an agent may have left there."""
    return is_chat(os.path.join(chats_of(user, workspace), session))


def is_chat(path: str) -> bool:
    """Say whether a directory is a chat: it has a file `PROGRAM.places.chat_file`. No link is followed."""
    try:
        with nofollow.opened(path) as directory:
            return stat.S_ISREG(os.stat(PROGRAM.places.chat_file, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False


def identify(path: str) -> DirectoryId | None:
    """Return which directory is at a path; None: there is none, or a link is on the way to it."""
    try:
        with nofollow.opened(path) as directory:
            found = os.fstat(directory)
    except OSError:
        return None
    return DirectoryId(found.st_dev, found.st_ino) if stat.S_ISDIR(found.st_mode) else None


def lasting_id(path: str) -> str | None:
    """Return which directory is at a path, for days: its file system's id and its inode, for example `9c3f51aa-131073`.

    The id stays when a disk is mounted again, which the number of a device needn't (statvfs(2), `f_fsid`).

    Args:
        path: an absolute path.

    Returns:
        None where there is no directory, or a link on the way to it.
    """
    try:
        with nofollow.opened(path) as directory:
            found, inode = os.fstatvfs(directory), os.fstat(directory).st_ino
    except OSError:
        return None
    return f"{found.f_fsid:x}-{inode}"


class DirectoryId(NamedTuple):
    """A directory's identity, independent of its name: its file system and inode."""

    device: int
    inode: int


def make_chats_folder(user: User, workspace: str) -> str:
    """Make the workspace's folder in the user's own `~/.cursor/chats` and return it.

    Raises:
        WorkspaceUnusable: a part of the path isn't a directory or can't be made.
    """
    path = user.home
    for name in (*PROGRAM.places.chats.split("/"), PROGRAM.chats_folder(workspace)):
        path = os.path.join(path, name)
        try:
            os.mkdir(path, 0o755)
        except FileExistsError:
            # The user may have made it a link; no agent can, because none sees a directory above its own chats.
            if not os.path.isdir(path):
                raise WorkspaceUnusable(f"{path} isn't a directory: {PROGRAM.name} keeps its chats there") from None
        except OSError as problem:
            raise WorkspaceUnusable(f"{path} can't be made: {problem.strerror}") from None
    return path


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


def copy_cursor_directory(source: str, target: str, expected: DirectoryId | None = None) -> str | None:
    """Copy a workspace's own `.cursor` without following any link in it, or on the way to it.

    Args:
        source: the directory; its parent is the workspace.
        target: where it is copied to.
        expected: which directory the workspace is; None: whichever is there.

    Returns:
        A sentence about files that were left out, or None.

    Raises:
        WorkspaceUnusable: there is another directory by now where the workspace was.
        OSError: the source is a link, or lies behind one.
    """
    budget = _OverlayBudget()
    head, name = os.path.split(source)
    is_absolute = os.path.isabs(head)
    workspace = nofollow.open_path(head) if is_absolute else os.open(head, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        check_same(workspace, expected, head)
        root = os.open(name, _NO_FOLLOW | os.O_DIRECTORY, dir_fd=workspace)
    except FileNotFoundError:
        return None
    finally:
        os.close(workspace)
    try:
        _copy_directory(root, target, budget, depth=0)
    finally:
        os.close(root)
    names = ", ".join(name.encode("utf-8", "replace").decode() for name in budget.skipped[:5])
    return f"left out of the workspace's {PROGRAM.places.workspace}: {names}" if budget.skipped else None


def check_same(descriptor: int, expected: DirectoryId | None, path: str) -> None:
    """Check that an opened directory is still the one that was checked before.

    Raises:
        WorkspaceUnusable: another one has taken its place.
    """
    found = os.fstat(descriptor)
    if expected is not None and (found.st_dev, found.st_ino) != expected:
        raise WorkspaceUnusable(f"the workspace {path} was replaced by another directory meanwhile: start the turn again")


class _OverlayBudget:
    """How much of a `.cursor` may still be copied, and the names that were skipped."""

    def __init__(self) -> None:
        self.files = _MAX_OVERLAY_FILES
        self.bytes = _MAX_OVERLAY_BYTES
        self.skipped: list[str] = []

    def takes(self, size: int) -> bool:
        """Say whether a file of this size fits, and count it."""
        if self.files < 1 or self.bytes < size:
            return False
        self.files -= 1
        self.bytes -= size
        return True


def _copy_directory(directory: int, target: str, budget: _OverlayBudget, depth: int) -> None:
    os.makedirs(target, mode=0o755, exist_ok=True)
    for name in sorted(os.listdir(directory)):
        to = os.path.join(target, name)
        try:
            entry = os.open(name, _NO_FOLLOW, dir_fd=directory)
        except OSError:  # a link (ELOOP), a socket (ENXIO), or not ours to read
            budget.skipped.append(name)
            continue
        try:
            found = os.fstat(entry)
            if stat.S_ISDIR(found.st_mode) and depth < _MAX_OVERLAY_DEPTH:
                _copy_directory(entry, to, budget, depth + 1)
            elif stat.S_ISREG(found.st_mode) and budget.takes(found.st_size):
                _copy_file(entry, to, found)
            else:
                budget.skipped.append(name)
        finally:
            os.close(entry)


def _copy_file(source: int, target: str, found: os.stat_result) -> None:
    with open(target, "wb") as file:
        for part in _parts(source, found.st_size):
            file.write(part)
        os.fchmod(file.fileno(), stat.S_IMODE(found.st_mode) & 0o755 | 0o400)


def _parts(source: int, size: int) -> Iterator[bytes]:
    """Read no more than the size that was counted, though the file may grow meanwhile."""
    while size > 0 and (part := os.read(source, min(size, 1 << 20))):
        size -= len(part)
        yield part
