"""An agent's sandbox as a `Spec`: what it sees, its environment, its command. A pure function over what was found."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from sandbox.netrelay import PORT
from sandbox.spec import Bind, Devices, Directory, Mount, Network, NetworkMode, Processes, ReadOnly, Spec, Symlink, Tmpfs
from substrat.core.netfilter.names import AllowList
from substrat.core.programs.table import PROGRAM
from substrat.daemon.sandboxes import authorities
from substrat.daemon.state.layout import (
    COMPANION_IN_SANDBOX,
    OWN_MCP_IN_SANDBOX,
    RELAY_IN_SANDBOX,
    SOCKET_DIR_IN_SANDBOX,
    SSH_AGENT_IN_SANDBOX,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from substrat.core.agents.environment import Variables
    from substrat.core.agents.records import Agent
    from substrat.daemon.sandboxes.program import Program
    from substrat.daemon.sandboxes.protected_paths import ProtectedPaths
    from substrat.daemon.sandboxes.workspace import User
    from substrat.daemon.state.layout import AgentDir

_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_PASSED_ON = (*PROGRAM.login.variables, "LANG", "LC_ALL", "TZ")
"""What an agent gets of the daemon's own environment: its login, and how to write times and texts."""

_PROXY_ADDRESS = f"http://127.0.0.1:{PORT}"
_LOCAL = "localhost,127.0.0.1,::1"
# Half of all programs read the one spelling, half the other; node asks to be told that it may (nodejs.org/api/cli.html).
_PROXY = {
    **dict.fromkeys(("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"), _PROXY_ADDRESS),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), _LOCAL),
    "NODE_USE_ENV_PROXY": "1",
}


_MOUNT_POINTS = 64 * 1024
"""The size of a directory in memory that holds nothing but mount points: they take a page each at most."""
_WRITABLE_PARENTS = frozenset({".config", ".local", ".local/bin", ".local/lib", ".local/share", ".local/state"})
"""Directories of the home in which programs make files of their own, also where something is mounted below."""


class HostFacts(NamedTuple):
    """What is the same for every agent of a daemon.

    Args:
        user: who agents are.
        program: the agent program.
        companion: the companion's file on the host.
        companion_needs: what its interpreter needs to be visible.
        python: that interpreter.
        relay: the proxy form's relay, a file on the host.
        system: the operating system's mounts.
        bind_ro: further visible paths, from the configuration.
        hidden: directories no agent may see even if they lie below something visible.
        memory_dir_bytes: the size of each in-memory directory.
        environ: the daemon's own environment.
        resolv_conf: the host's real resolver configuration.
        limits: what each process may use.
        path: directories that stand on PATH before the system's, from the configuration.
        variables: what every agent's environment has besides, from the configuration.
        authorities: the file of all certificate authorities, if there are any besides the system's.
        bundles: the system's files in whose place it is shown.
        has_ssh_agent: whether the agent's ssh-agent is still there.
    """

    user: User
    program: Program
    companion: str
    companion_needs: tuple[str, ...]
    system: tuple[Mount, ...]
    bind_ro: tuple[str, ...]
    hidden: tuple[str, ...]
    memory_dir_bytes: int
    environ: dict[str, str]
    resolv_conf: str
    limits: tuple[tuple[str, int], ...] = ()
    python: str = ""
    relay: str = ""
    path: tuple[str, ...] = ()
    variables: Variables = ()
    authorities: str = ""
    bundles: tuple[str, ...] = ()
    has_ssh_agent: bool = False

    @property
    def visible(self) -> tuple[str, ...]:
        """What every agent sees of the host read-only besides the system."""
        return (*self.program.visible, *self.companion_needs, *self.bind_ro, *self.path)


def spec(
    agent: Agent,
    place: AgentDir,
    around: HostFacts,
    command: tuple[str, ...],
    guard: ProtectedPaths,
    form: NetworkMode = NetworkMode.TRANSPARENT,
    chat: str | None = None,
) -> Spec:
    """Return the sandbox of an agent's turn.

    Args:
        agent: the agent.
        place: its directories.
        around: what is the same for every agent.
        command: the program and its arguments.
        guard: what is protected in the workspace.
        form: how it comes by a `filtered` network, if it has one.
        chat: the directory of the agent's session among the user's chats, if it is there.
    """
    is_proxied = agent.policy.network is Network.FILTERED and form is NetworkMode.PROXY
    mounts = (
        *around.system,
        *_machine(around),
        *_home(agent, place, around, chat),
        *(Bind(path, path) for path in dict.fromkeys(around.visible)),
        *(Tmpfs(path, mode=0o700) for path in _exposed(agent, around)),
        *_etc(agent, place, around, has_names=not is_proxied),
        *_trusted(around),
        *_ssh(agent, around),
        Bind(around.companion, COMPANION_IN_SANDBOX),
        Bind(place.own_mcp_json, OWN_MCP_IN_SANDBOX),
        Bind(place.socket_dir, SOCKET_DIR_IN_SANDBOX),
        *([Bind(around.relay, RELAY_IN_SANDBOX)] if is_proxied else []),
        *_workspace(agent, place, guard),
    )
    mounts = (*mounts, *_parents(mounts, around), ReadOnly("/run/substrat"), ReadOnly("/dev"))
    policy = agent.policy
    ports = AllowList.of(policy.allow).ports if policy.network is Network.FILTERED and not is_proxied else ()
    program = (around.python, "-I", "-S", RELAY_IN_SANDBOX, str(PORT), place.network_socket_in_sandbox)
    return Spec(
        command, environment(agent, around, is_proxied=is_proxied), mounts, agent.workspace, agent.name, policy.network,
        around.limits, ports, program if is_proxied else (), _ids(around.user),
        variables(agent, around, is_proxied=is_proxied),
    )  # fmt: skip


def _ids(user: User) -> tuple[int, int] | None:
    return None if user.inside == user else (user.inside.uid, user.inside.gid)


def environment(agent: Agent, around: HostFacts, *, is_proxied: bool = False) -> tuple[tuple[str, str], ...]:
    """Return what an agent's environment always holds."""
    user = around.user
    built = {
        "HOME": user.home,
        "USER": user.inside.name,
        "LOGNAME": user.inside.name,
        "SHELL": "/bin/sh",
        "PATH": _PATH,
        "TERM": "dumb",
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",  # noqa: S108 - the sandbox's own
        "SUBSTRAT_AGENT": agent.name,
    }
    built.update({name: around.environ[name] for name in _PASSED_ON if around.environ.get(name)})
    if is_proxied:
        built.update(_PROXY)
    return tuple(sorted(built.items()))


def variables(agent: Agent, around: HostFacts, *, is_proxied: bool = False) -> Variables:
    """Return what people have added to an agent's environment; it goes before what is always there, but for the proxy."""
    added = dict(authorities.VARIABLES) if around.authorities else {}
    if around.path:
        added["PATH"] = ":".join((*around.path, _PATH))
    added.update(around.variables)
    added.update(agent.environment)
    if agent.ssh_agent is not None:
        added["SSH_AUTH_SOCK"] = SSH_AGENT_IN_SANDBOX
    return tuple(sorted((name, value) for name, value in added.items() if not is_proxied or name not in _PROXY))


def _machine(around: HostFacts) -> tuple[Mount, ...]:
    size = around.memory_dir_bytes
    return (
        Directory("/etc"),
        Processes(),
        Devices(),
        Tmpfs("/tmp", size, 0o1777),  # noqa: S108 - the sandbox's own
        Tmpfs("/var/tmp", size, 0o1777),  # noqa: S108 - the sandbox's own
        Tmpfs("/run", 16 << 20),
        Tmpfs("/run/substrat", _MOUNT_POINTS),  # a mount can't be renamed
        Tmpfs("/dev/shm", size, 0o1777),  # noqa: S108 - the sandbox's own
    )


def _parents(mounts: tuple[Mount, ...], around: HostFacts) -> Iterator[Mount]:
    """Make mounts of the directories that lie between a writable directory in memory and what is mounted deeper in it.

    An agent could rename such a directory, and with it move what is mounted below: for example `~/.config`, or `~/work` of
    the workspace `~/work/project`. A mount can't be renamed. Most are read-only, so that what a program writes beside a
    workspace fails instead of being lost with the sandbox.
    """
    writable = {mount.target for mount in mounts if isinstance(mount, Tmpfs)}
    targets = {mount.target for mount in mounts if not isinstance(mount, Symlink)}
    home, made = around.user.home, dict[str, Tmpfs]()
    for target in sorted(targets):
        names = target.split("/")
        ancestors = ["/".join(names[:count]) for count in range(2, len(names))]
        nearest = max((at for at, path in enumerate(ancestors) if path in targets), default=None)
        if nearest is None or ancestors[nearest] not in writable:
            continue
        for path in ancestors[nearest + 1 :]:
            if path.removeprefix(home + "/") in _WRITABLE_PARENTS:
                made[path] = Tmpfs(path, around.memory_dir_bytes)
                continue
            made[path] = Tmpfs(path, _MOUNT_POINTS)
            break
    for path, mount in made.items():
        yield mount
        if mount.size == _MOUNT_POINTS:
            yield ReadOnly(path)


def _home(agent: Agent, place: AgentDir, around: HostFacts, chat: str | None) -> Iterator[Mount]:
    """Show a home in memory with the agent's own `.cursor`, of the user's only the login and the agent's own chat.

    Every directory that the agent can write to and that has something mounted in it is itself a mount, so the agent can't
    put a link where the next turn will mount.
    """
    home = around.user.home
    folder, chats = PROGRAM.chats_folder(agent.workspace), f"{home}/{PROGRAM.places.chats}"
    yield Tmpfs(home, around.memory_dir_bytes, 0o700)
    yield Bind(place.dot_cursor, f"{home}/{PROGRAM.places.home}", writable=True)
    yield Bind(place.chats, chats, writable=True)
    yield Bind(f"{place.chats}/{folder}", f"{chats}/{folder}", writable=True, held=True)
    if chat is not None:
        yield Bind(chat, f"{chats}/{folder}/{os.path.basename(chat)}", writable=True, held=True)
    yield Bind(place.cache, f"{home}/.cache", writable=True)
    for name in PROGRAM.places.settings:
        yield Bind(f"{home}/{name}", f"{home}/{name}", optional=True)
    yield Bind(place.gitconfig, f"{home}/.gitconfig")
    yield Bind(place.git, f"{home}/.config/git")


def _workspace(agent: Agent, place: AgentDir, guard: ProtectedPaths) -> Iterator[Mount]:
    """Show the workspace, the git directory it shares and what the policy names, with what is protected in them.

    An agent can rename what it can write to, but not a mount: so what holds something protected is one, over itself.
    """
    cursor = os.path.join(agent.workspace, PROGRAM.places.workspace)
    # Each once, because a descriptor is closed when it is mounted.
    for path in dict.fromkeys((agent.workspace, *guard.shared, *guard.kept, *guard.own)):
        yield Bind(path, path, writable=True, held=True)
    for shown in agent.policy.binds:
        yield Bind(shown.path, shown.path, writable=shown.writable, held=True)
    yield Bind(place.cursor, cursor)
    for path in dict.fromkeys((*guard.closed, *guard.missing)):
        if path != cursor:
            yield Bind(path, path, held=True)


def _etc(agent: Agent, place: AgentDir, around: HostFacts, *, has_names: bool) -> tuple[Mount, ...]:
    own = [Bind(os.path.join(place.etc, name), f"/etc/{name}") for name in ("passwd", "group")]
    if agent.policy.network is Network.HOST:
        names = [Bind("/etc/hosts", "/etc/hosts", optional=True)]
        names.append(Bind(around.resolv_conf, "/etc/resolv.conf", optional=True))
    else:
        names = [Bind(os.path.join(place.etc, "hosts"), "/etc/hosts")]
    if agent.policy.network is Network.FILTERED and has_names:
        names.append(Bind(os.path.join(place.etc, "resolv.conf"), "/etc/resolv.conf"))
    return (*own, *names)


def _trusted(around: HostFacts) -> Iterator[Mount]:
    """Show the authorities that agents trust, also in the place of the system's."""
    if around.authorities:
        for path in (authorities.IN_SANDBOX, *around.bundles):
            yield Bind(around.authorities, path)


def _ssh(agent: Agent, around: HostFacts) -> Iterator[Mount]:
    """Show an ssh-agent's socket, and which hosts' keys the person knows already."""
    if agent.ssh_agent is not None:
        known = f"{around.user.home}/.ssh/known_hosts"
        if around.has_ssh_agent:
            yield Bind(agent.ssh_agent, SSH_AGENT_IN_SANDBOX, held=True)
        yield Bind(known, known, optional=True)


def _exposed(agent: Agent, around: HostFacts) -> list[str]:
    """List the hidden directories that lie below something visible; the workspace was checked not to contain any."""
    system = (mount.source for mount in around.system if isinstance(mount, Bind))
    shown = (*system, *around.visible)
    return [
        hidden
        for hidden in around.hidden
        if any((hidden + "/").startswith(path.rstrip("/") + "/") for path in shown) and hidden != agent.workspace
    ]
