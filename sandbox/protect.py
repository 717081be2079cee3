"""What stays read-only in a writable workspace, because the host would run it: two tables with reasons; it opens nothing.

Everything else in a workspace an agent may write, also what a person runs on purpose: a Makefile, a script, a test. These
are the files that run without anybody asking for them: when a directory is entered or opened, when git is asked anything.
"""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """A name that is protected.

    Args:
        name: the file or directory.
        reason: what the host would do with it.
        new: whether it is refused where it doesn't exist yet, at the top of a workspace.
    """

    name: str
    reason: str
    new: bool = True


# fmt: off
WORKSPACE = (
    Entry(".cursor", "Cursor starts the servers of mcp.json, runs hooks.json and obeys the rules"),
    Entry(".vscode", "VS Code and Cursor run tasks.json's tasks on opening, and the programs that settings.json names"),
    Entry(".idea", "JetBrains' editors run what workspace.xml and runConfigurations name"),
    Entry(".devcontainer", "VS Code runs initializeCommand on the host", new=False),
    Entry(".envrc", "direnv runs it on entering the directory"),
    Entry(".mise.toml", "mise sets variables and runs hooks on entering the directory", new=False),
    Entry(".bashrc", "bash runs it where the workspace is somebody's home"),
    Entry(".bash_profile", "bash runs it at login"),
    Entry(".bash_login", "bash runs it at login"),
    Entry(".profile", "every shell runs it at login"),
    Entry(".zshenv", "zsh runs it always"),
    Entry(".zshrc", "zsh runs it"),
    Entry(".zprofile", "zsh runs it at login"),
    Entry(".exrc", "vim runs it on starting in the directory, with 'exrc'"),
    Entry(".vimrc", "vim runs it, with 'exrc'"),
    Entry(".nvim.lua", "Neovim runs it on starting in the directory, with 'exrc'"),
    Entry(".dir-locals.el", "Emacs evaluates it on opening a file"),
    Entry(".husky", "git runs its hooks where core.hooksPath names it", new=False),
    Entry(".githooks", "git runs its hooks where core.hooksPath names it", new=False),
)
"""In a workspace: at its top, and where they exist further down."""
# fmt: on


class GitEntry(NamedTuple):
    """A name in a git directory that is protected.

    Args:
        name: the file or directory, from the git directory.
        reason: what git on the host would do with it.
        stand_in: what a file in its place holds while there is none; None: an empty directory stands there.
    """

    name: str
    reason: str
    stand_in: bytes | None


GIT = (
    GitEntry("hooks", "git runs what is in it", None),
    GitEntry("config", "core.fsmonitor, core.sshCommand, filters, aliases and more name programs", b""),
    GitEntry("config.worktree", "the same, with extensions.worktreeConfig", b""),
    GitEntry("info/attributes", "chooses among the filters that the person's own configuration names", b""),
    # An empty one would stop git altogether; this one says what is true without it (gitrepository-layout(5)).
    GitEntry("commondir", "names the directory that the configuration and the hooks are taken from instead", b".\n"),
)
"""In a git directory: a repository's `.git`, a bare repository, and those of submodules in `modules`."""

GIT_WORKTREE = ("commondir", "gitdir", "config.worktree")
"""In a git directory's `worktrees/NAME`, where they exist: where a linked worktree's configuration is taken from."""

IS_GIT_DIRECTORY = frozenset({"HEAD", "objects", "refs"})
"""What git takes a directory for a repository by (gitrepository-layout(5))."""

NAMES = frozenset(entry.name for entry in WORKSPACE)

_STAND_INS = {entry.name.rpartition("/")[2]: entry.stand_in for entry in GIT}


def stand_in(path: str) -> bytes | None:
    """Return what a file holds that stands where something protected is missing; None: an empty directory stands there.

    A directory can be removed again without a look at it, because only an empty one can, and git doesn't show it.

    Args:
        path: where something is missing.
    """
    return _STAND_INS.get(path.rpartition("/")[2])
