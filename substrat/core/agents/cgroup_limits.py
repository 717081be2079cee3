"""Translates between limits of sandboxes and the texts of cgroup v2's files. Pure.

The files and their meaning are those of the kernel's Documentation/admin-guide/cgroup-v2.rst.
"""

from __future__ import annotations

from typing import NamedTuple

CONTROLLERS = ("cpu", "memory", "pids")
"""The controllers that limit sandboxes, where systemd has delegated them to the daemon."""
DAEMON = "daemon"
"""Where below the service's cgroup the daemon itself is (`DelegateSubgroup=` of its unit): only a cgroup without processes
of its own can be divided."""
AGENTS = "agents"
"""Where the sandboxes are, each in a cgroup of its own."""

_CPU_PERIOD = 100_000  # microseconds, the kernel's default
_DAEMONS_SHARE = 1000
"""Ten times the share of all agents together: the daemon must answer even while all of them compute."""


class CgroupLimits(NamedTuple):
    """Limits of one sandbox, or of all of them together.

    Args:
        memory: bytes; 0: no limit.
        cpus: processors' time; 0: no limit.
        processes: processes and threads; 0: no limit.
    """

    memory: int = 0
    cpus: float = 0.0
    processes: int = 0


class RanOut(NamedTuple):
    """The resources that a sandbox ran out of.

    Args:
        killed: how many of its processes the kernel killed for want of memory.
        own: whether its own limit was the reason, not all agents' or the machine's.
        forks: how often it could make no further process.
    """

    killed: int = 0
    own: bool = False
    forks: int = 0


class CgroupUse(NamedTuple):
    """The resources that a sandbox uses at the moment.

    Args:
        memory: bytes.
        cpu_seconds: how much processor time it has used.
        processes: processes and threads.
    """

    memory: int | None
    cpu_seconds: float | None
    processes: int | None


def own_path(text: str) -> str | None:
    """Return where in the hierarchy a process is, from its `/proc/PID/cgroup`; None without cgroup v2."""
    for line in text.splitlines():
        if line.startswith("0::/"):
            return line[3:]
    return None


def mount_point(mountinfo: str) -> tuple[str, str] | None:
    """Find where the hierarchy is mounted, from a `/proc/PID/mountinfo` (proc(5)).

    Returns:
        The mount point, and which part of the hierarchy is to be seen there; None when it isn't mounted.
    """
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        if after.startswith("cgroup2 ") and len(fields) > 4:
            return _unescaped(fields[4]), _unescaped(fields[3])
    return None


def directory(own: str, mount: tuple[str, str]) -> str | None:
    """Return the directory of a cgroup, None when it isn't in the part that is mounted."""
    point, root = mount
    inner = own if root == "/" else own.removeprefix(root)
    if root != "/" and not (own + "/").startswith(root + "/"):
        return None
    return f"{point}/{inner.strip('/')}".rstrip("/")


def enabling(available: str) -> str:
    """Return the text for `cgroup.subtree_control` that enables the wanted controllers, for example `+cpu +memory`."""
    return " ".join(f"+{name}" for name in CONTROLLERS if name in available.split())


def settings(limits: CgroupLimits, controllers: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """Return the text for each file of a cgroup that sets limits, for those controllers that it has."""
    found = []
    if "memory" in controllers:
        found.append(("memory.max", str(limits.memory or "max")))
        # Otherwise memory over the limit would be swapped out, and the whole machine would slow down.
        found.append(("memory.swap.max", "0" if limits.memory else "max"))
    if "pids" in controllers:
        found.append(("pids.max", str(limits.processes or "max")))
    if "cpu" in controllers:
        quota = str(max(1000, round(limits.cpus * _CPU_PERIOD))) if limits.cpus else "max"
        found.append(("cpu.max", f"{quota} {_CPU_PERIOD}"))
    return tuple(found)


def daemon_settings(controllers: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """Return the same for the daemon's own cgroup."""
    return (("cpu.weight", str(_DAEMONS_SHARE)),) if "cpu" in controllers else ()


def ran_out(memory_events: str, memory_events_local: str, pids_events: str) -> RanOut:
    """Say which resources a cgroup ran out of.

    Args:
        memory_events: its `memory.events`, empty where there is none.
        memory_events_local: its `memory.events.local`, likewise.
        pids_events: its `pids.events`, likewise.
    """
    memory, local = numbers(memory_events), numbers(memory_events_local)
    return RanOut(memory.get("oom_kill", 0), local.get("oom", 0) > 0, numbers(pids_events).get("max", 0))


def numbers(text: str) -> dict[str, int]:
    """Read a file of names with a number each."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def use(memory: str, cpu_stat: str, processes: str) -> CgroupUse:
    """Return a cgroup's use, from `memory.current`, `cpu.stat` and `pids.current`; a missing file is empty."""
    spent = numbers(cpu_stat).get("usage_usec")
    return CgroupUse(_number(memory), spent / 1_000_000 if spent is not None else None, _number(processes))


def out_of_memory(found: RanOut) -> str | None:
    """Say in a sentence that processes were killed for want of memory, with a remedy; None when none were."""
    if not found.killed:
        return None
    what = "a process" if found.killed == 1 else f"{found.killed} processes"
    if found.own:
        return f"the kernel killed {what} of the agent, which had all the memory it may have: raise sandbox.memory"
    return (
        f"the kernel killed {what} of the agent, because all agents together, or the machine, had no memory left: "
        f"raise limits.memory, or run fewer agents at once (turns.max_running)"
    )


def refused_forks(found: RanOut) -> str | None:
    """Say in a sentence that no more processes could be made; None when they could."""
    if not found.forks:
        return None
    return (
        f"the agent was refused {found.forks} further processes or threads, having as many as it may: "
        f"raise sandbox.processes, or limits.processes for all agents together"
    )


def _number(text: str) -> int | None:
    return int(text.strip()) if text.strip().isdecimal() else None


def _unescaped(field: str) -> str:
    """Undo the octal escapes of blanks in a field of mountinfo."""
    for code, letter in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, letter)
    return field
