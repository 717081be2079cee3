"""Asks what a person's git is configured to do in a repository, once for a landing or a working copy.

git itself answers, in a sandbox that shows his configuration files at their own paths; so conditions and includes count as
they do on the host. The answers go on as values: git on the host is given those that keep it from running other programs.
"""

from __future__ import annotations

import os
import shutil
import stat
from typing import TYPE_CHECKING, NamedTuple

import trio

from sandbox import host
from sandbox.spec import Bind
from substrat.core.workspaces import drivers
from substrat.daemon.clones.git_sandbox import said
from substrat.daemon.sandboxes import build_spec, tame_git
from substrat.daemon.workspaces import git_programs
from substrat.errors import Refused, WorkspaceUnusable
from substrat.paths import is_within

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox.spec import Mount
    from substrat.core.workspaces.clones import Clone
    from substrat.core.workspaces.drivers import GitSettings, Programs
    from substrat.daemon.clones.git_sandbox import GitSandbox
    from substrat.daemon.clones.repository import Repositories

# Prints the settings, an empty entry, and the names at the top of some commits.
_ASK = """\
unset GIT_CONFIG_GLOBAL GIT_CONFIG_NOSYSTEM
git config --list -z --show-scope --includes || exit
printf '\\0'
for commit; do git ls-tree -z --name-only "$commit" || exit; done
"""


class PersonsGit(NamedTuple):
    """A person's git configuration in a repository.

    Args:
        settings: what it says.
        programs: judges its programs.
        rules: the files that `core.attributesFile` and `core.excludesFile` name, by these keys, where they are there.
    """

    settings: GitSettings
    programs: Programs
    rules: Mapping[str, str]

    @property
    def quiet(self) -> dict[str, str]:
        """The settings under which git runs no filter but those that may run."""
        return drivers.quiet_filters(self.settings, self.programs)

    @property
    def variables(self) -> dict[str, str]:
        """The variables of a git in a sandbox that merges as his would, with `mounts`."""
        mergers = drivers.mergers(self.settings, self.programs)
        return tame_git.variables({**tame_git.AGENTS, **self.settings.followed, **self.quiet, **mergers, **self.rules})

    @property
    def mounts(self) -> tuple[Mount, ...]:
        """The mounts that show the files of rules."""
        return tuple(Bind(os.path.realpath(path), path) for path in self.rules.values())


class PersonsGitReader:
    """Reads persons' configurations.

    Args:
        sandbox: runs git.
        repositories: the users' repositories.
        environ: the daemon's own environment.
    """

    def __init__(self, sandbox: GitSandbox, repositories: Repositories, environ: Mapping[str, str]) -> None:
        self._sandbox = sandbox
        self._repositories = repositories
        # git compares `~` without its links to the git directory (git-config(1), "Conditional includes").
        self._home = os.path.realpath(environ.get("HOME", "/"))
        self._config_home = environ.get("XDG_CONFIG_HOME")
        self._path = environ.get("PATH", build_spec.PATH)

    async def read(self, clone: Clone, git_dir: str, commits: tuple[str, ...]) -> PersonsGit:
        """Return the configuration.

        Args:
            clone: the clone whose work is looked at.
            git_dir: the git directory of the checkout that git is to write in.
            commits: the commits among whose files programs would run.

        Raises:
            Refused: git can't read it, or it is too long.
        """
        own = (f"{clone.git_dir}/config", f"{clone.git_dir}/config.worktree", f"{git_dir}/config.worktree")
        paths = (*own, *git_programs.user_configs(self._home, self._config_home))
        try:
            found = await trio.to_thread.run_sync(git_programs.config_files, paths, self._home)
        except WorkspaceUnusable as problem:
            raise Refused(f"the daemon doesn't know what git does in {clone.repository}: {problem.message}") from None
        reading = self._repositories.reading(clone.git_dir)
        shown = (*host.system_roots(), clone.git_dir)
        mounts = tuple(
            Bind(os.path.realpath(path), path) for path in found if not any(is_within(path, root) for root in shown)
        )
        home = {"HOME": self._home, **({"XDG_CONFIG_HOME": self._config_home} if self._config_home else {})}
        done = await self._sandbox.run(
            ("/bin/sh", "-c", _ASK, "sh", *commits), (*reading, *mounts), variables={"GIT_DIR": git_dir, **home}
        )
        if done.status:
            raise Refused(f"git can't read its configuration in {clone.repository}: {said(done)}")
        listing, _, names = done.output.partition(b"\0\0")
        settings = drivers.read(listing)
        programs = drivers.Programs(self._is_of_system, frozenset(os.fsdecode(names).split("\0")))
        rules = {
            "core.attributesFile": (settings.attributes, "attributes"),
            "core.excludesFile": (settings.excludes, "ignore"),
        }
        places = {key: self._place(clone, *value) for key, value in rules.items()}
        return PersonsGit(settings, programs, {key: path for key, path in places.items() if _is_file(path)})

    def _is_of_system(self, name: str) -> bool:
        found = shutil.which(name, path=self._path)
        return found is not None and os.path.dirname(found) in build_spec.PATH.split(":")

    def _place(self, clone: Clone, value: str | None, usual: str) -> str:
        """Return the path of a file of rules (gitignore(5), gitattributes(5))."""
        if value is None:
            return os.path.join(self._config_home or os.path.join(self._home, ".config"), "git", usual)
        path = f"{self._home}{value[1:]}" if value.startswith("~/") else value
        return os.path.normpath(os.path.join(clone.repository, path)) if path else ""


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False
