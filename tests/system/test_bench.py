"""`make bench`: a line a figure, an end in any case, a sentence where a figure couldn't be taken; no timing is judged."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.processes import arguments_of, processes

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

GROUPS = """
import os, sys
sys.path.insert(0, {benchmarks!r})
from harness import Figure, Wire, daemon, finish
from run import FigureGroup, run

def working(running, prompt):
    wire = Wire(running.socket)
    wire.call("agent.spawn", workspace=running.root + "/ws", name="a", network="none", prompt=prompt)
    return wire

def good():
    yield Figure("fast", "1 ms", "2 ms", "< 2 ms", met=True)
    yield Figure("slow", "3 ms", "-", "< 2 ms", met=False)

def fails():
    with daemon() as running:
        finish(working(running, "/exit 3"), ["a"])
    yield

def dies():
    with daemon() as running:
        wire = working(running, "/sleep 600")
        os.kill(running.pid, 9)
        finish(wire, ["a"])
    yield

def hangs():
    with daemon() as running:
        finish(working(running, "/sleep 600"), ["a"])
    yield

sys.exit(run([FigureGroup(name, figures.split(), seconds, globals()[name]) for name, figures, seconds in {groups!r}]))
"""


@pytest.fixture
def bench():
    """Take the figures of some groups; returns the exit status and the lines."""
    # Not pytest's own directory, which is too deep for a socket's path.
    with tempfile.TemporaryDirectory(prefix="b-", dir="/tmp") as place:

        def take(*groups):
            script = GROUPS.format(benchmarks=str(BENCHMARKS), groups=groups)
            environ = {"TMPDIR": place, "PATH": "/usr/bin:/bin"}
            command = [sys.executable, "-c", script]
            done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
            assert done.stderr == ""
            assert list(Path(place).iterdir()) == []
            assert _with_in_its_command_line(place) == []
            return done.returncode, done.stdout.splitlines()

        yield take


def _with_in_its_command_line(text):
    return [words for words in map(arguments_of, processes()) if text in " ".join(words)]


def test_a_missed_goal_is_no_failure(bench):
    status, (fast, slow, whole) = bench(("good", "fast slow", 10))
    assert status == 0
    assert fast == "fast  1 ms  (floor 2 ms, goal < 2 ms) ok"
    assert slow == "slow  3 ms  (floor -, goal < 2 ms) missed"
    assert re.fullmatch(r"make bench: all figures  \d+ s  \(floor -, goal < 240 s\) ok", whole)


@pytest.mark.slow
def test_a_figure_that_cannot_be_taken_says_why_and_the_others_are_taken(bench):
    status, lines = bench(("fails", "a", 60), ("dies", "b", 60), ("hangs", "c d", 1.5), ("good", "fast slow", 10))
    assert status == 1
    assert (
        lines[0]
        == "a  not taken: a had a turn that ended as error: the agent program exited with status 3 without a result"
    )
    assert re.fullmatch(r"b  not taken: .+; it has ended with -9, and its log .+", lines[1])
    assert lines[2:4] == [f"{name}  not taken: the group hangs took more than 2 s and was given up" for name in "cd"]
    assert [line.split("  ")[0] for line in lines[4:]] == ["fast", "slow", "make bench: all figures"]


def test_an_unknown_group_is_refused_with_the_known_ones():
    done = subprocess.run([sys.executable, BENCHMARKS / "run.py", "lss"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("run.py: there is no group 'lss'; there are companion, spawn,")
