"""A sandbox whose protection itself breaks is ended; the rest is in tests/system/test_protection.py."""

from typing import Any

import trio

from substrat.core.workspaces.protection import ABSENT, Treatment
from substrat.daemon.agents.findings import Findings
from substrat.daemon.state.layout import Layout
from substrat.daemon.workspaces import copies
from substrat.daemon.workspaces.consequences import Consequences
from substrat.daemon.workspaces.judgement import Judgement, is_outdated
from substrat.daemon.workspaces.lost_mounts import ProtectedSandbox
from substrat.daemon.workspaces.protected_paths import ProtectedPaths
from substrat.daemon.workspaces.protection import Protection


class Broken:
    """A sandbox that can't be looked at."""

    def __init__(self):
        self.ended = trio.Event()

    def first_process(self):
        raise ValueError("odd")

    def end(self, reason):
        assert "protection broke" in reason.detail
        self.ended.set()


def test_a_judgement_is_outdated_once_its_file_has_changed(tmp_path):
    path = tmp_path / ".envrc"
    path.write_text("half")
    judged = [Judgement(str(path), ABSENT, copies.take(str(path)), Treatment.REACHED)]
    assert not is_outdated(judged)
    path.write_text("half, and the rest")
    assert is_outdated(judged)
    path.unlink()
    assert is_outdated(judged)


async def test_a_sandbox_that_cannot_be_looked_at_is_ended_and_the_others_stay_protected(house, tmp_path):
    house.spawn("anna", "go")
    anna = house.agent("anna")
    places = Layout(str(tmp_path / "state"), str(tmp_path / "run"))
    unused: Any = None
    protection = Protection(house.registry, Consequences(house.registry, Findings(house.registry), places), places, unused)
    guard = ProtectedPaths(missing=(str(tmp_path / ".envrc"),))
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(protection.run)
            for name in ("one", "two"):  # the second: the task that looks is still there
                broken: Any = Broken()
                sandbox = ProtectedSandbox(name, anna.id, None, str(tmp_path), guard, {}, broken, None, None, {})
                with protection.protecting(sandbox):
                    (tmp_path / ".envrc").write_text("x")
                    (tmp_path / ".envrc").unlink()
                    await broken.ended.wait()
            nursery.cancel_scope.cancel()
    protection.close()
    assert [finding.path for finding in house.agent("anna").findings] == [str(tmp_path)]
