"""A person's git configuration, as git on the host answers where it is to write: reading it runs no program.

Git in sandboxes is given, as values, the settings that decide a merge, and git on the host those that keep it tame.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, NamedTuple

from sandbox.spec import Bind
from substrat.core.workspaces import drivers
from substrat.daemon.sandboxes import build_spec, tame_git

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sandbox.spec import Mount
    from substrat.core.workspaces.drivers import GitSettings, Programs


class PersonsGit(NamedTuple):
    """A person's git configuration in a checkout."""

    settings: GitSettings
    programs: Programs
    rules: Mapping[str, str]
    """The files that `core.attributesFile` and `core.excludesFile` name, by these keys, where they are there."""

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


def found_in(top: str, settings: GitSettings, names: Collection[str], environ: Mapping[str, str]) -> PersonsGit:
    """Return the configuration in a checkout."""

    def is_of_system(name: str) -> bool:
        found = shutil.which(name, path=environ["PATH"])
        return found is not None and os.path.dirname(found) in build_spec.PATH.split(":")

    home = environ.get("HOME", "/")
    usual = os.path.join(environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config"), "git")

    def place(value: str | None, name: str) -> str:
        """Return the path of a file of rules (gitignore(5), gitattributes(5))."""
        if value is None:
            return os.path.join(usual, name)
        path = f"{home}{value[1:]}" if value.startswith("~/") else os.path.expanduser(value)
        return os.path.normpath(os.path.join(top, path)) if path else ""

    rules = {
        "core.attributesFile": place(settings.attributes, "attributes"),
        "core.excludesFile": place(settings.excludes, "ignore"),
    }
    there = {key: path for key, path in rules.items() if os.path.isfile(path)}
    return PersonsGit(settings, drivers.Programs(is_of_system, frozenset(names)), there)
