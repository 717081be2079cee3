"""Gathers the facts about this machine that agents depend on, and has `core.diagnosis` judge them; it changes nothing."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING

from sandbox import bwrap, host, namespace_limits, seccomp
from sandbox.spec import Network
from substrat import config as configuration
from substrat import errors, paths
from substrat.core.diagnosis import machine
from substrat.core.diagnosis.machine import BROKEN, GOOD, WEAKER, CheckResult
from substrat.core.programs.table import CURSOR, MOVING, PROGRAMS, moved, on_host
from substrat.daemon.sandboxes import program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["BROKEN", "GOOD", "WEAKER", "CheckResult", "examine"]

_UNIT = "substratd.service"
_CGROUPS = "/sys/fs/cgroup"


def environment_of(told: Mapping[str, str], shells: Mapping[str, str]) -> dict[str, str]:
    """Return the environment to examine: a running daemon's own PATH and places decide, not those of this shell.

    Args:
        told: the variables that the daemon tells of its environment; none where no daemon does.
        shells: the environment of this shell.
    """
    return {**{name: value for name, value in shells.items() if not told or name not in MOVING}, **told}


def examine(environ: Mapping[str, str], programs: Iterable[str] = ()) -> list[CheckResult]:
    """Check everything that agents need.

    Args:
        environ: the environment of the daemon, or of this shell, which a daemon started here would have.
        programs: the agent programs of the daemon's agents, besides those of the configuration.
    """
    loaded, finding = _configuration(environ)
    found, obstacle, busy = _sandboxes(loaded, environ)
    manager = _systemd(environ)
    used = dict.fromkeys((loaded.agent.program, *loaded.programs, *(name for name in programs if name in PROGRAMS)))
    checks: tuple[Callable[[], CheckResult | None], ...] = (
        _python,
        lambda: finding,
        lambda: busy or _bubblewrap(loaded, found),
        lambda: _namespaces(found, obstacle),
        _system_calls,
        lambda: _limits(loaded),
        _kernel,
        lambda: _git(environ),
        *(partial(_of_program, check, environ, loaded, name) for name in used for check in (_agent_program, _login)),
        lambda: _chats(environ) if CURSOR.id in used else None,
        lambda: _network(loaded, None if obstacle else found),
        _cgroups,
        lambda: _disk(environ, loaded),
        lambda: machine.systemd(manager),
        lambda: machine.service(manager),
    )
    return [judged for check in checks if (judged := check()) is not None]


def _python() -> CheckResult:
    return CheckResult("python", GOOD, f"{platform.python_version()} at {sys.executable}")


def _configuration(environ: Mapping[str, str]) -> tuple[configuration.Config, CheckResult]:
    path = paths.config_file(environ)
    old_words: list[str] = []
    try:
        loaded = configuration.load(path, environ, old_words.append)
    except errors.ConfigInvalid as problem:
        fallback = configuration.with_environment(configuration.Config(), environ)
        return fallback, CheckResult("configuration", BROKEN, problem.message, f"correct {path}")
    if old_words:
        return loaded, CheckResult("configuration", WEAKER, "; ".join(old_words), f"edit {path}")
    return loaded, CheckResult("configuration", GOOD, path if os.path.exists(path) else f"defaults ({path} isn't there)")


def _bubblewrap(loaded: configuration.Config, found: host.Bubblewrap | None) -> CheckResult:
    there = machine.Bwrap(found.path, found.version) if found is not None else None
    return machine.bubblewrap(there, loaded.sandbox.bwrap, host.MINIMUM_BWRAP)


def _sandboxes(
    loaded: configuration.Config, environ: Mapping[str, str]
) -> tuple[host.Bubblewrap | None, host.Obstacle | None, CheckResult | None]:
    """Return bubblewrap, why it makes no sandbox here, and the result if nobody knows."""
    try:
        found = host.find_bubblewrap(loaded.sandbox.bwrap or None, environ.get("PATH"))
        return found, host.sandbox_obstacle(found) if found is not None and found.new_enough else None, None
    except host.LookCutShort as problem:
        return None, None, CheckResult("bubblewrap", BROKEN, str(problem), "run `substratctl doctor` again")


def _namespaces(found: host.Bubblewrap | None, obstacle: host.Obstacle | None) -> CheckResult | None:
    if found is None or not found.new_enough:
        return None
    return machine.namespaces(obstacle.reason, obstacle.remedy) if obstacle else machine.namespaces(None, "")


def _system_calls() -> CheckResult:
    known = tuple(seccomp.ARCHITECTURES)
    return machine.system_calls(os.uname().machine, known, has_seccomp=namespace_limits.seccomp_mode() is not None)


def _limits(loaded: configuration.Config) -> CheckResult:
    return machine.limits(
        prlimit=os.access(bwrap.PRLIMIT, os.X_OK),
        setsid=os.access(bwrap.SETSID, os.X_OK),
        process_memory=loaded.sandbox.process_memory,
    )


def _kernel() -> CheckResult:
    release = tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2])
    children = os.path.exists(f"/proc/self/task/{threading.get_native_id()}/children")
    return machine.kernel(machine.Kernel(release, _has_pidfd(), children))


def _has_pidfd() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


def _git(environ: Mapping[str, str]) -> CheckResult:
    path = shutil.which("git", path=environ.get("PATH")) or ""
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return machine.git(None)
    found = re.match(r"git version (\d+)\.(\d+)", said)
    return machine.git((int(found[1]), int(found[2])) if found else None)


def _of_program(
    check: Callable[[Mapping[str, str], configuration.Config, str], CheckResult],
    environ: Mapping[str, str],
    loaded: configuration.Config,
    name: str,
) -> CheckResult:
    """Check something of an agent program; those besides the default one are named, and agents run without them."""
    found = check(environ, loaded, name)
    if name == loaded.agent.program:
        return found
    return found._replace(name=f"{found.name} {name}", state=WEAKER if found.state == BROKEN else found.state)


def _agent_program(environ: Mapping[str, str], loaded: configuration.Config, name: str) -> CheckResult:
    known, binary = PROGRAMS[name], loaded.binary_of(name)
    try:
        path = program.find(binary, environ.get("PATH"), known).path
    except errors.AgentProgramMissing as problem:
        is_there = binary != known.name or shutil.which(binary, path=environ.get("PATH")) is not None
        return machine.agent_program_missing(problem.message, None if is_there else known.install)
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as problem:
        return machine.agent_program(path, None, str(problem))
    return machine.agent_program(path, said)


def _login(environ: Mapping[str, str], loaded: configuration.Config, name: str) -> CheckResult:
    known, home = PROGRAMS[name], _home(environ)
    path = on_host(known.login.file, home, moved(environ))
    given = {**environ, **loaded.env_of(name)}
    return machine.login(
        known.login,
        in_environment=any(given.get(variable) for variable in known.login.variables),
        file=re.sub(f"^{re.escape(home)}/", "~/", path) if os.path.exists(path) else None,
        needed=os.path.basename(loaded.binary_of(name)) not in known.without_login,
    )


def _chats(environ: Mapping[str, str]) -> CheckResult:
    path = on_host(CURSOR.places.chats, _home(environ), moved(environ))
    existing = _existing(path)
    return machine.chats(path, existing, _user(environ), writable=os.access(existing, os.W_OK))


def _network(loaded: configuration.Config, found: host.Bubblewrap | None) -> CheckResult | None:
    default = loaded.sandbox.network
    if default is Network.HOST:
        return machine.network(default.value, None, None, "")
    if found is None or not found.new_enough:
        return None  # without a sandbox there is nothing to try it in
    try:
        python = program.find_python()[0]
    except errors.AgentProgramMissing as problem:
        return machine.network(default.value, None, *problem.message.rsplit(": ", 1))
    try:
        made = host.filtered(found, python, loaded.sandbox.filtered)
    except host.LookCutShort as problem:
        return machine.network(default.value, None, str(problem), "run `substratctl doctor` again")
    reason, remedy = (made.obstacle.reason, made.obstacle.remedy) if made.obstacle else (None, "")
    return machine.network(default.value, made.mode, reason, remedy)


def _cgroups() -> CheckResult:
    if not os.path.exists(f"{_CGROUPS}/cgroup.controllers"):
        return machine.cgroups(machine.CgroupFacts(1 if os.path.isdir(f"{_CGROUPS}/memory") else 0))
    # The user's manager passes its controllers on to services with Delegate=yes, such as substratd.service.
    uid = os.geteuid()
    path = f"{_CGROUPS}/user.slice/user-{uid}.slice/user@{uid}.service/cgroup.controllers"
    try:
        with open(path, encoding="ascii") as file:
            return machine.cgroups(machine.CgroupFacts(2, frozenset(file.read().split()), _systemd_version()))
    except OSError:
        return machine.cgroups(machine.CgroupFacts(2))


def _systemd_version() -> int:
    try:
        said = subprocess.run(["systemctl", "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.match(r"systemd (\d+)", said)
    return int(found[1]) if found else 0


def _disk(environ: Mapping[str, str], loaded: configuration.Config) -> CheckResult:
    path = _existing(paths.state_dir(environ))
    return machine.disk(path, shutil.disk_usage(path).free, loaded.disk.free)


def _systemd(environ: Mapping[str, str]) -> machine.Systemd:
    user, home = _user(environ), _home(environ)
    unit = os.path.join(environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config"), "systemd", "user", _UNIT)
    return machine.Systemd(
        running=os.path.isdir("/run/systemd/system"),
        manager=os.path.exists(os.path.join(environ.get("XDG_RUNTIME_DIR") or "/nonexistent", "systemd", "private")),
        lingers=os.path.exists(f"/var/lib/systemd/linger/{user}"),
        user=user,
        unit=unit,
        installed=os.path.exists(unit),
    )


def _existing(path: str) -> str:
    """Return a path, or the nearest directory above it that exists."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def _user(environ: Mapping[str, str]) -> str:
    return environ.get("USER") or str(os.geteuid())


def _home(environ: Mapping[str, str]) -> str:
    return os.path.abspath(environ.get("HOME") or os.path.expanduser("~"))
