"""Builds an agent's sandbox as a `Spec`: its mounts, its environment, its command. Pure."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sandbox.netrelay import PORT
from sandbox.spec import Bind, Devices, Directory, Mount, Network, NetworkMode, Processes, ReadOnly, Spec, Symlink, Tmpfs
from substrat.core.netfilter.names import AllowList
from substrat.core.programs.program import GENERATED, HOOK
from substrat.core.programs.table import CURSOR, chats_folder, program_of
from substrat.daemon.sandboxes import authorities, clone_mounts
from substrat.daemon.state.layout import (
    COMPANION_IN_SANDBOX,
    OWN_MCP_IN_SANDBOX,
    RELAY_IN_SANDBOX,
    SHARED_IN_SANDBOX,
    SOCKET_DIR_IN_SANDBOX,
    SSH_AGENT_IN_SANDBOX,
)
from substrat.daemon.workspaces.user import ids_inside
from substrat.paths import is_within

if TYPE_CHECKING:
    from collections.abc import Iterator

    from substrat.core.agents.environment import Variables
    from substrat.core.agents.records import Agent
    from substrat.daemon.sandboxes.program import Program
    from substrat.daemon.state.layout import AgentDir
    from substrat.daemon.workspaces.protected_paths import ProtectedPaths
    from substrat.daemon.workspaces.user import User

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_PASSED_ON = ("LANG", "LC_ALL", "TZ")
"""The variables that agents get from the daemon's own environment, besides the login: how to write times and texts."""

_PROXY_ADDRESS = f"http://127.0.0.1:{PORT}"
_LOCAL = "localhost,127.0.0.1,::1"
# Half of all programs read the one spelling, half the other; node asks to be told that it may (nodejs.org/api/cli.html).
_PROXY = {
    **dict.fromkeys(("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"), _PROXY_ADDRESS),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), _LOCAL),
    "NODE_USE_ENV_PROXY": "1",
}
# Java reads no such variable but properties (docs.oracle.com, "Networking Properties").
_JAVA_PROXY = " ".join(
    (*(f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort={PORT}" for scheme in ("http", "https")),
     "-Dhttp.nonProxyHosts=localhost|127.*|[::1]")
)  # fmt: skip


_MOUNT_POINTS = 64 * 1024
"""The size of a directory in memory that holds nothing but mount points: they take a page each at most."""
_WRITABLE_PARENTS = frozenset({".config", ".local", ".local/bin", ".local/lib", ".local/share", ".local/state"})
"""Directories of the home in which programs make files of their own, also where something is mounted below."""


class HostFacts(NamedTuple):
    """Facts about the host that are the same for every agent of a daemon.

    Args:
        user: who agents are.
        program: the agent program.
        companion: the companion's file on the host.
        hook: the hook's file on the host.
        companion_needs: the paths that its interpreter needs to see.
        system: the operating system's mounts.
        bind_ro: further visible paths, from the configuration.
        hidden: directories no agent may see even if they lie below something visible.
        memory_dir_bytes: the size of each in-memory directory.
        environ: the daemon's own environment.
        resolv_conf: the host's real resolver configuration.
        limits: each process's resource limits.
        python: that interpreter.
        relay: the proxy form's relay, a file on the host.
        path: directories that stand on PATH before the system's, from the configuration.
        variables: further variables of every agent, from the configuration.
        authorities: the file of all certificate authorities, if there are any besides the system's.
        bundles: the system's files in whose place it is shown.
        extended_bundle: the system's file of all authorities, if its administrator has added some.
    """

    user: User
    program: Program
    companion: str
    hook: str
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
    extended_bundle: str = ""

    @property
    def visible(self) -> tuple[str, ...]:
        """The paths of the host that every agent sees read-only besides the system."""
        return (*self.program.visible, *self.companion_needs, *self.bind_ro, *self.path)


def spec(
    agent: Agent,
    agent_dir: AgentDir,
    host: HostFacts,
    command: tuple[str, ...],
    protected: ProtectedPaths,
    mode: NetworkMode = NetworkMode.TRANSPARENT,
    chat: str | None = None,
    lent: tuple[Mount, ...] = (),
    further: tuple[Mount, ...] = (),
    *,
    shared: str = "",
) -> Spec:
    """Return the sandbox of an agent's turn.

    Args:
        agent: the agent.
        agent_dir: its directories.
        host: the facts that are the same for every agent.
        command: the program and its arguments.
        protected: the workspace's protected paths.
        mode: how it comes by a `filtered` network, if it has one.
        chat: the directory of the agent's session among the user's chats, if it is there.
        lent: the mounts that show what the agent's clone borrows.
        further: mounts that only this sandbox has.
        shared: the directory of the host that its family shares.
    """
    is_proxied = agent.policy.network is Network.FILTERED and mode is NetworkMode.PROXY
    workspace = tuple(_workspace(agent, agent_dir.cursor, protected, lent))
    mounts = (
        *host.system,
        *_machine(host),
        *_home(agent, agent_dir, host, chat),
        *(Bind(path, path) for path in dict.fromkeys(host.visible)),
        *covers(_system_and_visible(host), tuple(path for path in host.hidden if path != agent.workspace)),
        *_etc(agent, agent_dir, host, has_names=not is_proxied),
        *_trusted(host),
        *_ssh(agent, host),
        Bind(host.companion, COMPANION_IN_SANDBOX),
        *([Bind(agent_dir.program, GENERATED)] if program_of(agent).generate is not None else []),
        *([Bind(host.hook, HOOK)] if program_of(agent).has_hooks else []),
        Bind(agent_dir.own_mcp_json, OWN_MCP_IN_SANDBOX),
        Bind(agent_dir.socket_dir, SOCKET_DIR_IN_SANDBOX),
        *([Bind(shared, SHARED_IN_SANDBOX, writable=True)] if shared else []),
        *([Bind(host.relay, RELAY_IN_SANDBOX)] if is_proxied else []),
        *workspace,
        *further,
    )
    mounts = (*_late(mounts, workspace, agent), *_parents(mounts, host), ReadOnly("/run/substrat"), ReadOnly("/dev"))
    policy = agent.policy
    ports = AllowList.of(policy.allow).ports if policy.network is Network.FILTERED and not is_proxied else ()
    program = (host.python, "-I", "-S", RELAY_IN_SANDBOX, str(PORT), agent_dir.network_socket_in_sandbox)
    return Spec(
        command, environment(agent, host, is_proxied=is_proxied), mounts, agent.workspace, agent.name, policy.network,
        host.limits, ports, program if is_proxied else (), ids_inside(host.user.uid),
        variables(agent, host, is_proxied=is_proxied),
    )  # fmt: skip


def environment(agent: Agent, host: HostFacts, *, is_proxied: bool = False) -> tuple[tuple[str, str], ...]:
    """Return the variables that every agent's environment holds."""
    user = host.user
    built = {
        "HOME": user.home,
        "USER": user.inside.name,
        "LOGNAME": user.inside.name,
        "SHELL": "/bin/sh",
        "PATH": PATH,
        "TERM": "dumb",
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",  # noqa: S108 - the sandbox's own
        # Nobody is there to edit, to page or to log in (git-var(1); `:` is git's own word for no editor).
        "GIT_EDITOR": ":",
        "GIT_SEQUENCE_EDITOR": ":",
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        "SUBSTRAT_AGENT": agent.name,
        "SUBSTRAT_SHARED": SHARED_IN_SANDBOX,
    }
    if trusted := authorities.IN_SANDBOX if host.authorities else host.extended_bundle:
        built.update(dict.fromkeys(authorities.VARIABLES, trusted))
    program = program_of(agent)
    built.update(program.environment)
    if program.places.variable:
        built[program.places.variable] = f"{user.home}/{program.places.home}"
    passed_on = (*program.login.variables, *_PASSED_ON)
    built.update({name: host.environ[name] for name in passed_on if host.environ.get(name)})
    if is_proxied:
        built.update(_PROXY)
        built["JAVA_TOOL_OPTIONS"] = _JAVA_PROXY
    return tuple(sorted(built.items()))


def variables(agent: Agent, host: HostFacts, *, is_proxied: bool = False) -> Variables:
    """Return the variables that people have added for an agent; they override `environment`'s, except the proxy's."""
    added = {"PATH": ":".join((*host.path, PATH))} if host.path else {}
    added.update(host.variables)
    added.update(agent.settings.environment)
    if agent.settings.ssh_agent is not None:
        added["SSH_AUTH_SOCK"] = SSH_AGENT_IN_SANDBOX
    return tuple(sorted((name, value) for name, value in added.items() if not is_proxied or name not in _PROXY))


def _machine(host: HostFacts) -> tuple[Mount, ...]:
    size = host.memory_dir_bytes
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


def _parents(mounts: tuple[Mount, ...], host: HostFacts) -> Iterator[Mount]:
    """Make mounts of the directories that lie between a writable directory in memory and the mounts deeper in it.

    An agent could rename such a directory, and with it move the mounts below: for example `~/.config`, or `~/work` of
    the workspace `~/work/project`. A mount can't be renamed. Most are read-only, so that a program
    can't write beside a workspace, where its files would be lost with the sandbox.
    """
    writable = {mount.target for mount in mounts if isinstance(mount, Tmpfs)}
    targets = {mount.target for mount in mounts if not isinstance(mount, Symlink)}
    home, made = host.user.home, dict[str, Tmpfs]()
    for target in sorted(targets):
        names = target.split("/")
        ancestors = ["/".join(names[:count]) for count in range(2, len(names))]
        nearest = max((at for at, path in enumerate(ancestors) if path in targets), default=None)
        if nearest is None or ancestors[nearest] not in writable:
            continue
        for path in ancestors[nearest + 1 :]:
            if path.removeprefix(home + "/") in _WRITABLE_PARENTS:
                made[path] = Tmpfs(path, host.memory_dir_bytes)
                continue
            made[path] = Tmpfs(path, _MOUNT_POINTS)
            break
    for path, mount in made.items():
        yield mount
        if mount.size == _MOUNT_POINTS:
            yield ReadOnly(path)


def _home(agent: Agent, agent_dir: AgentDir, host: HostFacts, chat: str | None) -> Iterator[Mount]:
    """Show a home in memory with the program's own directory, of the user's only the login and the agent's own chat.

    Every directory that the agent can write to and that has something mounted in it is itself a mount, so the agent can't
    put a link where the next turn will mount.
    """
    home = host.user.home
    program = program_of(agent)
    places = program.places
    yield Tmpfs(home, host.memory_dir_bytes, 0o700)
    yield Bind(agent_dir.home(places.home), f"{home}/{places.home}", writable=True)
    if places.chats:
        folder, chats = chats_folder(agent.workspace), f"{home}/{places.chats}"
        yield Bind(agent_dir.chats, chats, writable=True)
        yield Bind(f"{agent_dir.chats}/{folder}", f"{chats}/{folder}", writable=True, held=True)
        if chat is not None:
            yield Bind(chat, f"{chats}/{folder}/{os.path.basename(chat)}", writable=True, held=True)
    for name, path in places.shown:
        yield Bind(f"{agent_dir.program}/{name}", f"{home}/{places.home}/{path}")
    yield Bind(agent_dir.cache, f"{home}/.cache", writable=True)
    for name in places.settings:
        # The directory of a login holds the person's chats too once a variable of the daemon's or of a shell's moves both.
        directory = host.user.place(name)
        has_chats = is_within(host.user.place(places.chats), directory) or os.path.lexists(f"{directory}/chats")
        shown = program.login.file if has_chats else name
        yield Bind(host.user.place(shown), f"{home}/{shown}", optional=True)
    yield Bind(agent_dir.gitconfig, f"{home}/.gitconfig")
    yield Bind(agent_dir.git, f"{home}/.config/git")


def _workspace(agent: Agent, own_cursor: str, protected: ProtectedPaths, lent: tuple[Mount, ...]) -> Iterator[Mount]:
    """Show the workspace, the git directories it shares, the policy's binds, and the protected paths in them.

    An agent can't rename a mount, so each directory that holds a protected path is mounted over itself.
    """
    cursor = _cursor(agent)
    # Each once, because a descriptor is closed when it is mounted.
    own = (agent.workspace,) if agent.clone is None else ()
    if agent.clone is not None:
        yield from clone_mounts.mounts(agent.clone)
        yield from lent
    for path in dict.fromkeys((*own, *protected.git_dirs, *protected.pinned, *protected.own_git_dirs)):
        yield Bind(path, path, writable=True, held=True)
    for bind in agent.policy.binds:
        yield Bind(bind.path, bind.path, writable=bind.writable, held=True)
    yield Bind(own_cursor, cursor)
    for path in dict.fromkeys((*protected.read_only, *protected.missing)):
        if path != cursor:
            yield Bind(path, path, held=True)


def _cursor(agent: Agent) -> str:
    return os.path.join(agent.workspace, CURSOR.places.workspace)


def _late(mounts: tuple[Mount, ...], workspace: tuple[Mount, ...], agent: Agent) -> Iterator[Mount]:
    """Mark the binds below directories that sandboxes may write, in which an agent could put a link in their way.

    A clone's own aren't marked: only its agent's sandboxes write there, and in each of them these are mounts, which can't
    be renamed.
    """
    written = {mount.target for mount in workspace if isinstance(mount, Bind) and mount.held}
    own: set[str] = set()
    if agent.clone is not None:
        own = {_cursor(agent), *(mount.target for mount in clone_mounts.mounts(agent.clone))}
    for mount in mounts:
        if isinstance(mount, Bind) and mount.target not in own and not written.isdisjoint(_above(mount.target)):
            yield replace(mount, late=True)
        else:
            yield mount


def _above(path: str) -> Iterator[str]:
    while path != "/":
        path = os.path.dirname(path)
        yield path


def _etc(agent: Agent, agent_dir: AgentDir, host: HostFacts, *, has_names: bool) -> tuple[Mount, ...]:
    own = [Bind(os.path.join(agent_dir.etc, name), f"/etc/{name}") for name in ("passwd", "group")]
    if agent.policy.network is Network.HOST:
        names = [Bind("/etc/hosts", "/etc/hosts", optional=True)]
        names.append(Bind(host.resolv_conf, "/etc/resolv.conf", optional=True))
    else:
        names = [Bind(os.path.join(agent_dir.etc, "hosts"), "/etc/hosts")]
    if agent.policy.network is Network.FILTERED and has_names:
        names.append(Bind(os.path.join(agent_dir.etc, "resolv.conf"), "/etc/resolv.conf"))
    return (*own, *names)


def _trusted(host: HostFacts) -> Iterator[Mount]:
    """Show the authorities that agents trust, also in the place of the system's."""
    if host.authorities:
        for path in (authorities.IN_SANDBOX, *host.bundles):
            yield Bind(host.authorities, path)


def _ssh(agent: Agent, host: HostFacts) -> Iterator[Mount]:
    """Show to an agent that may use an ssh-agent which hosts' keys the person knows already."""
    if agent.settings.ssh_agent is not None:
        known = f"{host.user.home}/.ssh/known_hosts"
        yield Bind(known, known, optional=True)


def _system_and_visible(host: HostFacts) -> tuple[str, ...]:
    return (*(mount.source for mount in host.system if isinstance(mount, Bind)), *host.visible)


def covers(visible: tuple[str, ...], hidden: tuple[str, ...]) -> Iterator[Mount]:
    """Put an empty directory over each hidden directory that lies below, or is, a visible one.

    Args:
        visible: paths of the host that a sandbox shows at their own places.
        hidden: directories that it must not show; the workspace was checked not to contain any.
    """
    for path in hidden:
        if any(is_within(path, shown) for shown in visible):
            yield Tmpfs(path, mode=0o700)
