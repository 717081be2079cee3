"""A person's git configuration, as git on the host answers where it is to write: reading it runs no program.

Git in sandboxes is given, as values, the settings that decide a merge, and git on the host those that keep it tame.
"""

from __future__ import annotations

import os
import shutil
import stat
from typing import TYPE_CHECKING, NamedTuple

from sandbox.spec import Bind
from substrat.core.workspaces import drivers
from substrat.daemon.sandboxes import build_spec, tame_git

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sandbox.spec import Mount
    from substrat.core.workspaces.drivers import GitSettings, Programs
    from substrat.daemon.clones.host_git import HostGit


class PersonsGit(NamedTuple):
    """A person's git configuration in a checkout.

    Args:
        settings: its settings.
        programs: judges its programs.
        rules: the files that `core.attributesFile` and `core.excludesFile` name, by these keys, where they are there.
    """

    settings: GitSettings
    programs: Programs
    rules: Mapping[str, str]

    @property
    def variables(self) -> dict[str, str]:
        """The variables of a git in a sandbox that merges as his would, with `mounts`."""
        quiet = drivers.quiet_filters(self.settings, self.programs)
        mergers = drivers.mergers(self.settings, self.programs)
        return tame_git.variables({**tame_git.AGENTS, **self.settings.followed, **quiet, **mergers, **self.rules})

    @property
    def mounts(self) -> tuple[Mount, ...]:
        """The mounts that show the files of rules."""
        return tuple(Bind(os.path.realpath(path), path) for path in self.rules.values())


class PersonsGitReader:
    """Reads persons' configurations.

    Args:
        host: asks git on the host.
        environ: the daemon's own environment.
    """

    def __init__(self, host: HostGit, environ: Mapping[str, str]) -> None:
        self._host = host
        self._home = environ.get("HOME", "/")
        self._config_home = environ.get("XDG_CONFIG_HOME")

    async def read(self, top: str, names: Collection[str]) -> PersonsGit:
        """Return the configuration; raises `Conflict` where git can't read it.

        Args:
            top: the checkout that git is to write in.
            names: the names at the top of the commits among whose files programs would run.
        """
        settings = await self._host.settings(top)
        path = self._host.path_for(top)

        def is_of_system(name: str) -> bool:
            found = shutil.which(name, path=path)
            return found is not None and os.path.dirname(found) in build_spec.PATH.split(":")

        rules = {
            "core.attributesFile": (settings.attributes, "attributes"),
            "core.excludesFile": (settings.excludes, "ignore"),
        }
        places = {key: self._place(top, *value) for key, value in rules.items()}
        there = {key: path for key, path in places.items() if _is_file(path)}
        return PersonsGit(settings, drivers.Programs(is_of_system, frozenset(names)), there)

    def _place(self, top: str, value: str | None, usual: str) -> str:
        """Return the path of a file of rules (gitignore(5), gitattributes(5))."""
        if value is None:
            return os.path.join(self._config_home or os.path.join(self._home, ".config"), "git", usual)
        path = f"{self._home}{value[1:]}" if value.startswith("~/") else os.path.expanduser(value)
        return os.path.normpath(os.path.join(top, path)) if path else ""


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False
