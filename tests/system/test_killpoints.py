"""The daemon killed at each instant that has a name, once per instant, in the middle of the standard scenario.

`story.Story.check` says the conditions that hold afterwards. `make slow` tries all points. With
`SUBSTRAT_TEST_CASES=some`, as in `.ci/run`, it takes those of `OFTEN` and every eighth of the others.
"""

import ast
import os
import subprocess
from pathlib import Path

import pytest

from substrat.daemon import failpoints
from tests.support.daemon import PROGRAMS
from tests.system.story import AGENTS, CLONES, Story, part_of

DAEMON = Path(failpoints.__file__).parent
OFTEN = ("after: sandbox started", "before commit: turn accounted for")
"""The points that are tried each time: those at which most could go wrong."""
SWEEPING = tuple(f"{when} commit: {change}" for change in failpoints.SWEPT for when in ("before", "after"))
"""The points of a sweep, which the scenario is over too soon for."""
LOST = tuple(f"{when} commit: {failpoints.LOST}" for when in ("before", "after"))
"""The points of a start after a lost log; `test_lost_turns` kills at them."""

OTHERS = tuple(point for point in failpoints.FAILPOINTS if point not in OFTEN + SWEEPING + LOST)
STEP = {"all": 1, "some": 8}[os.environ.get("SUBSTRAT_TEST_CASES", "all")]


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("point", OFTEN + OTHERS[::STEP])
def test_a_kill_at_each_point_loses_nothing_and_does_nothing_twice(daemon, point):
    story = Story(daemon, {failpoints.KILL_AT: point}, part_of(point))
    story.play()
    assert story.deaths == 1, f"the scenario never came to {point!r}"
    story.check()


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("part", [AGENTS, CLONES])
def test_the_scenario_passes_every_point_when_nothing_is_killed(daemon, part):
    trace = daemon.directory / "trace"
    story = Story(daemon, {failpoints.TRACE: str(trace)}, part)
    story.play()
    story.check()
    wanted = {point for point in failpoints.FAILPOINTS if part_of(point) == part}
    assert wanted - set(trace.read_text().splitlines()) <= set(SWEEPING + LOST)


@pytest.mark.slow
@pytest.mark.timeout(360)
@pytest.mark.parametrize("point", SWEEPING)
def test_a_kill_while_old_output_goes_leaves_neither_half_of_it(daemon, until, point):
    config = "[disk]\ncompress_after = 0\nkeep = 0.1\n"
    daemon.start(config=config, environment={failpoints.KILL_AT: point})
    work = daemon.workspace()
    asked = [
        ("spawn", "anna", "-w", work, "/say one"),
        ("spawn", "gone", "-w", work),
        ("rm", "gone"),
        ("send", "anna", "two"),
    ]
    for words in asked:
        if daemon.ctl(*words, "--json").code == 3:
            revive(daemon, until, config)
            daemon.ctl(*words)
    # A sweep rests twenty times as long as the one before it took, which may be seconds on a machine that is busy.
    until(lambda: daemon.process.poll() is not None, "the kill", 240)
    revive(daemon, until, config)
    anna = daemon.wait("anna", "idle")
    until(lambda: daemon.events("anna", "history:dropped"), "the drop")
    directory = daemon.agents_directory(anna) / "turns"
    until(lambda: [path.name for path in directory.iterdir()] == ["2"], "the end of the first turn's files")
    until(lambda: [path.name for path in (daemon.state / "agents").iterdir()] == [anna["id"]], "the end of the other's")
    until(lambda: not list((daemon.state / "trash").glob("*")), "an empty trash")
    turns = {event["turn"] for event in daemon.events("anna") if event["raw"] is not None}
    assert turns == {anna["turn"]["id"]}
    assert len(daemon.events("anna", "history:dropped")) == 1


def revive(daemon, until, config):
    until(lambda: daemon.process.poll() is not None, "the daemon's death")
    daemon.start(config=config)


def test_the_points_are_listed_by_a_command():
    done = subprocess.run([PROGRAMS / "substratd", "--points"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == list(failpoints.FAILPOINTS)
    assert len(set(failpoints.FAILPOINTS)) == len(failpoints.FAILPOINTS)
    assert set(OFTEN) <= set(failpoints.FAILPOINTS)


def calls_in_the_daemon():
    for path in sorted(DAEMON.rglob("*.py")):
        if path.name != "failpoints.py":
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    yield path, node


def words(node):
    return {leaf.value for leaf in ast.walk(node) if isinstance(leaf, ast.Constant) and isinstance(leaf.value, str)}


def test_every_change_and_every_act_in_the_code_is_a_point():
    """A commit goes through `Registry.change`, which names it, so that none can be left out here."""
    changes: set[str] = set()
    acts: set[str] = set()
    moments: set[str] = set()
    for path, node in calls_in_the_daemon():
        match node.func.attr:
            case "change" if path.name != "registry.py":
                changes |= words(node.args[0])
            case "_update" | "_request":
                changes |= {word for word in words(node) if word in failpoints.CHANGES}
            case "before" | "after" if "points" in ast.dump(node.func.value):
                acts |= {"SIGINT sent", "SIGTERM sent"} if isinstance(node.args[0], ast.JoinedStr) else words(node.args[0])
            case "at":
                moments |= words(node.args[0])
    tools = {change for change in failpoints.CHANGES if change.startswith("tool called: ")}
    assert changes - {"tool called: "} == (set(failpoints.CHANGES) - tools) | set(failpoints.WITHIN_A_TOOL)
    assert acts == set(failpoints.ACTS)
    assert moments == set(failpoints.MOMENTS)


@pytest.mark.parametrize("name", ["transaction"])
def test_nothing_is_committed_past_the_points(name):
    found = [path.name for path, node in calls_in_the_daemon() if node.func.attr == name]
    # In the journal one lies inside the other, events are deleted, and it has its id before there is a registry, when
    # rows are set aside too.
    assert sorted(found) == [*["events.py"] * 4, *["quarantine.py"] * 2, "registry.py"]


IRREVERSIBLE = {"posix_spawn", "pidfd_send_signal", "kill", "killpg", "rename", "replace", "link"}
"""The calls of `os` and `signal` that can't be taken back."""


def test_processes_signals_and_renames_are_touched_in_few_places():
    """A new place is either passed by a failpoint or killed at each step by a test of its own, and then added here."""
    found = {
        (str(path.relative_to(DAEMON)), node.attr)
        for path in sorted(DAEMON.rglob("*.py"))
        if path.name != "failpoints.py"
        for node in ast.walk(ast.parse(path.read_text()))  # references too: `run_sync(os.rename, ...)` is a call
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in {"os", "signal"} and node.attr in IRREVERSIBLE
    }
    # A point is passed before and after.
    at_points = {
        ("kernel/process.py", "posix_spawn"),
        ("kernel/process.py", "kill"),
        ("kernel/process.py", "pidfd_send_signal"),
        ("kernel/sandbox_process.py", "kill"),
        ("kernel/sandbox_process.py", "pidfd_send_signal"),
        ("clones/making.py", "rename"),
    }
    # A new file takes the place of an old one in one step, and each of the two is whole.
    whole_files = {
        ("sandboxes/authorities.py", "replace"),
        ("chats/sessions.py", "rename"),
        ("sandboxes/chat_places.py", "replace"),
        ("state/backup.py", "rename"),
        ("state/backup.py", "replace"),
        ("state/layout.py", "replace"),
        ("clones/lfs_objects.py", "rename"),
    }
    # Tests of their own kill at each step: archiving, sweeping, setting aside, the room held back for a full disk.
    own_tests = {
        ("state/archive.py", "rename"),
        ("state/damaged_files.py", "rename"),
        ("state/reserve.py", "link"),
        ("state/trash.py", "rename"),
    }
    # The end of a helper whose caller is cancelled, and of a bell that takes too long: no later daemon takes these up.
    helpers = {
        ("kernel/helper.py", "killpg"),
        ("kernel/helper.py", "pidfd_send_signal"),
    }
    assert found == at_points | whole_files | own_tests | helpers
