"""Sets what tests, their daemons and their programs inherit, so that it doesn't matter how a run was started.

A run may be a background job, a cron job or somebody's terminal; its signals, variables, limits and files differ then.
"""

from __future__ import annotations

import atexit
import contextlib
import locale
import os
import resource
import shutil
import signal
import tempfile
import time

DESCRIPTORS = 4096
"""The soft limit of open files: more than a test needs, and few enough for programs that try each possible descriptor."""

KEPT = ("SUBSTRAT_TEST_", "SUBSTRAT_MODEL_DEPTH")
"""How the names of variables begin that tell the tests how to run, for example `SUBSTRAT_TEST_DAEMONS`. They stay."""

FOREIGN = (
    "SUBSTRAT_", "CURSOR_", "STANDIN_", "XDG_", "GIT_", "PYTHON", "LC_", "LANGUAGE", "COLUMNS", "LINES", "NO_COLOR",
    "FORCE_COLOR", "CLICOLOR", "NOTIFY_SOCKET", "LISTEN_", "INVOCATION_ID", "JOURNAL_STREAM", "WATCHDOG_",
)  # fmt: skip
"""How the names of variables begin that would change a program's behaviour. They are removed."""

KNOWN = {"LANG": "C.UTF-8", "TERM": "xterm", "TZ": "UTC", "GIT_CONFIG_NOSYSTEM": "1"}


def arrange() -> None:
    """Set signals, variables, limits, standard input and umask, for this process and all processes that it will start.

    pytest's workers inherit them and call this function, too.
    """
    _set_signals()
    _set_variables()
    _set_limits()
    _set_standard_input()
    os.umask(0o022)


def _set_signals() -> None:
    """Handle signals as in a shell in a terminal: Python ignores SIGPIPE and SIGXFSZ, and no signal is blocked."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _set_variables() -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:  # a worker's home is that of the process that has started the worker
        _set_home()
    cache = os.environ["XDG_CACHE_HOME"]
    for name in list(os.environ):
        if name.startswith(FOREIGN) and not name.startswith(KEPT):
            del os.environ[name]
    os.environ |= {**KNOWN, "XDG_CACHE_HOME": cache}
    time.tzset()
    with contextlib.suppress(locale.Error):  # on a machine without that locale, files are read as UTF-8 all the same
        locale.setlocale(locale.LC_CTYPE, KNOWN["LANG"])


def _set_home() -> None:
    """Set HOME to a new directory, without anybody's logins and configuration.

    pip's index and the cache stay those of the person who runs the tests: without them, tests that install packages or
    fetch a machine's image would need the network each time.
    """
    pip = os.path.expanduser("~/.config/pip/pip.conf")
    if os.path.exists(pip):
        os.environ.setdefault("PIP_CONFIG_FILE", pip)
    os.environ["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    home = os.environ["HOME"] = tempfile.mkdtemp(prefix="substrat-home-")
    atexit.register(_remove, home, os.getpid())


def _remove(home: str, owner: int) -> None:
    if os.getpid() == owner:  # `atexit` calls this also at the end of each process that was forked
        shutil.rmtree(home, ignore_errors=True)


def _set_limits() -> None:
    for limit, wanted in ((resource.RLIMIT_NOFILE, DESCRIPTORS), (resource.RLIMIT_CORE, 0)):
        _, hard = resource.getrlimit(limit)
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(limit, (soft, hard))


def _set_standard_input() -> None:
    if os.isatty(0):  # a person who gives `-s` wants to talk with a debugger; without `-s` pytest replaces the terminal
        return
    nothing = os.open(os.devnull, os.O_RDONLY)
    if nothing != 0:  # the kernel gives out 0 if the standard input was closed
        os.dup2(nothing, 0)
        os.close(nothing)
