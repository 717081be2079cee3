"""Recognises a launch that failed for a reason that passes by itself, whatever the failure is wrapped in."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sandbox import host
from substrat.core.programs import failures
from substrat.daemon.kernel import descriptors
from substrat.daemon.sandboxes.sources import SourceGone
from substrat.daemon.state.storing import disk_is_full
from substrat.errors import DescriptorsUsedUp, StorageFailed, SubstratError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from substrat.core.programs.failures import Failure


class Shortage(NamedTuple):
    """What was short.

    Args:
        failure: its name, by which the turn is tried again.
        sentence: what is said, and what to do.
    """

    failure: Failure
    sentence: str


def shortage(problem: Exception) -> Shortage | None:
    """Return what a launch lacked, None when it failed for another reason.

    For example a `SandboxFailed` that was raised because of an `OSError` with EMFILE, or a group of such.

    Args:
        problem: what the launch raised.
    """
    is_cut_short = False
    for found in _behind(problem):
        if isinstance(found, DescriptorsUsedUp):
            return Shortage(failures.DESCRIPTORS_USED_UP, found.message)
        if isinstance(found, host.LookCutShort):
            is_cut_short = True  # a want of descriptors, which has a remedy, may stand behind it
        if isinstance(found, SourceGone):
            return Shortage(failures.replaced_at_start(found.message), found.message)
        if isinstance(found, OSError) and descriptors.is_short(found):
            return Shortage(failures.DESCRIPTORS_USED_UP, descriptors.sentence(found))
        if isinstance(found, StorageFailed):
            return Shortage(failures.DISK_FULL, found.message)
        if isinstance(found, OSError) and disk_is_full(found):
            said = problem.message if isinstance(problem, SubstratError) else f"{found.strerror}; make room"
            return Shortage(failures.DISK_FULL, said)
    said = problem.message if isinstance(problem, SubstratError) else str(problem)
    return Shortage(failures.look_cut_short(said), said) if is_cut_short else None


def _behind(problem: BaseException) -> Iterator[BaseException]:
    """Give out an exception and all that stands behind it, nearest first, also what `from None` hides."""
    found, known = [problem], set[int]()
    for one in found:  # it grows while it is walked
        if id(one) in known:
            continue
        known.add(id(one))
        yield one
        if isinstance(one, BaseExceptionGroup):
            found += one.exceptions
        found += [more for more in (one.__cause__, one.__context__) if more is not None]
