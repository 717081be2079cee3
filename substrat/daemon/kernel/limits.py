"""The daemon's own limits: many descriptors, no core dumps, enough address space, and a heap left out of collections."""

from __future__ import annotations

import gc
import resource
from contextlib import suppress

from substrat.daemon.kernel import descriptors
from substrat.errors import LimitReached

_ENOUGH_FDS = 16 * 1024
"""For some 2,500 running turns of six descriptors each; a machine runs out of memory before that."""
_NO_CORE = 1
_LEAST_ADDRESS_SPACE = 4 << 30
"""For 256 MiB of its own and up to 40 threads (trio's limit), each with 8 MiB of stack and 64 MiB of arena (malloc(3)).
With less a thread can't be started now and then, and the work given to it fails."""


def prepare_daemon() -> None:
    """Set the limits of the daemon and, for descriptors and core dumps, of its children.

    Raises:
        LimitReached: the daemon may have too little address space.
    """
    _allow_address_space()
    descriptors.keep_private()
    allow_many_descriptors()
    forbid_core_dumps()


def freeze_heap() -> None:
    """Leave everything in memory now out of later garbage collections; to be called after something large is loaded.

    Modules and the state stay to the end. A full collection looks at every object that isn't left out, which takes some
    50 ms, and the event loop stands still meanwhile.
    """
    gc.freeze()


def _allow_address_space() -> None:
    """Raise the soft limit of address space as far as it goes, and check that it is enough.

    Raises:
        LimitReached: it isn't.
    """
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < _LEAST_ADDRESS_SPACE:
        raise LimitReached(
            f"substratd may have {hard >> 20} MiB of address space and needs {_LEAST_ADDRESS_SPACE >> 20}: start it "
            f"without a limit (`ulimit -v unlimited`, or LimitAS=infinity in its unit)"
        )


def allow_many_descriptors() -> None:
    """Raise the soft limit of open files: a running turn costs some six, a client one, and 1024 is a common default."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = _ENOUGH_FDS if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH_FDS)
    if soft < enough:
        resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))


def forbid_core_dumps() -> None:
    """Keep this process and all its children from dumping core, to a file or into a program of the machine's.

    A limit of 1 byte does both; 0 doesn't keep the kernel from piping a core dump into the program that
    `/proc/sys/kernel/core_pattern` names (do_coredump in fs/coredump.c), which would run outside of any sandbox. It is set
    here because the system call filter inside a sandbox refuses changes of it.
    """
    with suppress(OSError, ValueError):  # the hard limit is 0, and only root may raise that
        resource.setrlimit(resource.RLIMIT_CORE, (_NO_CORE, _NO_CORE))
