"""Describes a sandbox as frozen values: mounts, network, environment.

Nothing here touches the machine. `sandbox.bwrap` turns a `Spec` into arguments, `sandbox.launch` into a command.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Network(StrEnum):
    """Which network a sandbox has, from least to most."""

    NONE = "none"
    FILTERED = "filtered"
    HOST = "host"

    @property
    def reach(self) -> int:
        """How much it reaches, for comparing a child's with its parent's."""
        return _REACH[self]


_REACH = {Network.NONE: 0, Network.FILTERED: 1, Network.HOST: 2}


class NetworkMode(StrEnum):
    """How a sandbox comes by its `filtered` network; the decisions are the same."""

    TRANSPARENT = "transparent"
    """Every address is local, and every connection ends at the daemon: made by a launcher in front of bubblewrap."""
    PROXY = "proxy"
    """There is only a loopback, and on it a proxy that programs must ask: made where the launcher isn't allowed."""


@dataclass(frozen=True, slots=True)
class Bind:
    """A host file or directory made visible.

    Args:
        source: where it is on the host.
        target: where it appears in the sandbox.
        writable: whether the sandbox may change it.
        optional: whether a missing source is left out instead of failing the launch.
        held: whether an agent could put something else in the source's place, so that it is opened before and bound by its
            descriptor; it is there then.
        late: whether an agent could put something else on the way to the target, so that `remount` mounts it, following
            nothing, when bubblewrap's own mounts stand; bubblewrap looks its mount points up by path.
    """

    source: str
    target: str
    writable: bool = False
    optional: bool = False
    held: bool = False
    late: bool = False


@dataclass(frozen=True, slots=True)
class Overlay:
    """A host directory whose files are seen, and of which every change goes elsewhere (bwrap(1), `--overlay`; since 0.11).

    Args:
        target: where it appears in the sandbox.
        lower: the directory, which stays as it is.
        upper: a directory that gets the changes.
        work: an empty directory beside `upper`, which the kernel needs.
    """

    target: str
    lower: str
    upper: str
    work: str


@dataclass(frozen=True, slots=True)
class Tmpfs:
    """An empty directory in memory, gone with the sandbox; `size` in bytes, 0 for the kernel's default."""

    target: str
    size: int = 0
    mode: int = 0o755


@dataclass(frozen=True, slots=True)
class Symlink:
    """A symbolic link made in the sandbox."""

    target: str
    points_to: str


@dataclass(frozen=True, slots=True)
class Directory:
    """An empty directory made in the sandbox."""

    target: str
    mode: int = 0o755


@dataclass(frozen=True, slots=True)
class Processes:
    """A `/proc` of the sandbox's own pid namespace."""

    target: str = "/proc"


@dataclass(frozen=True, slots=True)
class Devices:
    """A `/dev` with only the harmless devices."""

    target: str = "/dev"


@dataclass(frozen=True, slots=True)
class ReadOnly:
    """Makes a mount made earlier read-only."""

    target: str


@dataclass(frozen=True, slots=True)
class Covered:
    """Hides a file or directory of something mounted earlier: it is still there, and no process inside can open it."""

    target: str
    directory: bool = False


Mount = Bind | Overlay | Tmpfs | Symlink | Directory | Processes | Devices | ReadOnly | Covered


@dataclass(frozen=True, slots=True)
class Spec:
    """A whole sandbox.

    Args:
        command: the program and its arguments, as seen from inside.
        environment: the environment of bubblewrap and of the program.
        mounts: in any order; parents are mounted before mounts inside them.
        workdir: where the program starts.
        hostname: the host's name as seen inside.
        network: which network it has.
        limits: the limits of each of its processes, as prlimit(1) names them: ("nofile", 1024); none: the daemon's.
        ports: which TCP ports of others the `filtered` network offers, in its transparent form.
        relay: the command in front of the program that gives it the proxy form of the `filtered` network.
        ids: the uid and gid that its processes find themselves with; None: those that they have outside.
        variables: further variables of the program alone. People choose these, and a loader or an interpreter on the
            host would obey some of them (`LD_LIBRARY_PATH`), with files that an agent has written.
    """

    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    mounts: tuple[Mount, ...]
    workdir: str
    hostname: str = "sandbox"
    network: Network = Network.NONE
    limits: tuple[tuple[str, int], ...] = ()
    ports: tuple[int, ...] = ()
    relay: tuple[str, ...] = ()
    ids: tuple[int, int] | None = None
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def is_launched(self) -> bool:
        """Whether its network is made in front of bubblewrap, which then keeps the one that it finds."""
        return self.network is Network.FILTERED and not self.relay
