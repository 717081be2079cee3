"""A turn's task that breaks by an error in the daemon's own code: its agent fails with a reason, all others go on."""

import re
import sys

import pytest

# Runs the daemon with one of its functions made to fail for turns of the agent `anna`, or of a prompt that says so.
FAULTY = """
import sys

from substrat.daemon import main
from substrat.daemon.agents.accounting import Accounting
from substrat.daemon.turns import ending, runner
from substrat.daemon.workspaces import protected_paths

fault, times = sys.argv[1], int(sys.argv[2])


def broken(place, name):
    whole = getattr(place, name)

    def fail(*arguments, **named):
        global times
        if times:
            times -= 1
            raise MemoryError(f"{name} broke")
        return whole(*arguments, **named)

    setattr(place, name, fail)


broken(*{
    "lines": (Accounting, "turn_lines"),
    "verdict": (runner, "judge"),
    "protection": (protected_paths, "decode"),
    "chat": (ending.TurnEnd, "settle_chat"),
    "end": (Accounting, "turn_over"),
}[fault])
sys.exit(main.main(sys.argv[4:]))
"""


@pytest.fixture
def faulty(house):
    """Start a daemon with a fault, which strikes some times."""

    def start(fault, times):
        script = house.directory / "faulty.py"
        script.write_text(FAULTY)
        return house.start(prefix=(sys.executable, script, fault, str(times)))

    return start


@pytest.mark.parametrize(
    ("fault", "times", "outcome"),
    [
        ("lines", 1, "error"),
        ("verdict", 1, "error"),
        ("protection", 1, "success"),
        ("chat", 1, "success"),
        ("end", 1, "error"),
        ("end", 2, "error"),
    ],
)
def test_a_turn_whose_task_breaks_ends_and_leaves_nothing_running(faulty, until, fault, times, outcome):
    house = faulty(fault, times)
    house.ok("spawn", "anna", "-w", house.workspace(), "/say hi")
    agent = house.wait("anna", "idle", "failed")
    assert agent["turn"]["outcome"] == outcome
    assert house.events("anna", "turn:ended")
    if outcome == "error":
        (error_id,) = re.findall("an internal error, ([0-9a-f]{8}) in substratd's log", agent["turn"]["error"])
        assert error_id in house.log
    assert "broke" in house.log
    until(lambda: not house.sandboxed(), "the end of the sandbox")
    assert house.spawn("bert", house.workspace("other"), "/say hi")["turn"]["result"] == "hi"
