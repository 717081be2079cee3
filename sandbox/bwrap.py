"""Bubblewrap's arguments for a `Spec`, such as `--ro-bind /usr /usr`. Pure.

Every option is explained in bwrap(1). The environment is not among the arguments: it is given to the process itself,
because arguments are readable by every user of the machine.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sandbox.spec import (
    Bind,
    Covered,
    Devices,
    Directory,
    Mount,
    Network,
    Overlay,
    Processes,
    ReadOnly,
    Spec,
    Symlink,
    Tmpfs,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

STATUS_FD = 3
"""The descriptor that bubblewrap finds open for `--json-status-fd`; `remount` reports there too."""
OPTIONS_FD = 4
"""The descriptor it finds its options in, for `--args`."""
LOCK_FD = 5
"""The descriptor that both of its processes keep open, and nothing in the sandbox, for `--sync-fd`: a lock
held through it is free again when the sandbox is gone, however it ended."""
SECCOMP_FD = 6
"""The descriptor it finds the filter of `sandbox.seccomp` in. It applies it last, so it can still mount and unshare."""
NETWORK_FD = 7
"""The descriptor that the `filtered` network's launcher hands the listeners over on; closed before bubblewrap runs."""
GATE_FD = 8
"""The descriptor of the socket at which a sandbox with late mounts waits for them (`GATE`); `remount` opens it."""
FIRST_SOURCE_FD = 9
"""The first of the descriptors for `--bind-fd`; bubblewrap closes each when it is mounted."""
STAGE = "/run/substrat/late"
"""Where bubblewrap mounts what is moved to its place afterwards; agents can't write there."""
# The sandbox's first program: it says that the mounts stand, and becomes the next program when an empty line answers it.
# Any other line is the sandbox's end, and so is the end of the process that moves the mounts. The shell itself must write,
# without a subshell, because that process enters the writer's namespaces. SIGPIPE would end the shell before its sentence.
GATE = (
    "/bin/sh", "-c",
    f"""trap '' PIPE; printf . 2>/dev/null >&{GATE_FD}; trap - PIPE
if read -r said <&{GATE_FD}; then [ "$said" ] || exec "$@" {GATE_FD}<&-
else said="can't mount: the process that mounts has ended"; fi
echo "substrat: $said" >&2; exit 1""",
    "sh",
)  # fmt: skip
PRLIMIT = "/usr/bin/prlimit"
"""Sets the limits, inside: bubblewrap can't (prlimit(1) is part of util-linux, like mount and su)."""
SETSID = "/usr/bin/setsid"
"""Makes a terminal the command's own, inside (setsid(1) is part of util-linux too)."""

ISOLATION = (
    "--unshare-user",  # makes the rest possible without privileges, and the uid means nothing outside
    "--unshare-ipc",
    "--unshare-pid",  # killing its init kills the whole tree
    "--unshare-uts",
    "--unshare-cgroup",
    "--disable-userns",  # no process inside gets capabilities back by making a namespace of its own
    "--new-session",  # no controlling terminal to push characters into (TIOCSTI)
    "--cap-drop",
    "ALL",
)


def arguments(spec: Spec) -> list[str]:
    """Return bubblewrap's arguments for a shell, where no descriptors are prepared, without the program name in front."""
    return [*options(spec, watched=False), "--", *program(spec)]


def program(spec: Spec) -> tuple[str, ...]:
    """Return the command that bubblewrap executes: the sandbox's own, behind prlimit and the relay where it has them."""
    limits = (f"--{name}={value}" for name, value in spec.limits)
    command = (*spec.relay, *spec.command)
    return (PRLIMIT, *limits, "--", *command) if spec.limits else command


def held(spec: Spec) -> tuple[Bind, ...]:
    """Return the mounts bound by descriptor; started with a turn, the descriptors are those from `FIRST_SOURCE_FD` on."""
    return tuple(mount for mount in ordered(spec.mounts) if isinstance(mount, Bind) and mount.held)


def late(spec: Spec) -> dict[Bind, str]:
    """Return the late mounts, outer ones first, each with the place that bubblewrap mounts it at."""
    found = (mount for mount in ordered(spec.mounts) if isinstance(mount, Bind) and mount.late)
    return {mount: f"{STAGE}/{number}" for number, mount in enumerate(found)}


def options(
    spec: Spec, *, watched: bool = True, descriptors: Mapping[Bind, int] | None = None, tied: bool = False
) -> list[str]:
    """Return bubblewrap's options: everything but the command it runs.

    A turn's have no `--die-with-parent`: it outlives the daemon that started it.

    Args:
        spec: the sandbox.
        watched: whether bubblewrap finds `STATUS_FD`, to report to, `LOCK_FD` and `SECCOMP_FD` open, and late mounts are
            moved to their places afterwards; else it mounts them there itself.
        descriptors: the descriptor of each mount that is `held`.
        tied: whether the sandbox ends with the thread that started it, and with its command.
    """
    reports = ("--json-status-fd", STATUS_FD, "--sync-fd", LOCK_FD, "--seccomp", SECCOMP_FD)
    args = [*(map(str, reports) if watched else ()), *ISOLATION, "--hostname", spec.hostname]
    if spec.ids is not None:
        args += ["--uid", str(spec.ids[0]), "--gid", str(spec.ids[1])]
    if tied:
        args.append("--die-with-parent")
    if spec.network is not Network.HOST and not spec.is_launched:
        args.append("--unshare-net")
    found, stages = descriptors or {}, late(spec) if watched else {}
    for mount in ordered(spec.mounts):
        staged = replace(mount, target=stages[mount]) if isinstance(mount, Bind) and mount in stages else mount
        if isinstance(mount, Bind) and mount in found:
            args += ["--bind-fd" if mount.writable else "--ro-bind-fd", str(found[mount]), staged.target]
        else:
            args += _mount(staged)
    # Last, because bubblewrap itself needs to make mount points in its root until here.
    return [*args, "--remount-ro", "/", "--chdir", spec.workdir]


def ordered(mounts: tuple[Mount, ...]) -> tuple[Mount, ...]:
    """Order mounts so that a parent comes before mounts inside it, later ones covering earlier ones at the same place.

    Late ones come after all others. A read-only remount comes after the binds below it were made, so that their mount
    points could be.

    Args:
        mounts: in any order.
    """
    made = sorted((mount for mount in mounts if not isinstance(mount, ReadOnly)), key=_turn)
    sealed = [mount for mount in mounts if isinstance(mount, ReadOnly)]
    return (*made, *sealed)


def describe(mount: Mount) -> str:
    """Describe a mount in one line, for people."""
    match mount:
        case Bind(source, target, writable):
            place = target if source == target else f"{target} (from {source})"
            return f"{'read-write' if writable else 'read-only '}  {place}"
        case Overlay(target, lower):
            return f"overlay     {target} (over {lower})"
        case Tmpfs(target):
            return f"in memory   {target}"
        case Symlink(target, points_to):
            return f"link        {target} -> {points_to}"
        case Directory(target):
            return f"directory   {target}"
        case Processes(target) | Devices(target):
            return f"its own     {target}"
        case ReadOnly(target):
            return f"sealed      {target}"
        case Covered(target):
            return f"covered     {target}"


def _turn(mount: Mount) -> tuple[bool, int]:
    return isinstance(mount, Bind) and mount.late, 0 if mount.target == "/" else mount.target.rstrip("/").count("/")


def _mount(mount: Mount) -> list[str]:
    match mount:
        case Bind(source, target, writable, optional):
            option = ("--bind" if writable else "--ro-bind") + ("-try" if optional else "")
            return [option, source, target]
        case Processes(target):
            # Root's agents could write to root's files there without a capability, and /proc/sys/kernel/core_pattern names
            # a program that the host runs; bubblewrap covers directories whose mode makes them writable, and misses files.
            return ["--proc", target, "--remount-ro", target]
        case Devices(target):
            return ["--dev", target]
        case Overlay(target, lower, upper, work):
            return ["--overlay-src", lower, "--overlay", upper, work, target]
        case Tmpfs(target, size, mode):
            sized = ["--size", str(size)] if size else []
            return ["--perms", f"{mode:o}", *sized, "--tmpfs", target]
        case Symlink(target, points_to):
            return ["--symlink", points_to, target]
        case Directory(target, mode):
            return ["--perms", f"{mode:o}", "--dir", target]
        case ReadOnly(target):
            return ["--remount-ro", target]
        case Covered(target, directory=True):
            return ["--perms", "0000", "--size", "4096", "--tmpfs", target, "--remount-ro", target]
        case Covered(target):
            # bubblewrap mounts with `nodev`, so opening the device is refused, and executing it too.
            return ["--ro-bind", "/dev/null", target]
