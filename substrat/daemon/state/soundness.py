"""Checks the structure of a big database after a daemon that died, beside the daemon that works with it already.

It reads all of the database, which takes seconds for some million events. The tables of agents, turns and items were
checked as the database was opened: `Database` leaves only the events, and what a look at the whole file shows.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import structlog
import trio

from substrat.daemon.kernel import helper
from substrat.daemon.state import quickcheck
from substrat.daemon.state.database import damaged_state
from substrat.errors import SandboxFailed

if TYPE_CHECKING:
    from substrat.daemon.state.database import StateDamaged
    from substrat.daemon.state.store import Store

log = structlog.get_logger("substrat.soundness")


async def check(store: Store) -> StateDamaged | None:
    """Check a database if that was left when it was opened; where it can't be done, the next start is to do it.

    Returns:
        The error for which the daemon has to end; None: no damage is known.
    """
    if not store.is_unchecked:
        return None
    began, size = trio.current_time(), store.size
    program = os.path.realpath(quickcheck.__file__)
    try:
        done = await helper.run((sys.executable, "-I", "-S", program, store.path, str(os.getpid())), {}, gently=False)
    except (OSError, SandboxFailed) as problem:
        log.warning("database not checked", reason=str(problem))
        return None
    found = done.stdout.decode("utf-8", "replace").split("\0")[0]
    last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    if done.returncode and not found and not any(word in last for word in ("malformed", "not a database")):
        log.warning("database not checked", reason=last or f"the check ended with {done.returncode}")
        return None
    log.info("database checked", bytes=size, seconds=round(trio.current_time() - began, 1))
    damage = found or (last if done.returncode else "")
    store.note_checked(is_damaged=bool(damage))
    return damaged_state(store.path, damage.replace("\n", " ")) if damage else None
