"""`.ci/run`'s program over small suites: which tests run again, its last lines and its exit status."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / ".ci" / "stages.py"
CONFIG = "[pytest]\ntestpaths = suite\naddopts = --import-mode=importlib -p no:anyio\nmarkers = slow\n"
CHECKS = "lint:\n\t@true\ntypes:\n\t@echo one is wrong; echo Found 1 error; false\n"
LONGEST = 240
"""Seconds for one run, some ten of which it needs on an idle machine."""
HEAD = """
import os, signal, subprocess, sys
from pathlib import Path
import pytest

def first(name):
    try:
        Path(name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True

def test_passes():
    pass
"""
VARIED = """
@pytest.mark.parametrize("text", ["a b $HOME 'c' - ::d", "é\\n[x]"])
def test_fails_once(text):
    assert not first(f"seen {ord(text[0])}")

@pytest.fixture
def broken_end():
    yield
    assert not first("end"), "at the end"

def test_the_end_fails_once(broken_end):
    pass

@pytest.mark.slow
def test_slow_one_fails_once():
    assert (os.environ["SUBSTRAT_TEST_DAEMONS"], os.environ["SUBSTRAT_TEST_CASES"]) == ("executed", "some")
    assert not first("slow")
    assert "-n" not in sys.argv

def test_fails():
    assert [1] == [2], "above" + chr(10) + "below"

@pytest.mark.parametrize("text", [pytest.param("", id="x" * 300)])
def test_excused(text):
    first("excused again" if Path("excused").exists() else "excused")
    raise ValueError

def test_skipped():
    pytest.skip("not here")
"""


@pytest.fixture
def gate(tmp_path):
    def run(text, *stages, quarantine=""):
        (tmp_path / "suite").mkdir()
        (tmp_path / "tests").mkdir()
        (tmp_path / "pytest.ini").write_text(CONFIG)
        (tmp_path / "Makefile").write_text(CHECKS)
        (tmp_path / "suite" / "test_it.py").write_text(HEAD + text)
        (tmp_path / "tests" / "quarantine.txt").write_text(f"# comment\n\n{quarantine}")
        environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "SPREAD": "-n 0"}
        environment["PYTEST_ADDOPTS"] = "-k nothing"  # of a person who runs single tests
        command = [sys.executable, PROGRAM, *stages]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        ) as process:
            try:
                lines = process.communicate(timeout=LONGEST)[0].splitlines()
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                pytest.fail(f"{stages} weren't over after {LONGEST} s: {process.communicate()}")
        times = [line for line in lines if line.startswith("stage ") and line.endswith(" s")]
        return process.returncode, lines[lines.index(times[-1]) + 1 :], [line.rpartition(":")[0] for line in times]

    return run


@pytest.mark.slow
def test_each_stage_runs_and_failed_tests_run_once_more(gate, tmp_path):
    excused = f"suite/test_it.py::test_excused[{'x' * 300}]"
    code, lines, times = gate(VARIED, "types", "lint", "quick", "slow", quarantine=f"{excused} - it is long\n")
    assert lines == [
        "FAILED types - Found 1 error",
        "FAILED suite/test_it.py::test_fails - below",
        "flaky suite/test_it.py::test_fails_once[a b $HOME 'c' - ::d]",
        "flaky suite/test_it.py::test_fails_once[\\xe9\\n[x]]",
        "flaky suite/test_it.py::test_the_end_fails_once",
        "flaky suite/test_it.py::test_slow_one_fails_once",
        f"quarantined {excused[:147]}...",
        "5 passed, 2 failed, 1 skipped",
    ]
    assert code == 1
    assert times == [f"stage {name}" for name in ("types", "lint", "quick", "slow", "quick once more", "slow once more")]
    assert not (tmp_path / "excused again").exists()


@pytest.mark.slow
def test_a_flaky_test_fails_no_run(gate):
    code, lines, _ = gate("def test_once():\n    assert not first('once')", "quick")
    assert (code, lines) == (0, ["flaky suite/test_it.py::test_once", "2 passed, 0 failed"])


LEAVES = """
def test_once():
    if first("once"):
        Path("pid").write_text(str(subprocess.Popen(["sleep", "60"], start_new_session=True).pid))
        assert not "reached"
"""


@pytest.mark.slow
@pytest.mark.parametrize(("text", "code"), [(LEAVES, 0), (LEAVES.replace('assert not "reached"', "pass"), 1)])
def test_a_process_that_only_a_flaky_test_has_left_fails_no_run(gate, tmp_path, text, code):
    done, lines, _ = gate(text, "quick")
    pid = int((tmp_path / "pid").read_text())
    os.kill(pid, signal.SIGKILL)
    (line,) = [line for line in lines if "left" in line]
    assert (done, line.startswith("FAILED "), f"process {pid} sleep 60" in line) == (code, code == 1, True), lines


ENDS_EARLY = """
class Ending:
    def pytest_sessionfinish(self, session):
        session.config.hook.pytest_testnodedown(node=None, error="as xdist tells of it")

def test_last(request):
    request.config.pluginmanager.register(Ending())
"""
HIDES = "def test_x():\n    Path(os.environ['SUBSTRAT_TEST_RUN']).write_text('[')\n"
KILLS_AT_THE_END_OF_THE_SECOND_RUN = """
@pytest.fixture
def end():
    again = not first("begun")
    yield
    if again:
        os.kill(os.getpid(), signal.SIGKILL)

def test_once(end):
    assert not first("once")
"""


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (ENDS_EARLY, ["FAILED quick - a process that ran tests has ended early", "2 passed, 1 failed"]),
        (
            HIDES,
            [
                "FAILED quick left something behind - it isn't known what: leftovers.py ended with exit 1",
                "2 passed, 1 failed",
            ],
        ),
        (
            KILLS_AT_THE_END_OF_THE_SECOND_RUN,
            ["FAILED quick - exit -9", "flaky suite/test_it.py::test_once", "2 passed, 1 failed"],
        ),
    ],
)
@pytest.mark.slow
def test_a_run_that_went_wrong_beside_its_tests_has_failed(gate, text, lines):
    assert gate(text, "quick")[:2] == (1, lines)


CRASHES = """
def test_crashes(request):
    request.config.hook.pytest_testnodedown(node=None, error="as xdist tells of it")
    assert False, "crashed"
"""
KILLS = "def test_kills():\n    os.kill(os.getpid(), signal.SIGKILL)\n"
ELEVEN = "@pytest.mark.parametrize('n', range(11))\ndef test_once(n):\n    assert not first(str(n))\n"
IT = "suite/test_it.py"
ONCE = "AssertionError: assert not True"


@pytest.mark.parametrize(
    ("text", "passed", "failed"),
    [
        pytest.param(CRASHES, 1, [f"{IT}::test_crashes - AssertionError: crashed"], id="a worker crashes"),
        pytest.param("import none", 0, [f"{IT} - ModuleNotFoundError: No module named 'none'"], id="no import"),
        pytest.param(KILLS, 1, ["quick - exit -9"], id="a stage is killed"),
        pytest.param(ELEVEN, 1, [f"{IT}::test_once[{n}] - {ONCE}" for n in range(11)], id="eleven fail"),
    ],
)
@pytest.mark.slow
def test_nothing_runs_once_more_where_that_tells_nothing(gate, text, passed, failed):
    code, lines, times = gate(text, "quick")
    assert lines == [*(f"FAILED {line}" for line in failed), f"{passed} passed, {len(failed)} failed"]
    assert code == 1
    assert times == ["stage quick"]


@pytest.mark.parametrize(
    ("quarantine", "error"),
    [
        ("suite/test_it.py::test_x - late\n" * 6, "6 entries, but at most 5 may be in quarantine"),
        ("suite/test_it.py::test_x\n", "an entry is `ID - reason`, not 'suite/test_it.py::test_x'"),
    ],
)
def test_a_quarantine_is_short_and_has_reasons(gate, quarantine, error):
    code, lines, _ = gate("", "lint", quarantine=quarantine)
    assert (code, lines) == (1, [f"FAILED tests/quarantine.txt - {error}", "0 passed, 1 failed"])
