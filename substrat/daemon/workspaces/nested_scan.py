"""Scans the repositories that git on the host enters, wherever a `.git` file or an index says that they lie."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from substrat.core.workspaces import git_config, git_hiding, git_index
from substrat.daemon.kernel import nofollow
from substrat.daemon.workspaces import gitlink, hiding
from substrat.daemon.workspaces.git_programs import LONGEST_CONFIG
from substrat.paths import is_within

if TYPE_CHECKING:
    from collections.abc import Iterable

    from substrat.daemon.workspaces.git_scan import GitScan
    from substrat.daemon.workspaces.scan_record import ScanRecord


class NestedScan:
    """Follows a workspace's repositories to those nested in them.

    Args:
        record: where the paths are recorded.
        git: protects the git directories that are found.
        private: directories of the host in which the agent writes and nothing can be protected.
    """

    def __init__(self, record: ScanRecord, git: GitScan, private: tuple[str, ...]) -> None:
        self._record = record
        self._git = git
        self._private = private
        self._index_bytes = record.bounds.index_bytes
        self._gitlinks = record.bounds.gitlinks

    def nested(self, shared: tuple[str, ...]) -> None:
        """Look at the repositories that git on the host enters, wherever a `.git` leads or an index says that they lie.

        Args:
            shared: git directories elsewhere that the workspace's repository is in.
        """
        self._record.strict = False
        self._record.give_time()
        for worktree, git in self._git.worktrees:  # which grows by those that are found
            own = gitlink.led_to(git)
            if own is None:
                continue
            if any(map(self._is_private, (own, gitlink.joined_by(own) or own))):
                self._record.led_outside[git] = None
            self._git.follow(own)
            if self._record.is_inside(own) or any(is_within(own, one) for one in shared):
                self._enter_gitlinks(worktree, own)

    def _is_private(self, path: str) -> bool:
        return any(is_within(path, one) for one in self._private) and not self._record.is_inside(path)

    def _enter_gitlinks(self, worktree: str, own: str) -> None:
        """Look at the nested repositories that an index names, where the walk doesn't enter and behind links too."""
        for name in self._gitlinks_of(own):
            path = os.path.normpath(os.path.join(worktree, os.fsdecode(name)))
            if self._record.is_out_of_time:
                self._record.unread.append(f"{own}/index")
                return
            target = gitlink.real(path)
            if target is None or target in self._record.roots or not self._record.is_inside(target):
                continue
            with self._record.forgiving(path):
                if os.path.islink(path):
                    self._record.note_link(path)
                with suppress(FileNotFoundError, NotADirectoryError), nofollow.opened(target) as directory:
                    found = os.stat(".git", dir_fd=directory, follow_symlinks=False)
                    self._git.repository(".git", found, directory, target)

    def _gitlinks_of(self, own: str) -> Iterable[bytes]:
        """Return which nested repositories the index of a git directory names, and note the files that it marks.

        As far as there is room.
        """
        config = nofollow.read_small(f"{gitlink.joined_by(own) or own}/config", LONGEST_CONFIG) or b""
        path, unread = f"{own}/index", len(self._record.unread)
        data = self._index(path)
        names: dict[bytes, None] = {}
        for digest in (20, 32) if b"objectformat" in config.lower() else (20,):
            found = [git_index.read(data, self._gitlinks - len(names), digest)]
            if (base := found[0].base) is not None:
                shared = self._index(f"{own}/sharedindex.{base}")
                found.append(git_index.read(shared, self._gitlinks - len(names), digest))
            for one in found:
                names.update(dict.fromkeys(one.paths))
            if not all(one.is_all for one in found):
                self._record.unread.append(path)
            if digest == git_config.digest_bytes(config):
                is_read = len(self._record.unread) == unread and all(one.is_whole for one in found)
                lines = git_hiding.bounded(line.decode("utf-8", "replace") for one in found for line in one.marked)
                if lines or not is_read:
                    self._record.hiding[path] = lines if is_read else (*lines, *hiding.UNREAD)
        self._gitlinks -= len(names)
        return names

    def _index(self, path: str) -> bytes:
        """Return an index's bytes, none if it is missing; one that is no regular file of bearable size is noted."""
        data = nofollow.read_small(path, self._index_bytes)
        if data is None:
            if os.path.lexists(path):
                self._record.unread.append(path)
            return b""
        self._index_bytes -= len(data)
        return data
