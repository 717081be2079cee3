"""Measures the daemon and its surroundings while no turn runs, and says by how much each figure may grow, and why."""

from __future__ import annotations

import ctypes
import glob
import json
import os
import re
import socket
import sqlite3
import stat
from collections import Counter
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness import rss_mib

if TYPE_CHECKING:
    from collections.abc import Iterable

    from soaking.place import Place

SIOCGSKNS = 0x894C
"""The ioctl that returns a descriptor of a socket's network namespace (linux/sockios.h)."""
SYS_PIDFD_GETFD = 438
"""The same number on every architecture (pidfd_getfd(2)); Python has no function for it."""
IN_MODIFY = 0x2  # linux/inotify.h
PASSING = frozenset({"mount_points", "reminders", "dropped_turns", "removed_agents", "damaged"})
"""Tables whose rows stand for something that is under way or wrong. The others keep history until `rm`."""
OUTLIVING = frozenset({"totals", "worked_in"})
"""Tables whose rows outlive agents: `worked_in` has one for each directory that agents have worked in."""

Figures = dict[str, "Counter[str]"]
"""The measured figures: for each rule's key the number of each kind, for example `{"descriptors": {"pipe": 2}}`."""


class GrowthRule(NamedTuple):
    """The growth that a figure may have.

    Args:
        key: the figure's name in `Figures`.
        title: its name in the report.
        slack: by how much each kind may be larger than before.
        reason: why by so much.
        factor: the earlier figure counts so many times.
        empty: whether there must be none at all, also before.
    """

    key: str
    title: str
    slack: float
    reason: str
    factor: float = 1.0
    empty: bool = False


IDLE = (
    GrowthRule("memory", "memory, MiB", 12.0, "the newest events are kept, up to 8 MiB; a tenth for the allocator", 1.1),
    GrowthRule("descriptors", "descriptors", 0, "no turn runs, and the same clients are connected"),
    GrowthRule("threads", "threads", 0, "those of Trio's that wait for work aren't counted: they end after 10 s"),
    GrowthRule("watches", "inotify watches", 0, "a turn's end with it; those for findings aren't counted"),
    GrowthRule("namespaces", "network namespaces", 0, "a turn's ends with it; held ones would be those of its sockets", empty=True),
    GrowthRule("mounts", "mounts", 0, "the daemon mounts nothing in its own namespace, which is the host's", empty=True),
    GrowthRule("cgroups", "cgroups of sandboxes", 0, "a sandbox's goes with it", empty=True),
    GrowthRule("processes", "processes left", 0, "no turn runs, and an idle agent has none", empty=True),
    GrowthRule("leftovers", "leftovers in workspaces", 0, "placeholders go with their sandbox", empty=True),
    GrowthRule("temporary", "temporary files", 0, "the daemon's TMPDIR is its own here", empty=True),
    GrowthRule("runtime", "files in the runtime directory", 0, "sockets of turns and of `exec` go with them"),
    GrowthRule("state", "files of state, but turns'", 0, "nothing is kept beside agents and turns"),
    GrowthRule("turn", "most files of a turn", 2, "a turn that was held, or whose network was asked for names, has one more each"),
    GrowthRule("agent", "files an agent, but turns'", 3, "its program's transcript of each chat: agents that were replaced have fewer"),
    GrowthRule("passing", "rows of what is under way", 0, "nothing is under way"),
)  # fmt: skip
"""The rules with all agents idle, as many after as before."""

REMOVED = (
    GrowthRule("descriptors", "descriptors", 0, "the same clients are connected"),
    GrowthRule("watches", "inotify watches", 0, "no turn is there"),
    GrowthRule("runtime", "files in the runtime directory", 0, "the operator socket stays"),
    GrowthRule("state", "files of state, but turns'", 0, "nothing is kept beside agents and turns"),
    GrowthRule("files", "files of agents and turns", 0, "`rm` removes them", empty=True),
    GrowthRule("rows", "rows in the database", 0, "`rm` deletes them, and questions were answered", empty=True),
    GrowthRule("used", "database in use, KiB", 64, "empty tables and indexes keep pages: some 20 of 4 KiB"),
)
"""The rules with all agents removed."""


def measure(place: Place) -> Figures:
    """Measure everything; no turn may run."""
    pid = place.pid
    state = files(place.state)
    agents = max(1, state.pop("agents"))
    of_turns = Counter({path: count for path, count in state.items() if path.startswith("agents/*/turns/")})
    of_agents = Counter({path: count for path, count in state.items() if path.startswith("agents/")}) - of_turns
    tables, used = database(f"{place.state}/substrat.db")
    return {
        "memory": Counter({"": round(rss_mib(pid), 1)}),
        "descriptors": descriptors(pid, place.root),
        "threads": threads(pid),
        "watches": watches(pid, findings_directories(place)),
        "namespaces": namespaces(pid),
        "mounts": mounts(pid, place.root),
        "cgroups": _cgroups(place.service),
        "processes": Counter(place.processes().values()),
        "leftovers": Counter(left for workspace in place.workspaces for left in workspace.leftovers()),
        "temporary": Counter(map(starred, set(_entries(place.temporary)) - {f"runtime-{os.getuid()}"})),
        "runtime": _without_counts(files(place.run)),
        "state": state - of_turns - of_agents,
        "turn": Counter({"": most_files_of_a_turn(place.state)}),
        "agent": Counter({"": round(of_agents.total() / agents, 2)}),
        "files": of_turns + of_agents,
        "passing": Counter({name: count for name, count in tables.items() if name in PASSING}),
        "rows": Counter({name: count for name, count in tables.items() if name not in OUTLIVING}),
        "used": Counter({"": used / 1024}),
    }


def descriptors(pid: int, root: str) -> Counter[str]:
    """Count a process's descriptors by kind: the file or object that each refers to, without numbers and ids."""
    found: Counter[str] = Counter()
    for number in _entries(f"/proc/{pid}/fd"):
        with suppress(OSError):
            path = f"/proc/{pid}/fd/{number}"
            target = os.readlink(path)
            kind = target.partition(":")[0] if re.match(r"(socket|pipe|net|mnt|user|pid):\[", target) else target
            if target.startswith("/"):
                sort = "directory" if stat.S_ISDIR(os.stat(path).st_mode) else "file"
                kind = f"{sort} {starred(target.replace(root, '', 1))}"
            found[kind] += 1
    return found


def threads(pid: int) -> Counter[str]:
    """Count a process's threads by name, without those of Trio's that wait for work."""
    found: Counter[str] = Counter()
    for number in _entries(f"/proc/{pid}/task"):
        with suppress(OSError), open(f"/proc/{pid}/task/{number}/comm", encoding="utf-8", errors="replace") as file:
            name = file.read().strip()
            if not re.fullmatch(r"Trio thread \d*", name):
                found[name] += 1
    return found


def watches(pid: int, excused: Iterable[str]) -> Counter[str]:
    """Count a process's inotify watches by what they tell (proc(5), fdinfo).

    Args:
        pid: the process.
        excused: directories of which one watch of the names in them isn't counted.
    """
    found: dict[str, Counter[int]] = {"writes": Counter(), "names": Counter()}
    for number in _entries(f"/proc/{pid}/fdinfo"):
        with suppress(OSError), open(f"/proc/{pid}/fdinfo/{number}", encoding="ascii", errors="replace") as file:
            for inode, mask in re.findall(r"(?m)^inotify wd:\w+ ino:(\w+) .* mask:(\w+) ", file.read()):
                found["writes" if int(mask, 16) & IN_MODIFY else "names"][int(inode, 16)] += 1
    for directory in set(excused):
        with suppress(OSError):
            found["names"].subtract([os.stat(directory).st_ino])
    return Counter({kind: count for kind, inodes in found.items() if (count := (+inodes).total())})


def findings_directories(place: Place) -> set[str]:
    """Return the directories of the files of findings that are open, or may open again, and those above in workspaces."""
    found: set[str] = set()
    workspaces = tuple(workspace.path for workspace in place.workspaces)
    for (files,) in place.query("SELECT files FROM findings WHERE accepted_at IS NULL"):
        for path in json.loads(files):
            directory = os.path.dirname(path)
            found.add(directory)
            found.update(str(above) for above in Path(directory).parents if str(above).startswith(workspaces))
    return found


def namespaces(pid: int) -> Counter[str]:
    """Count the network namespaces, other than this process's, that a process's sockets and descriptors keep alive."""
    own = os.stat("/proc/self/ns/net").st_ino
    libc = ctypes.CDLL(None, use_errno=True)
    found = set()
    pidfd = os.pidfd_open(pid)
    try:
        for number in _entries(f"/proc/{pid}/fd"):
            with suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{number}")
                if target.startswith("net:["):
                    found.add(int(target[5:-1]))
                if target.startswith("socket:["):
                    descriptor = libc.syscall(SYS_PIDFD_GETFD, pidfd, int(number), 0)
                    if descriptor >= 0:
                        with socket.socket(fileno=descriptor) as copy:
                            # Refused with EPERM where the namespace is the machine's and we aren't root.
                            held = ioctl(copy.fileno(), SIOCGSKNS)
                        found.add(os.fstat(held).st_ino)
                        os.close(held)
    finally:
        os.close(pidfd)
    found.discard(own)
    return Counter({"held by the daemon": len(found)} if found else ())


def mounts(pid: int, root: str) -> Counter[str]:
    """Count the mounts that name the soak's directory, in the daemon's namespace and in this process's."""
    found: Counter[str] = Counter()
    by_namespace = {os.readlink(f"/proc/{who}/ns/mnt"): who for who in ("self", pid)}
    for who in by_namespace.values():
        with open(f"/proc/{who}/mountinfo", encoding="utf-8", errors="replace") as file:
            found.update(starred(line.split()[4].replace(root, "", 1)) for line in file if root in line)
    return found


def files(path: str) -> Counter[str]:
    """Count the files below a directory by place, and as `agents` the directories of those.

    The database's own files are left out: they come and go with connections.
    """
    found: Counter[str] = Counter({"agents": 0})
    for top, directories, names in os.walk(path):
        below = os.path.relpath(top, path)
        kind = re.sub(r"^agents/[^/]+/turns/[^/]+", "agents/*/turns/*", starred(below))
        found["agents"] += kind == "agents/*"
        names += [name for name in directories if os.path.islink(os.path.join(top, name))]
        kinds = (os.path.normpath(f"{kind}/{starred(name)}") for name in names if not name.startswith("substrat.db"))
        found.update("trash/*" if path.startswith("trash/") else path for path in kinds)
    return found


def most_files_of_a_turn(state: str) -> int:
    """Return how many files the turn with the most of them has: a mean would depend on how many turns ended early."""
    turns = glob.glob(f"{state}/agents/*/turns/*")
    return max((sum(len(names) for _, _, names in os.walk(turn)) for turn in turns), default=0)


def database(path: str) -> tuple[Counter[str], int]:
    """Return how many rows each table has, and how many bytes of the database are in use."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        size, pages, free = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count", "freelist_count")
        )
        tables = connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name != 'journal'"
        )
        rows = {name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for (name,) in tables.fetchall()}
    finally:
        connection.close()
    return Counter({name: count for name, count in rows.items() if count}), size * (pages - free)


def _cgroups(service: str | None) -> Counter[str]:
    """Count the cgroups of sandboxes, which are named after turns and commands."""
    if service is None:
        return Counter()
    names = _entries(f"{service}/agents")
    return Counter(starred(name) for name in names if os.path.isdir(f"{service}/agents/{name}"))


def starred(name: str) -> str:
    """Replace with a star the parts that differ between turns, chats or attempts: ids, numbers, random names."""
    name = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{12,}", "*", name)
    name = re.sub(r"(left-|tmp|exec-)[A-Za-z0-9_-]+", r"\1*", name)
    return re.sub(r"\d+", "*", name)


def _without_counts(found: Counter[str]) -> Counter[str]:
    return Counter({path: count for path, count in found.items() if path != "agents"})


def _entries(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def unsettled(figures: Figures) -> bool:
    """Say whether the daemon is still deleting removed files, which it does in its own time."""
    return figures["state"]["trash/*"] > 0 or figures["passing"]["removed_agents"] > 0


def grown(rules: Iterable[GrowthRule], when: str, before: Figures, after: Figures) -> list[str]:
    """Return a sentence for each kind that grew by more than it may, or that must not exist.

    Args:
        rules: the growth that each figure may have.
        when: the state in which both were measured, for example `with all agents idle`.
        before: the earlier figures.
        after: the later ones.
    """
    found = []
    for rule in rules:
        for kind in sorted(before[rule.key] | after[rule.key]):
            old, new = before[rule.key][kind], after[rule.key][kind]
            of = f" ({kind})" if kind else ""
            if rule.empty and max(old, new) > 0:
                found.append(f"{rule.title}{of}: {max(old, new):g}, {when}: {rule.reason}")
            elif new > old * rule.factor + rule.slack:
                found.append(f"{rule.title} grew{of} from {old:g} to {new:g}, {when}: {rule.reason}")
    return found


def table(titles: tuple[str, ...], rules: tuple[GrowthRule, ...], *measured: Figures) -> str:
    """Return figures as a table, with the growth that each may have."""
    rows = [("", *titles, "may grow by")]
    for rule in rules:
        share = f" and {rule.factor - 1:.0%}" if rule.factor > 1 else ""
        totals = (f"{figures[rule.key].total():g}" for figures in measured)
        rows.append((rule.title, *totals, "must be none" if rule.empty else f"{rule.slack:g}{share}"))
    return "\n".join(f"{row[0]:32}" + "".join(f"{cell:>16}" for cell in row[1:]) for row in rows)
