"""Finds what has to stay read-only in a workspace; it makes nothing (`standins`) and mounts nothing.

The names are `sandbox.protect`'s. The workspace may be an agent's own work of yesterday, so it is walked without following
a link, and no further than a bound: what lies beyond isn't protected, and a note says so.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from sandbox import protect
from substrat.core.workspaces import git_index
from substrat.daemon.kernel import descriptors, nofollow
from substrat.daemon.sandboxes import gitlink, underway
from substrat.daemon.sandboxes.git_programs import LONGEST_CONFIG, Programs, Room, programs_of
from substrat.errors import WorkspaceUnusable
from substrat.paths import is_within

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Installed by the ten thousand; looked at already.
_NOT_ENTERED = frozenset({"node_modules", ".git"})
_TOLD = 5
"""How many paths a message names; it is to be read on one line."""
_LONGEST_PATH = 4096
"""Bytes (limits.h, PATH_MAX)."""


class Bounds(NamedTuple):
    """How far a workspace is looked through.

    Args:
        entries: files and directories.
        depth: directories within one another.
        seconds: of time.
        mounts: paths that are protected below the workspace's top; each costs a sandbox's start some 0.1 ms.
        repositories: how many repositories' configurations are read for the programs they name.
        index_bytes: of all indexes together: about 600,000 files at some 100 bytes each.
        gitlinks: nested repositories that the indexes name.
    """

    entries: int = 200_000
    depth: int = 24
    seconds: float = 0.5
    mounts: int = 160
    repositories: int = 32
    index_bytes: int = 64 << 20
    gitlinks: int = 1000


class ProtectedPaths(msgspec.Struct, frozen=True):
    """What of a workspace is protected in a turn.

    Args:
        kept: directories that are mounted over themselves, writable, so that they can't be renamed with what is in them.
        closed: files and directories that are read-only.
        missing: what is refused to be made; something has to stand there to be mounted over.
        shared: git directories elsewhere that the workspace's repository is in.
        own: what of those the workspace may write though it lies in something closed.
        seen: which files all these are: their inodes; of a link, the time of its last change.
        notes: what can't be protected, and why.
        unsettled: what git's configuration makes it run that can't be protected: a setting and a sentence for each.
        underway: what git would run if a person went on with a rebase left under way: lines by their file's path.
    """

    kept: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    seen: dict[str, int] = {}
    notes: tuple[str, ...] = ()
    unsettled: tuple[tuple[str, str], ...] = ()
    underway: dict[str, tuple[str, ...]] = {}

    @property
    def mounts(self) -> tuple[str, ...]:
        """All that is mounted over itself, read-only or not."""
        return tuple(dict.fromkeys((*self.kept, *self.own, *self.closed, *self.missing)))


def look(
    workspace: str,
    shared: tuple[str, ...] = (),
    own: tuple[str, ...] = (),
    further: tuple[str, ...] = (),
    bounds: Bounds | None = None,
    user_configs: tuple[str, ...] = (),
    private: tuple[str, ...] = (),
) -> ProtectedPaths:
    """Look a workspace through for what has to be protected.

    Args:
        workspace: its physical path.
        shared: git directories elsewhere, as `shared_with` returns them.
        own: what of those is the workspace's own.
        further: what else the agent may write to.
        bounds: how far to look.
        user_configs: git's configuration files that hold for all repositories of the user, by their paths.
        private: directories of the host in which the agent writes and nothing can be protected, such as its `~/.cache`.

    Raises:
        WorkspaceUnusable: something at its top, or of its own repository, is a link where none can be protected.
    """
    walk = _Walk(bounds or Bounds(), (workspace, *further), private)
    try:
        for directory in (workspace, *further):
            walk.workspace(directory)
        for directory in shared:
            walk.shared(directory, own)
        walk.nested(shared)
        walk.programs(workspace, shared, user_configs)
    except OSError as problem:
        descriptors.refuse_shortage(problem)
        where = os.path.join(workspace, problem.filename if isinstance(problem.filename, str) else workspace)
        remedy = "put a file or directory of your own there"
        if problem.errno == errno.EACCES:
            remedy = f"`chmod u+rwx {where}`"
        raise WorkspaceUnusable(
            f"{where} can't be looked at ({problem.strerror}), so it can't be protected: {remedy}"
        ) from None
    return walk.found(shared, own)


def shared_with(workspace: str, closed: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...], str | None]:
    """Find the git directories elsewhere that a workspace's `.git` file leads to, if they lead back.

    Args:
        workspace: its physical path.
        closed: places that no agent may see.

    Returns:
        The directories, what of them is the workspace's own, and why there are none, if that has to be told.
    """
    try:
        link = gitlink.link_of(workspace, closed)
    except WorkspaceUnusable as problem:
        return (), (), problem.message
    if link is None:
        return (), (), None
    return (link.common,), (link.own,) if link.own != link.common else (), None


def news(before: ProtectedPaths, after: ProtectedPaths) -> list[str]:
    """Return what has appeared, or was replaced, during a turn, and so wasn't protected in it: the outermost paths.

    Args:
        before: what was found at the turn's start.
        after: what is there at its end.
    """
    had = set(before.missing)
    changed = sorted(path for path, inode in after.seen.items() if before.seen.get(path) != inode and path not in had)
    outer: list[str] = []
    outside: set[str] = set()
    for path in sorted(changed, key=len):
        if not any(path[:at] in outside for at, letter in enumerate(path) if letter == "/"):
            outside.add(path)
            outer.append(path)
    return sorted(outer)


def renewed(before: ProtectedPaths, inodes: dict[str, int]) -> ProtectedPaths:
    """Return what was found at a turn's start with what the daemon itself has put there since.

    Args:
        before: what was found.
        inodes: of the new files, by path.
    """
    return msgspec.structs.replace(before, seen={**before.seen, **inodes})


def told(paths: list[str]) -> str:
    """Say what `news` returned, for people."""
    return (
        f"made or replaced during the turn, so not protected in it: {listed(paths)}; "
        f"look at what is there before git, an editor or a shell of yours does"
    )


class _Walk:
    """A walk through a workspace, and what it has found so far."""

    def __init__(self, bounds: Bounds, roots: tuple[str, ...], private: tuple[str, ...]) -> None:
        self._bounds = bounds
        self._roots = roots
        self._private = private
        self._repositories: dict[str, None] = {}
        self._unsettled: list[tuple[str, str]] = []
        self._led: list[tuple[str, str]] = []
        self._worktrees_found: set[str] = set()
        self._own: set[str] = set()
        self._entries = bounds.entries
        self._until = time.monotonic() + bounds.seconds
        self._mounts = bounds.mounts
        self._index_bytes = bounds.index_bytes
        self._gitlinks = bounds.gitlinks
        self._kept: dict[str, None] = {}
        self._closed: dict[str, None] = {}
        self._missing: dict[str, None] = {}
        self._seen: dict[str, int] = {}
        self._links: list[str] = []
        self._named_twice: list[str] = []
        self._beyond: list[str] = []
        self._unread: list[str] = []
        self._unlooked: list[str] = []
        self._led_out: dict[str, None] = {}
        self._strict = True
        self._root = ""

    def found(self, shared: tuple[str, ...], own: tuple[str, ...]) -> ProtectedPaths:
        """Return what was found."""
        # What stands in for something missing is noted in the state, which takes text only.
        missing = tuple(path for path in self._missing if path == _printable(path))
        self._unlooked += [path for path in self._missing if path != _printable(path)]
        return ProtectedPaths(
            tuple(self._kept), tuple(self._closed), missing, shared, own, self._seen, tuple(self._notes()),
            tuple(self._unsettled), underway.look((*self._repositories, *self._kept)),
        )  # fmt: skip

    def _notes(self) -> Iterable[str]:
        if self._links:
            yield f"links can't be protected: {listed(self._links)}"
        if self._named_twice:
            yield f"what has another name (a hard link) can be changed by that: {listed(self._named_twice)}"
        if self._beyond:
            yield f"too much to look through or to protect: nothing is protected in {listed(self._beyond)}"
        if self._unread:
            where = listed(self._unread)
            yield f"not all of this can be read, so nested repositories that it names may be unprotected: {where}"
        if self._unlooked:
            yield f"can't be looked at, so not all of it is protected: {listed(self._unlooked)}"
        if self._led_out:
            where = listed([*self._led_out])
            yield f"git is led to where the agent can change everything, its configuration included: {where}"

    def workspace(self, path: str) -> None:
        """Walk through a whole workspace; one that lies in another can't be renamed away either."""
        self._root = path
        outer = max((root for root in self._roots if path != root and is_within(path, root)), key=len, default=path)
        inner = path
        while len(inner) > len(outer):
            self._kept[inner] = None
            inner = inner.rpartition("/")[0]
        with nofollow.opened(path) as root:
            if stat.S_ISDIR(os.fstat(root).st_mode):
                self._directory(root, path, 0)

    def shared(self, path: str, own: tuple[str, ...]) -> None:
        """Look at a git directory that lies elsewhere."""
        self._strict = True
        with nofollow.opened(path) as directory:
            self._git_directory(directory, path, own)

    def _directory(self, beneath: int, path: str, depth: int) -> None:
        """Look at a directory of the workspace and go on to those in it."""
        reading = nofollow.open_directory(".", beneath)
        try:
            with os.scandir(reading) as entries:
                kinds = {entry.name: entry for entry in entries}
            self._entries -= len(kinds)
            self._strict = depth == 0
            self._of_workspace(kinds, path, top=depth == 0)
            for name in [name for name in kinds if name.lower() == ".git"]:
                with self._forgiving(f"{path}/{name}"):
                    self._repository(name, kinds[name].stat(follow_symlinks=False), reading, path)
            if any(kinds.keys() >= names for names in (protect.IS_GIT_DIRECTORY, protect.IS_JOINED_GIT_DIRECTORY)):
                # An agent can make three such names anywhere, so what else is here is looked at all the same.
                self._ancestors(path)
                with self._forgiving(path):
                    self._git_directory(reading, path)
            for name, kind in kinds.items():
                inner = f"{path}/{name}"
                is_left = name.lower() in _NOT_ENTERED or protect.is_protected(name) or inner in self._closed
                if not is_left and kind.is_dir(follow_symlinks=False):
                    self._enter(name, reading, path, depth + 1)
        finally:
            os.close(reading)

    def _enter(self, name: str, reading: int, path: str, depth: int) -> None:
        inner = f"{path}/{name}"
        if depth > self._bounds.depth or self._entries < 0 or self._mounts < 0 or time.monotonic() > self._until:
            self._beyond.append(inner)
            return
        try:
            directory = nofollow.open_directory(name, reading)
        except PermissionError:
            if os.stat(name, dir_fd=reading, follow_symlinks=False).st_uid == os.geteuid():
                self._unlooked.append(inner)  # whose owner, and so the agent, can open it again at any time
            return
        except OSError:  # gone since
            return
        try:
            self._directory(directory, inner, depth)
        finally:
            os.close(directory)

    def _of_workspace(self, kinds: dict[str, os.DirEntry[str]], path: str, *, top: bool) -> None:
        for name in filter(protect.is_protected, kinds):
            if not top and self._is_full(f"{path}/{name}"):
                return
            if kinds[name].is_symlink():
                self._link(f"{path}/{name}")
                continue
            with self._forgiving(f"{path}/{name}"):
                found = kinds[name].stat(follow_symlinks=False)
                self._ancestors(path)
                self._close(f"{path}/{name}", found)
        if top:
            is_home = _is_home(path)
            for entry in protect.WORKSPACE:
                if entry.new and (is_home or not entry.home) and entry.name not in kinds:
                    self._missing[f"{path}/{entry.name}"] = None

    def _is_full(self, path: str) -> bool:
        """Say whether nothing more is protected below the workspace's top, and note where."""
        if self._mounts < 0:
            self._beyond.append(path)
        return self._mounts < 0

    @contextmanager
    def _forgiving(self, path: str) -> Iterator[None]:
        """Note what can't be looked at below the workspace's top instead of raising: it may be an agent's own work."""
        try:
            yield
        except OSError as problem:
            descriptors.refuse_shortage(problem)
            if self._strict:
                raise
            self._unlooked.append(path)

    def _repository(self, name: str, found: os.stat_result, reading: int, path: str) -> None:
        """Protect what a directory's `.git` is: the repository, a file that leads to it, or a link."""
        git = f"{path}/{name}"
        if (path in self._worktrees_found and not self._strict) or (path not in self._roots and self._is_full(git)):
            return
        self._worktrees_found.add(path)
        self._led.append((path, git))
        self._ancestors(path)
        if stat.S_ISLNK(found.st_mode):
            self._link(git)
        elif stat.S_ISDIR(found.st_mode):
            with nofollow.opened(name, reading) as directory:
                self._git_directory(directory, git)
        else:
            self._close(git, found)

    # Where git is led

    def nested(self, shared: tuple[str, ...]) -> None:
        """Look at the repositories that git on the host enters, wherever a `.git` leads or an index says that they lie.

        Args:
            shared: git directories elsewhere that the workspace's repository is in.
        """
        self._strict = False
        self._until = time.monotonic() + self._bounds.seconds
        for worktree, git in self._led:  # which grows by those that are found
            own = gitlink.led_to(git)
            if own is None:
                continue
            if any(map(self._is_private, (own, gitlink.joined_by(own) or own))):
                self._led_out[git] = None
            self._follow(own)
            if self._is_inside(own) or any(is_within(own, one) for one in shared):
                self._enter_gitlinks(worktree, own)

    def _is_private(self, path: str) -> bool:
        return any(is_within(path, one) for one in self._private) and not self._is_inside(path)

    def _is_inside(self, path: str) -> bool:
        return any(is_within(path, root) for root in self._roots)

    def _follow(self, own: str) -> None:
        """Protect a git directory that git is led to, and the one that it takes its configuration from."""
        common = gitlink.joined_by(own) or own
        if not gitlink.is_repository(own, common):
            return
        for path in dict.fromkeys((own, common)):
            is_known = path in self._repositories or path in self._own
            if is_known or not self._is_inside(path) or any(is_within(path, one) for one in self._closed):
                continue
            if self._is_full(path):
                return
            with self._forgiving(path), nofollow.opened(path) as directory:
                self._ancestors(path.rpartition("/")[0])
                self._git_directory(directory, path)

    def _enter_gitlinks(self, worktree: str, own: str) -> None:
        """Look at the nested repositories that an index names, where the walk doesn't enter and behind links too."""
        for name in self._gitlinks_of(own):
            path = os.path.normpath(os.path.join(worktree, os.fsdecode(name)))
            if time.monotonic() > self._until:
                self._unread.append(f"{own}/index")
                return
            place = gitlink.real(path)
            if place is None or place in self._roots or not self._is_inside(place):
                continue
            with self._forgiving(path):
                if os.path.islink(path):
                    self._link(path)
                with suppress(FileNotFoundError, NotADirectoryError), nofollow.opened(place) as directory:
                    found = os.stat(".git", dir_fd=directory, follow_symlinks=False)
                    self._repository(".git", found, directory, place)

    def _gitlinks_of(self, own: str) -> Iterable[bytes]:
        """Return which nested repositories the index of a git directory names, as far as there is room."""
        config = nofollow.read_small(f"{gitlink.joined_by(own) or own}/config", LONGEST_CONFIG) or b""
        index = self._index(f"{own}/index")
        names: dict[bytes, None] = {}
        for digest in (20, 32) if b"objectformat" in config.lower() else (20,):
            found = git_index.gitlinks(index, self._gitlinks - len(names), digest)
            names.update(dict.fromkeys(found.paths))
            is_all = found.is_all
            if found.base is not None:
                base = git_index.gitlinks(
                    self._index(f"{own}/sharedindex.{found.base}"), self._gitlinks - len(names), digest
                )
                names.update(dict.fromkeys(base.paths))
                is_all = is_all and base.is_all
            if not is_all:
                self._unread.append(f"{own}/index")
        self._gitlinks -= len(names)
        return names

    def _index(self, path: str) -> bytes:
        """Return what an index holds, nothing if it isn't there; another one than a bearable regular file is noted."""
        data = nofollow.read_small(path, self._index_bytes)
        if data is None:
            if os.path.lexists(path):
                self._unread.append(path)
            return b""
        self._index_bytes -= len(data)
        return data

    # Git directories

    def _ancestors(self, path: str) -> None:
        """Keep what a nested repository, or another protected name, lies in from being renamed away and made anew."""
        while path not in self._roots and path not in self._kept and "/" in path[1:]:
            self._mounts -= 1
            self._kept[path] = None
            path = path.rpartition("/")[0]

    def _git_directory(self, directory: int, path: str, own: tuple[str, ...] = ()) -> None:
        """Protect what git obeys in a git directory, those of submodules and linked worktrees in it included."""
        if path in self._repositories and not self._strict:
            return
        self._repositories[path] = None
        _require_access(directory, path)
        if path not in self._roots:
            self._keep(path, os.fstat(directory).st_ino)
        for entry in protect.GIT:
            self._git_entry(directory, path, entry.name)
        if self._is_kept(directory, path, "modules"):
            with nofollow.opened("modules", directory) as modules:
                self._modules(modules, f"{path}/modules", 0)
        if f"{path}/worktrees" in self._closed:
            with nofollow.opened("worktrees", directory) as worktrees:
                self._worktrees(worktrees, f"{path}/worktrees", own)
        if gitlink.joined_by(path) is not None:
            self._follow(path)

    def _git_entry(self, directory: int, path: str, name: str) -> None:
        outer = name.rpartition("/")[0]
        if outer and not self._is_kept(directory, path, outer):
            return
        found = self._stat(directory, path, name)
        if found is not None:
            self._close(f"{path}/{name}", found)
        elif f"{path}/{name}" not in self._links:
            self._missing[f"{path}/{name}"] = None

    def _is_kept(self, directory: int, path: str, name: str) -> bool:
        """Keep a directory that holds something protected; what stands there instead of one is made read-only."""
        found = self._stat(directory, path, name)
        if found is None:
            return False
        if not stat.S_ISDIR(found.st_mode):
            self._close(f"{path}/{name}", found)
            return False
        with nofollow.opened(name, directory) as kept:
            _require_access(kept, f"{path}/{name}")
        self._keep(f"{path}/{name}", None)
        return True

    def _modules(self, directory: int, path: str, depth: int) -> None:
        """A submodule's name may have slashes in it, so its git directory may lie deeper."""
        for name in _directories(directory):
            inner = f"{path}/{name}"
            if depth > self._bounds.depth or self._is_full(inner):
                return
            self._keep(inner, None)
            with nofollow.opened(name, directory) as module:
                _require_access(module, inner)
                if self._stat(module, inner, "HEAD") is not None:
                    self._git_directory(module, inner)
                else:
                    self._modules(module, inner, depth + 1)

    def _worktrees(self, directory: int, path: str, own: tuple[str, ...]) -> None:
        """Open those of a repository's linked worktrees that the agent works in; the others stay read-only altogether.

        An agent makes no new ones: git on the host would read their `config.worktree`.
        """
        for name in _directories(directory):
            inner = f"{path}/{name}"
            with nofollow.opened(name, directory) as worktree:
                if inner not in own and not self._leads_inside(worktree, inner):
                    continue
                if self._is_full(inner):
                    return
                self._own.add(inner)
                self._keep(inner, None)
                for entry in protect.GIT_WORKTREE:
                    found = self._stat(worktree, inner, entry.name)
                    if found is not None:
                        self._close(f"{inner}/{entry.name}", found)
                    elif entry.stand_in is not None:
                        self._missing[f"{inner}/{entry.name}"] = None
                # The submodules of a linked worktree have their git directories there.
                if self._is_kept(worktree, inner, "modules"):
                    with nofollow.opened("modules", worktree) as modules:
                        self._modules(modules, f"{inner}/modules", 0)

    def _leads_inside(self, worktree: int, path: str) -> bool:
        """Say whether a linked worktree's files are where the agent may write (gitrepository-layout(5), `gitdir`)."""
        said = nofollow.read_small("gitdir", _LONGEST_PATH, worktree)
        where = os.path.normpath(os.path.join(path, os.fsdecode((said or b"").rstrip(b"\r\n"))))
        return any(is_within(where, root) for root in self._roots)

    def programs(self, workspace: str, shared: tuple[str, ...], user_configs: tuple[str, ...]) -> None:
        """Protect the files that git's configuration makes it run or read, and note what can't be protected."""
        found, room = Programs(), Room()
        for repository in [*self._repositories][: self._bounds.repositories]:
            worktree = workspace if repository in shared else repository.rpartition("/")[0]
            found = found.joined(programs_of(repository, worktree, user_configs, self._roots, room))
            if room.is_used_up:
                self._beyond.append(f"{repository}/config")
                break
        self._unsettled += found.unsettled
        for path in found.present:
            if path in self._closed or any(is_within(path, other) for other in self._closed):
                continue
            if self._is_full(path):
                return
            with suppress(OSError), nofollow.opened(path) as opened:
                self._ancestors(path.rpartition("/")[0])
                self._close(path, os.fstat(opened))
        for path in found.absent:
            if path not in self._missing and not any(is_within(path, other) for other in self._closed):
                self._ancestors(path.rpartition("/")[0])
                self._missing[path] = None

    def _stat(self, directory: int, path: str, name: str) -> os.stat_result | None:
        """Say what something is, None when there is nothing, or a link, which is noted or refused."""
        try:
            with nofollow.opened(name, directory) as found:
                return os.fstat(found)
        except OSError as problem:
            if problem.errno == errno.ELOOP:
                self._link(f"{path}/{name}")
            elif problem.errno not in {errno.ENOENT, errno.ENOTDIR, errno.EACCES}:
                raise
            return None

    def _keep(self, path: str, inode: int | None) -> None:
        self._mounts -= 1
        self._kept[path] = None
        if inode is not None:
            self._seen[path] = inode

    def _close(self, path: str, found: os.stat_result) -> None:
        self._mounts -= 1
        self._closed[path] = None
        self._seen[path] = found.st_ino
        if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
            self._named_twice.append(path)
        elif stat.S_ISDIR(found.st_mode):
            self._look_for_links(path)

    def _look_for_links(self, path: str) -> None:
        """Look for files in a read-only directory that have another name, which may be writable."""
        with suppress(OSError), nofollow.opened(path) as closed:  # gone since: then nothing of it is mounted either
            for top, directories, names, directory in os.fwalk(".", dir_fd=closed):
                self._entries -= len(directories) + len(names)
                if self._entries < 0 or time.monotonic() > self._until or top.count("/") >= self._bounds.depth:
                    directories.clear()
                if "objects" in directories and path.endswith("/worktrees"):
                    directories.remove("objects")  # those of submodules; `git clone` links them, and git runs none of them
                for name in names:
                    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
                    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
                        self._named_twice.append(os.path.normpath(f"{path}/{top}/{name}"))

    def _link(self, path: str) -> None:
        if self._strict:
            raise WorkspaceUnusable(
                f"{path} is a link, so it can't be protected from the agent: put a file or directory in its place"
            )
        self._links.append(path)
        with suppress(OSError):
            # A link that is made anew often gets the same inode; the time of its last change an agent can't set.
            self._seen[path] = os.lstat(path).st_ctime_ns


def _require_access(directory: int, path: str) -> None:
    """Refuse a directory of the user's own whose mode keeps its owner out.

    Nothing in it can be seen or made then, so nothing in it can be protected. An agent has the same owner, and can give the
    directory another mode during the turn.

    Args:
        directory: a descriptor of it.
        path: how it is called.

    Raises:
        PermissionError: it is one.
    """
    is_own = os.fstat(directory).st_uid == os.geteuid()
    if is_own and not os.access(".", os.R_OK | os.W_OK | os.X_OK, dir_fd=directory, effective_ids=True):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


def _directories(directory: int) -> list[str]:
    try:
        reading = nofollow.open_directory(".", directory)
    except (PermissionError, NotADirectoryError):  # nor can the agent look into it, or it is something else
        return []
    try:
        with os.scandir(reading) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    finally:
        os.close(reading)


def listed(paths: list[str]) -> str:
    """Name some paths for a message, the first five of them: `/w/a, /w/b and 3 more`."""
    more = f" and {len(paths) - _TOLD} more" if len(paths) > _TOLD else ""
    return ", ".join(map(_printable, paths[:_TOLD])) + more


def _printable(path: str) -> str:
    return path.encode("utf-8", "replace").decode()


def encode(guard: ProtectedPaths) -> bytes:
    """Return a guard as JSON, for a daemon that takes the turn over; names in no encoding lose what can't be written."""
    return msgspec.json.encode({name: _clean(value) for name, value in msgspec.structs.asdict(guard).items()})


def decode(data: bytes | None) -> ProtectedPaths | None:
    """Return what `encode` wrote, or None when it isn't that."""
    with suppress(msgspec.MsgspecError, RecursionError):
        return msgspec.json.decode(data or b"", type=ProtectedPaths)
    return None


def _clean(value: object) -> object:
    match value:
        case dict():
            return {_printable(path): found for path, found in value.items()}
        case str():
            return _printable(value)
        case _:
            return [_clean(one) for one in value]  # type: ignore[attr-defined]


def _is_home(path: str) -> bool:
    """Say whether a directory is the home of the user whose it is."""
    try:
        return os.path.realpath(pwd.getpwuid(os.stat(path).st_uid).pw_dir) == path
    except (KeyError, OSError):
        return False
