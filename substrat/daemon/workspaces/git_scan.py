"""Scans git directories for the files that git obeys, those of submodules and linked worktrees included."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from sandbox import protect
from substrat.daemon.kernel import nofollow
from substrat.daemon.workspaces import git_written, gitlink
from substrat.daemon.workspaces.git_programs import ConfigBudget, Programs, programs_of
from substrat.paths import is_within

if TYPE_CHECKING:
    from substrat.daemon.workspaces.scan_record import ScanRecord

_LONGEST_PATH = 4096
"""Bytes (limits.h, PATH_MAX)."""


class GitScan:
    """Protects the files of git directories in a scan."""

    def __init__(self, record: ScanRecord) -> None:
        self._record = record
        self._links: list[str] = []
        """The worktrees' `.git`, of whatever kind."""
        self._seen_worktrees: set[str] = set()

    def git_directory(self, directory: int, path: str, own: tuple[str, ...] = (), *, is_nested: bool = True) -> None:
        """Protect the files that git obeys in a git directory, and in those of its submodules and linked worktrees.

        Beyond a number of nested ones each is read-only as a whole; links in it can be led elsewhere all the same.
        """
        if path in self._record.repositories and not self._record.strict:
            return
        is_whole = is_nested and self._record.is_whole(path, os.fstat(directory).st_ino)
        mounts = self._record.mounts
        self._record.repositories[path] = None
        _require_access(directory, path)
        self._protect_obeyed(directory, path, own)
        if not is_whole:
            self._record.odd += [f"{path}/{part}" for part in git_written.odd_here(directory)]
        if is_whole:
            self._record.mounts = mounts

    def _protect_obeyed(self, directory: int, path: str, own: tuple[str, ...]) -> None:
        if path not in self._record.roots:
            self._record.pin(path, os.fstat(directory).st_ino)
        for entry in protect.GIT:
            self._git_entry(directory, path, entry.name)
        if self._is_kept(directory, path, "modules"):
            with nofollow.opened("modules", directory) as modules:
                self._modules(modules, f"{path}/modules", 0)
        if f"{path}/worktrees" in self._record.read_only:
            with nofollow.opened("worktrees", directory) as worktrees:
                self._worktrees(worktrees, f"{path}/worktrees", own)
                self._keep(worktrees, f"{path}/worktrees")
        elif f"{path}/worktrees" in self._record.missing:
            self._keep(None, f"{path}/worktrees")
        if gitlink.joined_by(path) is not None:
            self.follow(path)

    def _git_entry(self, directory: int, path: str, name: str) -> None:
        parts = name.split("/")
        for outer in ("/".join(parts[:number]) for number in range(1, len(parts))):
            if outer == "objects" and self._is_link(directory, outer):
                self._record.links.append(f"{path}/{outer}")  # an agent works there all the same, without its git
                return
            if outer == "objects/info" and self._record.stat(directory, path, outer) is None:
                if f"{path}/{outer}" not in self._record.links:
                    self._record.missing[f"{path}/{outer}"] = None  # else it would be made, with the list in it
                return
            if not self._is_kept(directory, path, outer):
                return
        found = self._record.stat(directory, path, name)
        if found is not None:
            self._record.protect(f"{path}/{name}", found)
        elif f"{path}/{name}" not in self._record.links and not (
            # git takes the placeholder for another worktree's, in which it finds no tables, and refuses each commit.
            name == "commondir" and git_written.keeps_refs_in_tables(path)
        ):
            self._record.missing[f"{path}/{name}"] = None

    def _is_kept(self, directory: int, path: str, name: str) -> bool:
        """Pin a directory that holds a protected path; another kind of file in its place is made read-only."""
        found = self._record.stat(directory, path, name)
        if found is None:
            return False
        if not stat.S_ISDIR(found.st_mode):
            self._record.protect(f"{path}/{name}", found)
            return False
        with nofollow.opened(name, directory) as kept:
            _require_access(kept, f"{path}/{name}")
        self._record.pin(f"{path}/{name}", None)
        return True

    def _is_link(self, directory: int, name: str) -> bool:
        try:
            return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
        except FileNotFoundError:
            return False

    def _modules(self, directory: int, path: str, depth: int) -> None:
        """A submodule's name may have slashes in it, so its git directory may lie deeper."""
        for name in _directories(directory):
            inner = f"{path}/{name}"
            if depth > self._record.bounds.depth or self._record.takes_no_more(inner):
                return
            with nofollow.opened(name, directory) as module:
                if self._record.stat(module, inner, "HEAD") is not None:
                    self.git_directory(module, inner)
                    continue
                if self._record.is_full(inner):
                    return
                self._record.pin(inner, None)
                _require_access(module, inner)
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
                if self._record.is_full(inner):
                    return
                self._record.own_git_dirs.add(inner)
                self._record.pin(inner, None)
                for entry in protect.GIT_WORKTREE:
                    found = self._record.stat(worktree, inner, entry.name)
                    if found is not None:
                        self._record.protect(f"{inner}/{entry.name}", found)
                    elif entry.placeholder is not None:
                        self._record.missing[f"{inner}/{entry.name}"] = None
                # The submodules of a linked worktree have their git directories there.
                if self._is_kept(worktree, inner, "modules"):
                    with nofollow.opened("modules", worktree) as modules:
                        self._modules(modules, f"{inner}/modules", 0)

    def _keep(self, directory: int | None, path: str) -> None:
        """Note what keeps git from removing `worktrees`, unless an agent has put something else in its place before."""
        keeper, locked = protect.WORKTREES_KEEPERS
        try:
            found = None if directory is None else os.stat(keeper, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            found = None
        except OSError:
            return
        if found is None or stat.S_ISDIR(found.st_mode):
            self._record.keepers += [f"{path}/{keeper}", f"{path}/{locked}"]

    def _leads_inside(self, worktree: int, path: str) -> bool:
        """Say whether a linked worktree's files are where the agent may write (gitrepository-layout(5), `gitdir`)."""
        said = nofollow.read_small("gitdir", _LONGEST_PATH, worktree)
        if not said:
            return False
        where = os.path.normpath(os.path.join(path, os.fsdecode(said.rstrip(b"\r\n"))))
        return any(is_within(where, root) for root in self._record.roots)

    def follow_all(self, private: tuple[str, ...]) -> None:
        """Protect the repositories that lie elsewhere in the workspace, wherever a `.git` that was found leads.

        Args:
            private: directories of the host in which the agent writes and nothing can be protected.
        """
        self._record.strict = False
        self._record.give_time()
        for git in self._links:
            own = gitlink.led_to(git)
            if own is None:
                continue
            for path in (own, gitlink.joined_by(own) or own):
                if not self._record.is_inside(path) and any(is_within(path, one) for one in private):
                    self._record.led_outside[git] = None
            self.follow(own)

    def follow(self, own: str) -> None:
        """Protect a git directory that git is led to, and the one that it takes its configuration from."""
        common = gitlink.joined_by(own) or own
        if not gitlink.is_repository(own, common):
            return
        for path in dict.fromkeys((own, common)):
            is_known = path in self._record.repositories or path in self._record.own_git_dirs
            if is_known or not self._record.is_inside(path) or any(is_within(path, one) for one in self._record.read_only):
                continue
            if self._record.takes_no_more(path):
                return
            with self._record.forgiving(path), nofollow.opened(path) as directory:
                self._record.pin_ancestors(path.rpartition("/")[0])
                self.git_directory(directory, path)

    def repository(self, name: str, found: os.stat_result, reading: int, path: str) -> None:
        """Protect a directory's `.git`: the repository, a file that leads to it, or a link."""
        git = f"{path}/{name}"
        is_nested = path not in self._record.roots
        if path in self._seen_worktrees and not self._record.strict:
            return
        if is_nested and self._record.takes_no_more(git, is_file=not stat.S_ISDIR(found.st_mode)):
            return
        self._seen_worktrees.add(path)
        self._links.append(git)
        if is_nested:
            self._record.pin_worktree(path)
        if stat.S_ISLNK(found.st_mode):
            self._record.note_link(git)
        elif stat.S_ISDIR(found.st_mode):
            with nofollow.opened(name, reading) as directory:
                self.git_directory(directory, git, is_nested=is_nested)
        else:
            mounts = self._record.mounts
            self._record.protect(git, found)
            if is_nested:
                self._record.mounts, self._record.git_mounts = mounts, self._record.git_mounts - 1

    def programs(self, workspace: str, shared: tuple[str, ...], user_configs: tuple[str, ...]) -> None:
        """Protect the files that git's configuration makes it run or read, and note those that can't be protected."""
        found, budget = Programs(), ConfigBudget()
        for number, repository in enumerate(self._record.repositories):
            if number >= self._record.bounds.repositories:
                self._record.skipped.append(f"{repository}/config")
                break
            worktree = workspace if repository in shared else repository.rpartition("/")[0]
            found = found.joined(programs_of(repository, worktree, user_configs, self._record.roots, budget))
            if budget.is_used_up:
                self._record.skipped.append(f"{repository}/config")
                break
        self._record.unprotectable += found.unsettled
        for path in found.present:
            if path in self._record.read_only or any(is_within(path, other) for other in self._record.read_only):
                continue
            if self._record.is_full(path):
                return
            with suppress(OSError), nofollow.opened(path) as opened:
                self._record.pin_ancestors(path.rpartition("/")[0])
                self._record.protect(path, os.fstat(opened))
        for path in found.absent:
            if path not in self._record.missing and not any(is_within(path, other) for other in self._record.read_only):
                self._record.pin_ancestors(path.rpartition("/")[0])
                self._record.missing[path] = None


def _require_access(directory: int, path: str) -> None:
    """Raise `PermissionError` for a directory of the user's own, given its descriptor, whose mode keeps its owner out.

    Nothing in it can be seen or made then, so nothing in it can be protected. An agent has the same owner, and can give the
    directory another mode during the turn.
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
