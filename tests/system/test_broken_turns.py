"""A turn's task that breaks by an error in the daemon's own code: its agent fails with a reason, all others go on."""

import re
import sys

import pytest

# Runs the daemon with some of its functions made to fail: each once for every file of its name in a directory.
FAULTY = """
import pathlib
import sys

from substrat.daemon import main
from substrat.daemon.agents.accounting import Accounting
from substrat.daemon.turns import ending, runner
from substrat.daemon.workspaces import protected_paths


def break_when_told(fault, place, name):
    whole = getattr(place, name)

    def fail(*arguments, **named):
        for told in pathlib.Path(sys.argv[1]).glob(f"{fault}-*"):
            told.unlink()
            raise MemoryError(f"{name} broke")
        return whole(*arguments, **named)

    setattr(place, name, fail)


break_when_told("lines", Accounting, "turn_lines")
break_when_told("verdict", runner, "judge")
break_when_told("protection", protected_paths, "decode")
break_when_told("chat", ending.TurnEnd, "settle_chat")
break_when_told("end", Accounting, "turn_over")
sys.exit(main.main(sys.argv[3:]))
"""
CASES = (
    ("lines", 1, "error"), ("verdict", 1, "error"), ("protection", 1, "success"), ("chat", 1, "success"),
    ("end", 1, "error"), ("end", 2, "error"),
)  # fmt: skip


@pytest.mark.slow
def test_a_turn_whose_task_breaks_ends_and_leaves_nothing_running(daemon, until):
    script, faults = daemon.directory / "faulty.py", daemon.directory / "faults"
    script.write_text(FAULTY)
    faults.mkdir()
    daemon.start(prefix=(sys.executable, script, faults))
    work = daemon.workspace()
    for fault, times, outcome in CASES:
        name, broken = f"{fault}-{times}", daemon.log.count("broke")
        for number in range(times):
            (faults / f"{fault}-{number}").touch()
        daemon.ok("spawn", name, "-w", work, "/say hi")
        agent = daemon.wait(name, "idle", "failed")
        assert agent["turn"]["outcome"] == outcome, name
        assert daemon.events(name, "turn:ended"), name
        if outcome == "error":
            (error_id,) = re.findall("an internal error, ([0-9a-f]{8}) in substratd's log", agent["turn"]["error"])
            assert error_id in daemon.log
        assert daemon.log.count("broke") > broken, name
        assert not list(faults.iterdir()), name
        until(lambda: not daemon.sandboxed(), f"the end of the sandbox of {name}")
    assert daemon.spawn("bert", daemon.workspace("other"), "/say hi")["turn"]["result"] == "hi"
