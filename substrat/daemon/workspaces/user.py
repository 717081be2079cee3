"""Who agents are: the user of their processes, outside and inside."""

from __future__ import annotations

import os
import pwd
from typing import NamedTuple

from substrat.core.programs.table import moved, on_host

_ORDINARY_NAME, _ORDINARY_ID = "agent", 1000
"""Who root's agents are inside: the first ordinary user of most systems."""


class User(NamedTuple):
    """The user whose processes the agents are, as the host sees them."""

    name: str
    uid: int
    gid: int
    home: str
    moved: tuple[tuple[str, str], ...] = ()
    """Places of the agent programs that variables have moved (`table.moved`)."""

    @classmethod
    def current(cls, environ: dict[str, str]) -> User:
        """Return the daemon's own user; `HOME` decides where home is."""
        uid, gid = os.geteuid(), os.getegid()
        try:
            entry = pwd.getpwuid(uid)
            name, home = entry.pw_name, entry.pw_dir
        except KeyError:
            name, home = f"u{uid}", "/"
        places = tuple((place, os.path.realpath(directory)) for place, directory in moved(environ))
        return cls(name, uid, gid, os.path.realpath(environ.get("HOME") or home), places)

    def place(self, path: str) -> str:
        """Return where the host has a place of an agent program's, such as `.cursor/chats` of the home directory."""
        return on_host(path, self.home, self.moved)

    @property
    def inside(self) -> User:
        """The same user as sandboxes show it: root's agents find an ordinary uid and gid with a name.

        Programs that unpack archives (tar, node's) give files to the owners that an archive names when they find uid 0, and
        fail, because a sandbox has no capability for that. On the host it is still root, so this protects nothing.
        """
        found = ids_inside(self.uid)
        return User(_ORDINARY_NAME, *found, self.home, self.moved) if found is not None else self

    @property
    def has_home(self) -> bool:
        """Whether home is a directory that can be shown empty without hiding the system."""
        return self.home == "/root" or self.home not in SYSTEM_PLACES


def ids_inside(uid: int) -> tuple[int, int] | None:
    """Return the uid and gid with which a user's processes find themselves in sandboxes; None: those that they have.

    All sandboxes agree, because a clone's index says who owns each file, and git reads a file anew where that differs.
    """
    return (_ORDINARY_ID, _ORDINARY_ID) if uid == 0 else None


SYSTEM_PLACES = frozenset(  # none of them is written to here: they must not become a workspace
    {"/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/mnt", "/opt", "/proc", "/root", "/run", "/sbin",
     "/srv", "/sys", "/tmp", "/usr", "/var", "/var/tmp"}  # noqa: S108
)  # fmt: skip
