"""What a launch lacked is found behind whatever its failure is wrapped in."""

import errno
import os

import pytest

from substrat.core.programs import failures
from substrat.daemon.kernel.inotify import WatchesUsedUp
from substrat.daemon.sandboxes.sources import SourceGone
from substrat.daemon.turns import launch_failure
from substrat.errors import DescriptorsUsedUp, SandboxFailed, StorageFailed


def hidden(problem):
    """Return the exception that is raised in the place of another, which `from None` hides."""
    try:
        try:
            raise problem
        except type(problem):
            raise SandboxFailed("the sandbox failed") from None
    except SandboxFailed as found:
        return found


def because(problem):
    found = SandboxFailed("the sandbox failed")
    found.__cause__ = problem
    return found


def grouped(problem):
    return ExceptionGroup("", [ValueError(), problem])


def failed(number, text=None):
    return OSError(number, text or os.strerror(number))


SHORTAGES = {
    "descriptors": (failed(errno.EMFILE), failures.DESCRIPTORS_USED_UP, "LimitNOFILE"),
    "the machine's": (failed(errno.ENFILE), failures.DESCRIPTORS_USED_UP, "fs.file-max"),
    "said": (DescriptorsUsedUp("none is left"), failures.DESCRIPTORS_USED_UP, "none is left"),
    "room": (failed(errno.ENOSPC), failures.DISK_FULL, ""),
    "room, said": (StorageFailed("make room"), failures.DISK_FULL, "make room"),
    "removed": (SourceGone("it is gone"), failures.replaced_at_start("it is gone"), "it is gone"),
}
OTHERS = {
    "no file": failed(errno.ENOENT),
    "a bug": ValueError(),
    "inotify's own limit": WatchesUsedUp(errno.ENOSPC, "inotify_add_watch: No space left on device"),
}


@pytest.mark.parametrize("inside", [hidden, because, grouped], ids=lambda wrap: wrap.__name__)
@pytest.mark.parametrize("name", SHORTAGES)
def test_a_shortage_is_found(inside, name):
    problem, failure, words = SHORTAGES[name]
    found = launch_failure.shortage(hidden(inside(problem)))
    assert found.failure == failure
    assert words in found.sentence


@pytest.mark.parametrize("name", OTHERS)
def test_another_failure_is_no_shortage(name):
    assert launch_failure.shortage(hidden(OTHERS[name])) is None
