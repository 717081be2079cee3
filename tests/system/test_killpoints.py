"""The daemon killed at each instant that has a name, once per instant, in the middle of the standard scenario.

What must be true afterwards is in `story.Story.check`. `make test` tries some points, `make slow` all of them.
"""

import ast
import subprocess
from pathlib import Path

import pytest

from substrat.daemon import points
from tests.system.conftest import PROGRAMS
from tests.system.story import Story

DAEMON = Path(points.__file__).parent
OFTEN = (
    "after commit: agent spawned", "before commit: turn begun", "after commit: turn begun", "after: sandbox started",
    "before commit: turn accounted for", "after commit: tool called: spawn_agent", "at: tool to be answered",
    "after commit: reminder due",
)  # fmt: skip
"""The points that `make test` tries: those at which most could go wrong."""


def play(house, point):
    story = Story(house, {points.KILL_AT: point})
    story.play()
    assert story.deaths == 1, f"the scenario never came to {point!r}"
    story.check()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("point", OFTEN)
def test_a_kill_at_a_point_loses_nothing_and_does_nothing_twice(house, point):
    play(house, point)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("point", [point for point in points.POINTS if point not in OFTEN])
def test_a_kill_at_any_other_point_loses_nothing_and_does_nothing_twice(house, point):
    play(house, point)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_scenario_passes_every_point_when_nothing_is_killed(house):
    trace = house.directory / "trace"
    story = Story(house, {points.TRACE: str(trace)})
    story.play()
    story.check()
    assert set(points.POINTS) - set(trace.read_text().splitlines()) == set()


def test_the_points_are_listed_by_a_command():
    done = subprocess.run([PROGRAMS / "substratd", "--points"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == list(points.POINTS)
    assert len(set(points.POINTS)) == len(points.POINTS)
    assert set(OFTEN) <= set(points.POINTS)


def calls_in_the_daemon():
    for path in sorted(DAEMON.glob("*.py")):
        if path.name != "points.py":
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    yield path, node


def words(node):
    return {leaf.value for leaf in ast.walk(node) if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str)}


def test_every_change_and_every_act_in_the_code_is_a_point():
    """A commit goes through `Registry.change`, which names it; what isn't named can't be forgotten here."""
    changes, acts, moments = set(), set(), set()
    for path, node in calls_in_the_daemon():
        match node.func.attr:
            case "change" if path.name != "registry.py":
                changes |= words(node.args[0])
            case "_update" | "_request":
                changes |= {word for word in words(node) if word in points.CHANGES}
            case "before" | "after" if "points" in ast.dump(node.func.value):
                acts |= {"SIGINT sent", "SIGTERM sent"} if isinstance(node.args[0], ast.JoinedStr) else words(node.args[0])
            case "at":
                moments |= words(node.args[0])
    tools = {change for change in points.CHANGES if change.startswith("tool called: ")}
    assert changes - {"tool called: "} == (set(points.CHANGES) - tools) | set(points.WITHIN_A_TOOL)
    assert acts == set(points.ACTS)
    assert moments == set(points.MOMENTS)


@pytest.mark.parametrize("name", ["transaction"])
def test_nothing_is_committed_past_the_points(name):
    found = [(path.name, node.lineno) for path, node in calls_in_the_daemon() if node.func.attr == name]
    assert {file for file, _ in found} == {"journal.py", "registry.py"}
    assert len(found) == 2


def test_processes_signals_and_renames_are_touched_only_where_points_are():
    """The kernel's calls that can't be taken back stand in few places; each of those passes a point or is only reading."""
    acting = {"posix_spawn", "pidfd_send_signal", "kill", "rename", "replace_file"}
    found = {(path.name, node.func.attr) for path, node in calls_in_the_daemon() if ast.unparse(node.func.value) in
             {"os", "signal"} and node.func.attr in acting}  # fmt: skip
    assert {file for file, _ in found} <= {"process.py", "places.py", "workspace.py"}
