"""What a launch lacked is found behind whatever its failure is wrapped in."""

import errno
import os

import pytest

from sandbox import host, unreadable
from substrat.core.programs import failures
from substrat.daemon.kernel import helper
from substrat.daemon.kernel.inotify import WatchesUsedUp
from substrat.daemon.sandboxes.sources import SourceGone
from substrat.daemon.sandboxes.unreadable_paths import UnreadablePaths
from substrat.daemon.turns import launch_failure
from substrat.errors import DescriptorsUsedUp, SandboxFailed, StorageFailed
from tests.support.optional import present


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
    "a look": (host.LookCutShort("killed"), failures.look_cut_short("the sandbox failed"), "the sandbox failed"),
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


@pytest.mark.parametrize(("number", "failure"), [(errno.EMFILE, "descriptors"), (errno.ENOENT, None)])
async def test_a_list_of_unreadable_paths_that_cannot_begin(tmp_path, monkeypatch, number, failure):
    async def run(*_words, **_limits):
        raise failed(number)

    monkeypatch.setattr(helper, "run", run)
    with pytest.raises(SandboxFailed) as found:
        await UnreadablePaths(str(tmp_path / "note")).paths()
    lacked = launch_failure.shortage(found.value)
    assert (lacked and lacked.failure) == (failures.DESCRIPTORS_USED_UP if failure else None)


async def test_a_list_of_unreadable_paths_that_was_killed_is_made_again(tmp_path, monkeypatch):
    program = tmp_path / "program"
    program.write_text("import os\nos.kill(os.getpid(), 9)\n")
    monkeypatch.setattr(unreadable, "__file__", str(program))
    with pytest.raises(SandboxFailed, match="was ended by a signal") as found:
        await UnreadablePaths(str(tmp_path / "note")).paths()
    assert present(launch_failure.shortage(found.value)).failure.name == "look-cut-short"
