"""Finds out why a machine forbids user namespaces, and the command that allows them."""

from __future__ import annotations

import os
import shlex
from typing import NamedTuple

_PROFILES = "/etc/apparmor.d"


class Launcher(NamedTuple):
    """The `filtered` network's launcher.

    Args:
        source: where it is.
        installed: where root may put it.
        shebang: the first line it has there.
        attempt: a command that tries it.
    """

    source: str
    installed: str
    shebang: str
    attempt: str


class NamespaceLimits(NamedTuple):
    """The obstacles between a program and a user namespace.

    Args:
        root: whether the program is root's; most of this doesn't hold for root.
        apparmor: AppArmor lets only programs with a profile have one (kernel.apparmor_restrict_unprivileged_userns).
        closed: the kernel lets only root have one (kernel.unprivileged_userns_clone, Debian's and Ubuntu's).
        most: how many there may be (user.max_user_namespaces, namespaces(7)), None where the kernel doesn't say.
        container: the kind of container this is, None for none.
        filtered: whether this process's own system calls are filtered (seccomp(2)).
    """

    root: bool = False
    apparmor: bool = False
    closed: bool = False
    most: int | None = None
    container: str | None = None
    filtered: bool = False


def remedy(limits: NamespaceLimits, program: str) -> str:
    """Return the remedy that lets a program make user namespaces: a command to paste, where there is one.

    Args:
        limits: the machine's limits.
        program: its real path.
    """
    if limits.most == 0:
        where = "on the host: " if limits.container is not None else ""
        return where + setting("user.max_user_namespaces", "10000")
    if limits.container is not None:
        return _in_a_container(limits.container)
    if limits.closed and not limits.root:
        return setting("kernel.unprivileged_userns_clone", "1")
    if limits.apparmor and not limits.root:
        return profile("substrat-bwrap", program)
    if limits.filtered:
        return "start this outside of what filters its system calls (SystemCallFilter= or RestrictNamespaces= of a service)"
    return "see what it says: bwrap --unshare-user --ro-bind / / true"


def filtered_remedy(limits: NamespaceLimits, program: str, launcher: Launcher) -> str:
    """Return the same for the `filtered` network's launcher, which makes its namespaces itself.

    Args:
        limits: the machine's limits.
        program: bubblewrap's real path.
        launcher: the launcher.
    """
    if limits.most != 0 and limits.container is None and (limits.root or not limits.closed):
        if limits.apparmor and not limits.root:
            return install(launcher)
        if not limits.filtered:
            return f"see what it says: {launcher.attempt}"
    return remedy(limits, program)


def install(launcher: Launcher) -> str:
    """Return the command that puts the launcher where only root can write, and gives it a profile of its own.

    As it is, it is run by Python, and a profile for that would be one for everything that Python runs: no better than none.
    """
    place = shlex.quote(launcher.installed)
    directory = shlex.quote(os.path.dirname(launcher.installed))
    made = f"umask 022 && mkdir -p {directory} && rm -f {place} && cat > {place} && chmod 755 {place}"
    loaded = f"{_written('substrat-netlaunch', launcher.installed)} && apparmor_parser -r {_PROFILES}/substrat-netlaunch"
    source = f"{{ echo {shlex.quote(launcher.shebang)}; cat {shlex.quote(launcher.source)}; }}"
    return f"{source} | sudo sh -c {shlex.quote(f'{made} && {loaded}')}"


def setting(name: str, value: str) -> str:
    """Return the command that sets a kernel parameter, now and for the next boots (sysctl.d(5))."""
    return f"echo {name}={value} | sudo tee -a /etc/sysctl.d/60-substrat.conf && sudo sysctl --system"


def profile(name: str, program: str) -> str:
    """Return the command that gives a program a profile that allows user namespaces and forbids nothing (apparmor.d(5))."""
    place = f"{_PROFILES}/{name}"
    return f"{_printed(name, program)} | sudo tee {place} && sudo apparmor_parser -r {place}"


def _written(name: str, program: str) -> str:
    return f"{_printed(name, program)} > {_PROFILES}/{name}"


def _printed(name: str, program: str) -> str:
    lines = ("abi <abi/4.0>,", "include <tunables/global>", f'profile {name} "{program}" flags=(unconfined) {{ userns, }}')
    return "printf '%s\\n' " + " ".join(map(shlex.quote, lines))


def here() -> NamespaceLimits:
    """Look at this machine."""
    most = sysctl("user/max_user_namespaces")
    return NamespaceLimits(
        root=os.geteuid() == 0,
        apparmor=sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1",
        closed=sysctl("kernel/unprivileged_userns_clone") == "0",
        most=int(most) if most is not None and most.isdecimal() else None,
        container=_container(),
        filtered=seccomp_mode() == "2",
    )


def sysctl(name: str) -> str | None:
    """Return a kernel parameter as text, None where the kernel hasn't got it."""
    return _read(f"/proc/sys/{name}")


def seccomp_mode() -> str | None:
    """Return how this process's system calls are filtered (proc(5), status): 0 not, 2 they are; None: the kernel can't."""
    for line in (_read("/proc/self/status") or "").splitlines():
        name, _, value = line.partition(":")
        if name == "Seccomp":
            return value.strip()
    return None


def _in_a_container(kind: str) -> str:
    if kind == "docker":
        off = "--security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined"
        return f"start the container with: docker run {off} IMAGE"
    if kind == "podman":
        return "start the container with: podman run --security-opt seccomp=unconfined --security-opt unmask=ALL IMAGE"
    if kind.startswith("lxc"):
        return "on the host, with the container's name: lxc config set NAME security.nesting true && lxc restart NAME"
    return f"this is a container ({kind}): let it make user namespaces and mount proc, on its host"


def _container() -> str | None:
    """Return the kind of container that this is (the marks are docker's, podman's and systemd's Container Interface)."""
    if os.path.exists("/.dockerenv"):
        return "docker"
    if os.path.exists("/run/.containerenv"):
        return "podman"
    return _read("/run/systemd/container") or None


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None
