"""Finds the files in a workspace that git's configuration makes it run or read, by the tables of `core`'s `git_config`.

An example: `core.hooksPath = tools/hooks` in `.git/config` makes git run `tools/hooks/pre-commit`, which the agent could
write.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from substrat.core.workspaces import git_config
from substrat.daemon.kernel import nofollow
from substrat.paths import is_within

if TYPE_CHECKING:
    from collections.abc import Iterator

    from substrat.core.workspaces.git_config import Reference

LONGEST_CONFIG = 256 * 1024
"""Bytes; a longer configuration isn't a person's."""
_ALL_CONFIGS = 1024 * 1024
"""Bytes of all configurations of a workspace: reading one takes Python a second for some 2 MiB."""
_MOST_REFERENCES = 512
"""Places that all configurations of a workspace name: each is looked up, and a person's have some tens."""
MOST_FILES = 32
"""How many included files are read; git itself follows ten levels (git-config(1), "Includes")."""


def user_configs(home: str, config_home: str | None) -> tuple[str, ...]:
    """Return git's configuration files that hold for all repositories of a user (git-config(1), "FILES")."""
    below = config_home or os.path.join(home, ".config")
    return ("/etc/gitconfig", os.path.join(home, ".gitconfig"), os.path.join(below, "git", "config"))


class Programs(NamedTuple):
    """The programs and files that git's settings name in a workspace.

    Args:
        present: files and directories in the workspace that are to be read-only.
        absent: directories of hooks that aren't there yet.
        unsettled: settings whose program can't be told from the setting, each with a sentence.
    """

    present: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    unsettled: tuple[tuple[str, str], ...] = ()

    def joined(self, other: Programs) -> Programs:
        """Return both, each once."""
        return Programs(
            tuple(dict.fromkeys((*self.present, *other.present))),
            tuple(dict.fromkeys((*self.absent, *other.absent))),
            tuple(dict.fromkeys((*self.unsettled, *other.unsettled))),
        )


class ConfigBudget:
    """How much of git's configuration is still looked at in a workspace, where an agent can make any number of them."""

    def __init__(self) -> None:
        self.bytes = _ALL_CONFIGS
        self.references = _MOST_REFERENCES

    @property
    def is_used_up(self) -> bool:
        """Whether something was left out."""
        return self.bytes < 0 or self.references < 0


def programs_of(
    repository: str,
    worktree: str,
    user_configs: tuple[str, ...],
    roots: tuple[str, ...],
    budget: ConfigBudget | None = None,
) -> Programs:
    """Find the files that a repository's configuration and the user's own make git run or read where an agent may write.

    Args:
        repository: the git directory.
        worktree: the directory in which git runs hooks and commands.
        user_configs: the user's configuration files, by their paths.
        roots: where the agent may write.
        budget: how much may be looked at in all; used up by this.
    """
    search = _Search(worktree, roots, budget or ConfigBudget())
    for path in (f"{repository}/config", f"{repository}/config.worktree", *user_configs):
        search.config(path)
    return search.found


class _Search:
    """Reads configuration files and the files that they include."""

    def __init__(self, worktree: str, roots: tuple[str, ...], budget: ConfigBudget) -> None:
        self._budget = budget
        self._worktree = worktree
        self._roots = roots
        self._read: set[str] = set()
        self.found = Programs()

    def config(self, path: str) -> None:
        """Take up a configuration file, if it is there, and those that it includes."""
        if path in self._read or len(self._read) >= MOST_FILES or self._budget.is_used_up:
            return
        self._read.add(path)
        data = nofollow.read_small(os.path.realpath(path), LONGEST_CONFIG)
        if data is None:
            return
        self._budget.bytes -= len(data)
        if self._budget.is_used_up:
            return
        for reference in git_config.references(git_config.parse(data).settings):
            self._budget.references -= 1
            if self._budget.is_used_up:
                return
            for one in self._resolved(reference, os.path.dirname(path)):
                self.found = self.found.joined(one)

    def _resolved(self, reference: Reference, directory: str) -> Iterator[Programs]:
        base = directory if reference.base == "file" else self._worktree
        path = os.path.normpath(os.path.join(base, os.path.expanduser(reference.path)))
        if reference.kind == "config":
            self.config(path)
        if reference.kind == "modules":
            if any(is_within(path, root) for root in self._roots):
                yield self._unsettled(reference, f"an interpreter that takes modules from {path}")
            return
        if not any(is_within(path, root) and path != root for root in self._roots):
            return
        if reference.kind == "script":
            yield self._unsettled(reference, f"{path}, which takes modules from {os.path.dirname(path)}")
            return
        if reference.kind in {"program", "command", "value"}:
            yield from self._program(reference, path)
            return
        kind = _kind(path)
        if kind == "missing" and reference.kind == "hooks" and _kind(os.path.dirname(path)) == "directory":
            yield Programs(absent=(path,))
        elif kind in {"file", "directory"}:
            yield Programs(present=(path,))
        else:
            yield self._unsettled(reference, f"{path}, which {'is not there yet' if kind == 'missing' else 'is a link'}")

    def _program(self, reference: Reference, path: str) -> Iterator[Programs]:
        word = reference.path
        if os.path.basename(word) in git_config.RUNS_THE_WORKSPACE:
            yield self._unsettled(reference, f"{word}, which runs files of the workspace")
        elif (kind := _kind(path)) == "file":
            yield Programs(present=(path,))
        elif kind == "link" or (kind == "missing" and self._is_certain(reference, path)):
            yield self._unsettled(reference, f"{path}, which {'is not there yet' if kind == 'missing' else 'is a link'}")

    def _is_certain(self, reference: Reference, path: str) -> bool:
        """Say whether something that isn't there is a path all the same, and no branch or part of a pattern."""
        word = reference.path
        if reference.kind == "command" or word.startswith(("./", "../", "~/", self._worktree)):
            return True
        return reference.kind == "value" and not word.endswith("/") and _kind(os.path.dirname(path)) == "directory"

    def _unsettled(self, reference: Reference, program: str) -> Programs:
        text = f"git's setting {reference.setting} runs {program}: the agent may change that, and git on the host runs it"
        return Programs(unsettled=((reference.setting, text),))


def _kind(path: str) -> str:
    """Return a path's kind: `file`, `directory`, `link` (itself, or on the way), `missing` or `other`."""
    try:
        with nofollow.opened(path) as found:
            mode = os.fstat(found).st_mode
    except FileNotFoundError:
        return "missing"
    except OSError:
        return "link"
    return "file" if stat.S_ISREG(mode) else "directory" if stat.S_ISDIR(mode) else "other"
