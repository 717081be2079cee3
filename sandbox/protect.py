"""The files that stay read-only in a writable workspace because the host would run them: two tables with reasons. Pure.

An agent may write everything else in a workspace, also files that a person runs on purpose: a Makefile, a script, a test.
These run unasked: when a directory is entered or opened, when git is asked anything.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple


class Entry(NamedTuple):
    """A name that is protected.

    Args:
        name: the file or directory.
        reason: its use by the host.
        new: whether it is refused where it doesn't exist yet, at the top of a workspace.
        home: whether that is so only in a workspace that is somebody's home: nothing on the host runs it elsewhere.
    """

    name: str
    reason: str
    new: bool = True
    home: bool = False


# fmt: off
WORKSPACE = (
    Entry(".cursor", "Cursor starts the servers of mcp.json, runs hooks.json and obeys the rules"),
    Entry(".vscode", "VS Code and Cursor run tasks.json's tasks on opening, and the programs that settings.json names"),
    Entry(".idea", "JetBrains' editors run what workspace.xml and runConfigurations name"),
    Entry(".devcontainer", "VS Code runs initializeCommand on the host", new=False),
    Entry(".devcontainer.json", "VS Code runs initializeCommand on the host", new=False),
    Entry(".zed", "Zed starts the language servers and tasks that settings.json and tasks.json name", new=False),
    Entry(".claude", "Claude Code runs the hooks that settings.json names", new=False),
    Entry(".mcp.json", "Claude Code starts the servers it names", new=False),
    Entry(".gemini", "Gemini CLI starts the servers and runs the commands that settings.json names", new=False),
    Entry(".codex", "Codex starts the servers that config.toml names", new=False),
    Entry(".kiro", "Kiro starts the servers of settings/mcp.json and runs the hooks in it", new=False),
    Entry(".roo", "Roo Code starts the servers of mcp.json", new=False),
    Entry(".amazonq", "Amazon Q starts the servers of mcp.json", new=False),
    Entry(".windsurf", "Windsurf runs the commands of hooks.json and obeys the rules", new=False),
    Entry(".opencode", "opencode runs the plugins in it", new=False),
    Entry("opencode.json", "opencode starts the servers it names", new=False),
    Entry("opencode.jsonc", "opencode starts the servers it names", new=False),
    Entry(".qwen", "Qwen Code starts the servers and runs the commands that settings.json names", new=False),
    Entry(".continue", "Continue starts the servers it names", new=False),
    Entry(".trae", "Trae starts the servers of mcp.json", new=False),
    Entry(".factory", "Factory's droid starts the servers of mcp.json and runs the hooks of settings.json", new=False),
    Entry(".junie", "Junie starts the servers it names", new=False),
    Entry(".amp", "Amp starts the servers that settings.json names", new=False),
    Entry(".codebuddy", "CodeBuddy runs the hooks that settings.json names", new=False),
    Entry(".iflow", "iFlow starts the servers and runs the hooks that settings.json names", new=False),
    Entry(".clinerules", "Cline runs what is in hooks and obeys the rules", new=False),
    Entry("crush.json", "Crush starts the servers it names", new=False),
    Entry(".crush.json", "Crush starts the servers it names", new=False),
    Entry(".aider.conf.yml", "aider runs the lint and test commands it names", new=False),
    Entry(".theia", "Theia runs the tasks of tasks.json and obeys settings.json", new=False),
    Entry(".kateproject", "Kate starts the language servers that it names", new=False),
    Entry(".helix", "Helix starts the language servers that languages.toml names", new=False),
    Entry(".project", "Eclipse runs the builders it names whenever a file has changed", new=False),
    Entry(".externalToolBuilders", "the programs of Eclipse's builders", new=False),
    Entry(".cursorrules", "Cursor on the host obeys it", new=False),
    Entry(".envrc", "direnv runs it on entering the directory"),
    Entry(".autoenv", "autoenv runs it on entering the directory", new=False),
    Entry(".autoenv.zsh", "zsh-autoenv runs it on entering the directory", new=False),
    Entry(".autoenv.leave", "autoenv runs it on leaving the directory", new=False),
    Entry(".autoenv_leave.zsh", "zsh-autoenv runs it on leaving the directory", new=False),
    Entry(".mise", "mise reads config.toml in it", new=False),
    Entry("mise", "mise reads config.toml in it; it lies at the top or in .config, with conf.d", new=False),
    Entry(".rtx.toml", "mise under its old name", new=False),
    Entry(".shadowenv.d", "shadowenv runs what is in it on entering the directory", new=False),
    Entry(".bashrc", "bash runs it where the workspace is somebody's home", home=True),
    Entry(".bash_profile", "bash runs it at login", home=True),
    Entry(".bash_login", "bash runs it at login", home=True),
    Entry(".profile", "every shell runs it at login", home=True),
    Entry(".zshenv", "zsh runs it always", home=True),
    Entry(".zshrc", "zsh runs it", home=True),
    Entry(".zprofile", "zsh runs it at login", home=True),
    Entry(".zlogin", "zsh runs it at login", new=False),
    Entry(".zlogout", "zsh runs it when a login shell ends", new=False),
    Entry(".bash_logout", "bash runs it when a login shell ends", new=False),
    Entry(".bash_aliases", "Debian's .bashrc runs it", new=False),
    Entry(".login", "csh runs it at login", new=False),
    Entry(".cshrc", "csh runs it", new=False),
    Entry(".tcshrc", "tcsh runs it", new=False),
    Entry(".kshrc", "ksh runs it", new=False),
    Entry(".gitconfig", "git obeys it where the workspace is somebody's home", new=False),
    Entry(".exrc", "vim runs it on starting in the directory, with 'exrc'"),
    Entry(".vimrc", "vim runs it, with 'exrc'"),
    Entry(".nvimrc", "Neovim runs it, with 'exrc'", new=False),
    Entry(".gvimrc", "gvim runs it, with 'exrc'", new=False),
    Entry(".nvim.lua", "Neovim runs it on starting in the directory, with 'exrc'"),
    Entry(".lazy.lua", "lazy.nvim runs it on starting in the directory", new=False),
    Entry(".lvimrc", "the plugin localvimrc runs it on opening a file", new=False),
    Entry("coc-settings.json", "coc.nvim starts the language servers it names; it lies in .vim", new=False),
    Entry(".dir-locals.el", "Emacs evaluates it on opening a file"),
    Entry(".dir-locals-2.el", "Emacs evaluates it on opening a file", new=False),
    Entry(".gdbinit", "gdb runs it on starting in the directory", new=False),
    Entry(".lldbinit", "lldb runs it on starting in the directory", new=False),
    Entry(".Rprofile", "R runs it on starting in the directory", new=False),
    Entry(".irbrc", "irb runs it on starting in the directory", new=False),
    Entry(".pryrc", "pry runs it on starting in the directory", new=False),
    Entry(".pdbrc", "Python's debugger runs it on starting in the directory", new=False),
    Entry(".iex.exs", "iex runs it on starting in the directory", new=False),
    Entry(".ghci", "ghci runs it on starting in the directory", new=False),
    Entry(".ocamlinit", "OCaml runs it on starting in the directory", new=False),
    Entry(".octaverc", "Octave runs it on starting in the directory", new=False),
    Entry(".husky", "git runs its hooks where core.hooksPath names it", new=False),
    Entry(".githooks", "git runs its hooks where core.hooksPath names it", new=False),
    Entry(".pre-commit-config.yaml", "the hook that pre-commit has installed runs the commands it names", new=False),
    Entry("prek.toml", "the hook that prek has installed runs the commands it names", new=False),
    *(
        Entry(f"{dot}lefthook{local}.{form}", "the hook that lefthook has installed runs the commands it names", new=False)
        for dot in ("", ".")
        for local in ("", "-local")
        for form in ("yml", "yaml", "toml", "json", "jsonc")
    ),
    Entry(".overcommit.yml", "the hook that overcommit has installed runs the commands it names", new=False),
    Entry("captainhook.json", "the hook that CaptainHook has installed runs the commands it names", new=False),
    Entry(".lfsconfig", "git-lfs gives files to the address it names, and takes files from there", new=False),
    Entry("hgrc", "Mercurial runs the hooks and extensions it names; it lies in .hg", new=False),
    Entry("hgrc-not-shared", "the same for one of the directories that share a Mercurial repository", new=False),
)
"""In a workspace: at its top, and where they exist further down. A name that isn't refused where it doesn't exist yet is
told when it appears, and stays in the agent's attention until a person has accepted it: each refused name costs an empty
placeholder in the workspace while a turn runs."""

_OF_A_KIND = re.compile(r".*\.(code-workspace|sublime-project)|\.?mise(\..+)?\.toml", re.DOTALL)
"""Files that are protected by a part of their name, where they exist: VS Code runs the tasks of a workspace file when it is
opened, Sublime Text's plugin LSP starts the servers that a project's settings name, and mise sets variables and runs hooks
on entering the directory, with `MISE_ENV=prod` those of `mise.prod.toml`."""

_IN_DIRECTORY = (".sl", "config")
"""A directory's name, and that of a file which is protected in it: Sapling runs the hooks and extensions that it names."""

LEFT_OUT = {
    "Makefile, package.json, conftest.py, build.rs and the like": "a person runs them by running a build or a test",
    ".gitmodules": "git asks before it runs anything of it (gitmodules(5): `update` takes no command from there)",
    ".gitattributes": "it only chooses among the filters of the person's own configuration, which are protected",
    ".env, .npmrc, .yarnrc.yml, .tool-versions, .python-version": "read by programs that a person starts",
    ".eslintrc.js, eslint.config.js, vite.config.ts and the like": "the project's own code, as a test is; an editor runs "
    "it where a person has said that the workspace is to be trusted",
    ".fleet, .classpath, .sublime-build": "they only offer what a person then starts by a menu",
    ".config, .local, .ssh, .vim, .tmux.conf, .inputrc, .screenrc": "read in a person's home alone, and the person's "
    "own is refused as a workspace; protected names in them are protected",
    ".jj/repo/config.toml": "Jujutsu runs the pager and the tools that it names, but many harmless files have that name",
    ".github, .gitlab-ci.yml": "run by a server after a push, which a person reviews",
    "AGENTS.md, CLAUDE.md": "instructions to other agents, which are ordinary content that agents write",
}
"""Files that are left out on purpose, each with its reason."""
# fmt: on


class GitEntry(NamedTuple):
    """A name in a git directory that is protected.

    Args:
        name: the file or directory, from the git directory.
        reason: its use by git on the host.
        placeholder: the content of a placeholder file while there is none; None: the placeholder is an empty directory.
    """

    name: str
    reason: str
    placeholder: bytes | None


GIT = (
    GitEntry("hooks", "git runs what is in it", None),
    GitEntry("config", "core.fsmonitor, core.sshCommand, filters, aliases and more name programs", b""),
    GitEntry("config.worktree", "the same, with extensions.worktreeConfig", b""),
    GitEntry("info/attributes", "chooses among the filters that the person's own configuration names", b""),
    GitEntry("objects/info/alternates", "names directories that each clone of the repository shows its agent", b""),
    GitEntry("worktrees", "a linked worktree's config.worktree is configuration too", None),
    GitEntry("remotes", "names where `git push` goes without a remote in the configuration; there git runs hooks", None),
    GitEntry("branches", "the same in an older form", None),
    # An empty one would stop git altogether; this one has the same effect as none (gitrepository-layout(5)). libgit2,
    # which cargo and many editors are made with, finds no repository with `.` alone.
    GitEntry("commondir", "names the directory that the configuration and the hooks are taken from instead", b"./\n"),
)
"""In a git directory: a repository's `.git`, a bare repository, and those of submodules in `modules`."""

GIT_COMPARED = {
    "shallow": "git shows no history before the commits it names",
    "info/grafts": "git shows another history",
    "info/exclude": "git shows no new files that it names",
    "refs/replace": "git shows other objects in the place of some",
    "rebase-merge/git-rebase-todo": "`git rebase --continue` runs its exec lines",
    "rebase-merge/strategy": "`git rebase --continue` runs git-merge-NAME",
    "rebase-apply/strategy": "the same in an older form",
    "sequencer/todo": "`git cherry-pick --continue` obeys it",
    "sequencer/opts": "`git cherry-pick --continue` runs git-merge-NAME",
}
"""In a git directory: files that git obeys and that an agent's own git must write, each with its use. They stay
writable, and a turn's end tells those that were changed in it."""

WORKTREES_KEEPERS = ("substrat", "substrat/locked")
"""Made in `worktrees` while a turn runs. git removes that directory with the last worktree in it, and the mount with the
directory; the entry of a locked worktree it never removes, nor does it list one without a `gitdir` (git-worktree(1))."""
_LOCKED = b"Substrat keeps this directory while an agent works here\n"

GIT_WORKTREE = (
    GitEntry("commondir", "names the directory that the configuration and the hooks are taken from", None),
    GitEntry("gitdir", "names the worktree's directory", None),
    GitEntry("config.worktree", "core.fsmonitor and more, with extensions.worktreeConfig", b""),
)
"""In a git directory's `worktrees/NAME`: where a linked worktree's configuration is taken from."""

IS_GIT_DIRECTORY = frozenset({"HEAD", "objects", "refs"})
"""Git takes a directory with these names for a repository (gitrepository-layout(5))."""

IS_JOINED_GIT_DIRECTORY = frozenset({"HEAD", "commondir"})
"""The same where the objects and the configuration lie in the directory that `commondir` names."""

NAMES = frozenset(entry.name for entry in WORKSPACE)
_FOLDED = frozenset(name.lower() for name in NAMES)
_IGNORED = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Characters that a file system which folds case leaves out (DerivedCoreProperties.txt, Default_Ignorable_Code_Point)."""


def folded(name: str) -> str:
    """Return a name as a file system that folds case compares it, for example ext4's directories with `chattr +F`.

    `.Envrc`, `.v\u017fcode` and `.en\u200bvrc` are `.envrc` and `.vscode` there, and elsewhere nothing reads them.
    """
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFD", _IGNORED.sub("", unicodedata.normalize("NFD", name)).casefold())


def is_protected(name: str, directory: str = "") -> bool:
    """Say whether a file or directory in a workspace is protected by its name, in whichever letters (`folded`).

    Args:
        name: the last part of its path.
        directory: the part before it.
    """
    compared = folded(name)
    is_known = compared in _FOLDED or (folded(directory), compared) == _IN_DIRECTORY
    return is_known or _OF_A_KIND.fullmatch(compared) is not None


_FORMER_PLACEHOLDERS = {"commondir": b".\n"}
"""Placeholders of earlier versions; a turn that began with one goes on, and its file is removed with the others."""
_PLACEHOLDERS = {entry.name.rpartition("/")[2]: entry.placeholder for entry in GIT}


def placeholder(path: str) -> bytes | None:
    """Return the content of the placeholder file for a missing protected path; None: the placeholder is an empty directory.

    A directory can be removed again without a look at it, because only an empty one can, and git doesn't show it.

    Args:
        path: the missing path.
    """
    return _LOCKED if path.endswith("/worktrees/substrat/locked") else _PLACEHOLDERS.get(path.rpartition("/")[2])


def is_placeholder(path: str, content: bytes) -> bool:
    """Say whether a file at a path is a placeholder, by its content.

    Args:
        path: where it is.
        content: all that it holds.
    """
    return content in {placeholder(path), _FORMER_PLACEHOLDERS.get(path.rpartition("/")[2])}
