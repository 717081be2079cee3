"""Reads the person's own git configuration, as far as it holds in an agent's sandbox: settings, and two files of rules.

An agent may have written a file that lies in a workspace, or a link there, and could so have the daemon copy a private file
for it. So no file is read, and no link followed, that lies where an agent may write: the worker that reads names each path
before it goes on there, and the daemon says which of them no agent can write to.
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, NamedTuple

from sandbox import host
from substrat.core.workspaces import git_config, person_git
from substrat.core.workspaces.person_git import ATTRIBUTES, EXCLUDES, Layer, Rules
from substrat.daemon.kernel import nofollow
from substrat.daemon.sandboxes import build_spec
from substrat.daemon.workspaces.git_programs import LONGEST_CONFIG, MOST_FILES
from substrat.paths import is_within

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from sandbox.spec import Mount
    from substrat.core.agents.records import Agent
    from substrat.core.workspaces.git_config import Setting
    from substrat.daemon.agents.state import State
    from substrat.daemon.workspaces.user import User

_LONGEST_RULES = 1 << 20
"""Bytes of a file of rules: some ten thousand lines."""
_MOST_LINKS = 40
"""The kernel follows as many (path_resolution(7))."""


class PersonGit(NamedTuple):
    """The person's git configuration, for an agent.

    Args:
        layer: the settings that hold inside.
        filters: the filters whose program isn't visible inside, each with its command.
        unread: the files that aren't read, each with the reason.
        looked: the links and the files that it comes to, also those that it may not follow or read.
    """

    layer: Layer = Layer((Rules(EXCLUDES, b""), Rules(ATTRIBUTES, b"")))
    filters: dict[str, str] = {}  # noqa: RUF012 - nobody changes it
    unread: tuple[tuple[str, str], ...] = ()
    looked: frozenset[str] = frozenset()

    @property
    def lfs(self) -> dict[str, str]:
        """git-lfs's own filter, as far as it is set up and its program is there, for example `filter.lfs.smudge`."""
        return {} if "lfs" in self.filters else person_git.lfs_filter(self.layer)

    @property
    def absent(self) -> tuple[str, ...]:
        """What git in the sandbox lacks of it, each as the end of a sentence that begins with `is without`."""
        return (
            *(f"git's filter {name}, because the sandbox doesn't show all of {shlex.quote(command)}: name the directory in "
              f"`agent.path`" for name, command in self.filters.items()),
            *(f"{path} of your git configuration, which {reason}" for path, reason in self.unread),
        )  # fmt: skip


class Visible(NamedTuple):
    """What an agent's sandbox shows of the host.

    Args:
        roots: the directories and files, by their physical paths.
        path: the directories on `PATH`.
        home: the person's home.
    """

    roots: tuple[str, ...]
    path: tuple[str, ...]
    home: str

    def shows(self, word: str) -> bool:
        """Say whether a program, or the file or directory at an absolute path, is there."""
        if "/" not in word and not word.startswith("~"):
            return any(os.access(f"{directory}/{word}", os.X_OK) for directory in self.path if self._has(directory))
        path = self.home + word[1:] if word.startswith("~/") else word
        return path.startswith("/") and os.path.lexists(path) and self._has(path)

    def _has(self, path: str) -> bool:
        real = os.path.realpath(path)
        return any(is_within(real, root) for root in self.roots)


class PersonGitReader:
    """Reads the configuration for one daemon's agents.

    Args:
        state: the agents; its workers read the configuration, in which a link may lead into a workspace.
        user: whose configuration it is.
        system_mounts: returns the mounts of the operating system.
    """

    def __init__(self, state: State, user: User, system_mounts: Callable[[], tuple[Mount, ...]]) -> None:
        self._registry = state.registry
        self._files = state.files
        self._system_mounts = system_mounts
        self._home = user.home
        self._config_home = state.environ.get("XDG_CONFIG_HOME")
        self._looked = frozenset[str]()

    async def read(self, agent: Agent) -> PersonGit:
        """Read it for an agent; for a private clone with the filters of the repository that it is of."""
        given = self._registry.config.agent
        # A clone's work is kept in a sandbox that shows no more than these.
        roots = (*host.roots(self._system_mounts()), *map(os.path.realpath, (*given.bind_ro, *given.path)))
        visible = Visible(roots, (*given.path, *build_spec.PATH.split(":")), self._home)
        git_dir = agent.clone.git_dir if agent.clone is not None else None
        place, index, looked = git_dir or self._home, self._registry.index, self._looked
        while True:  # each time round it comes to the next links; those of the last read are mostly the same
            safe = frozenset(path for path in looked if index.writable_around(path) is None)
            found = await self._files.run(place, read, self._home, self._config_home, safe, visible, git_dir)
            if found.looked <= looked:
                self._looked = found.looked
                return found
            looked |= found.looked


def read(
    home: str, config_home: str | None, safe: Collection[str], visible: Visible, git_dir: str | None = None
) -> PersonGit:
    """Read the person's configuration; files that are missing or can't be read are left out.

    Args:
        home: the person's home.
        config_home: `XDG_CONFIG_HOME`, None where it isn't set.
        safe: the links and files that lie where no agent may write; at others it stops.
        visible: what the sandbox shows.
        git_dir: the git directory that a clone is of, whose own filters (`git lfs install --local`) the clone has too.
    """
    reader = _Reader(home, safe)
    below = f"{config_home or f'{home}/.config'}/git"
    # The rules that hold where no setting names others come first (gitignore(5), gitattributes(5)).
    rules = (reader.rules(EXCLUDES, f"{below}/ignore"), reader.rules(ATTRIBUTES, f"{below}/attributes"))
    # git reads them in this order, and the last setting counts (git-config(1), "FILES").
    settings = (
        item for path in ("/etc/gitconfig", f"{below}/config", f"{home}/.gitconfig") for item in reader.config(path)
    )
    own = (nofollow.read_small(f"{git_dir}/config", LONGEST_CONFIG) if git_dir is not None else None) or b""
    layer = Layer((*rules, *settings, *filter(person_git.is_filter, git_config.parse(own).settings)))
    return PersonGit(
        layer, person_git.absent_filters(layer, visible.shows), tuple(reader.unread.items()), frozenset(reader.looked)
    )


class _Reader:
    """Reads configuration files, those that they include, and files of rules."""

    def __init__(self, home: str, safe: Collection[str]) -> None:
        self._home = home
        self._safe = safe
        self._left = MOST_FILES
        self.unread: dict[str, str] = {}
        self.looked: set[str] = set()

    def config(self, path: str) -> Iterator[Setting | Rules | Layer]:
        """Yield the items of a configuration file that hold inside, and those of the files that it includes."""
        self._left -= 1
        if self._left < 0:
            self.unread[path] = f"isn't read, because {MOST_FILES} files are read at most"
            return
        data = self._content(path, LONGEST_CONFIG)
        for setting in git_config.parse(data or b"").settings:
            value = setting.value or ""
            match setting.section, setting.key:
                case "include", "path":
                    yield from self.config(self._path(value, path))
                case "includeif", "path":
                    yield Layer(tuple(self.config(self._path(value, path))), _condition(setting.subsection or "", path))
                case "core", ("excludesfile" | "attributesfile") as key:
                    yield self.rules(key, self._path(value, path)) if value else Rules(key, b"")
                case _ if person_git.holds_inside(setting) or person_git.is_filter(setting):
                    yield setting

    def rules(self, key: str, path: str) -> Rules:
        """Return a file of rules; one that is missing has none."""
        return Rules(key, self._content(path, _LONGEST_RULES) or b"")

    def _path(self, value: str, config: str) -> str:
        return os.path.join(os.path.dirname(config), self._home + value[1:] if value.startswith("~/") else value)

    def _content(self, path: str, most: int) -> bytes | None:
        """Return a file's content, None where there is none; one that may not be read, or can't be, is noted."""
        path = os.path.normpath(path)
        try:
            data = nofollow.read_small(self._settled(path), most)
        except _AgentsOwn:
            self.unread[path] = "lies where an agent may write, or a link there leads to it"
            return None
        except OSError as problem:  # a link that has gone since
            self.unread[path] = f"can't be read ({problem.strerror})"
            return None
        if data is None and os.path.lexists(path):
            self.unread[path] = f"can't be read, or isn't a file of at most {most >> 10} KiB"
        return data

    def _settled(self, path: str) -> str:
        """Follow the links on the way to a file, those that no agent can have made; the result has none."""
        links = 0
        done, rest = "", path.split("/")
        while rest:
            at = f"{done}/{name}" if (name := rest.pop(0)) else done
            if name == "..":
                done = os.path.dirname(done).rstrip("/")
            elif os.path.islink(at) and (links := links + 1) <= _MOST_LINKS:
                self._refuse_agents(at)
                target = os.readlink(at)
                rest = [*target.split("/"), *rest]
                done = "" if target.startswith("/") else done
            elif name != ".":
                done = at
        self._refuse_agents(done)
        return done

    def _refuse_agents(self, path: str) -> None:
        self.looked.add(path)
        if path not in self._safe:
            raise _AgentsOwn


class _AgentsOwn(Exception):
    """An agent may have written a file."""


def _condition(condition: str, path: str) -> str:
    """Return a condition that means the same in another file: `gitdir:./` begins at the file that it stands in."""
    kind, colon, pattern = condition.partition(":")
    is_here = kind in {"gitdir", "gitdir/i"} and pattern.startswith("./")
    return f"{kind}{colon}{os.path.dirname(os.path.realpath(path))}/{pattern[2:]}" if is_here else condition
