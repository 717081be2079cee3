"""Runs the stages of `.ci/run`, which tells what they are, and prints its last lines."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from outcomes import Outcome, last_lines, outcome_of, read_quarantine, tests_to_repeat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

LEFTOVERS = Path(__file__).parents[1] / "tests" / "support" / "leftovers.py"
QUARANTINE = Path("tests", "quarantine.txt")
STAGES = ("lint", "types", "quick", "slow", "ordinary")
SPREAD = (os.environ.get("SPREAD") or Path(__file__).with_name("spread").read_text()).split()
USER = "substrat-ci"
SAME_FOR_ALL_USERS = (
    *(f"daemon/{room}" for room in ("agents", "servers", "state", "turns")),
    *(
        f"system/test_{name}.py"
        for name in (
            "acceptance", "bell", "broken_turns", "commands", "damage", "failures", "hidden_changes", "kills", "killpoints",
            "landing", "landing_kills", "log",
            "lost_turns", "messages", "needs_you", "queue", "questions", "refusals", "restore", "results",
            "settings", "suspend", "survival", "turns", "views", "waits", "why",
        )
    ),
)  # fmt: skip
"""Tests that the ordinary user leaves out, because what they test doesn't depend on the user: how agents and turns live,
what is stored, what people read.
"""
FORBIDDEN = 77
CAN_MAKE_SANDBOXES = f"""
import sys
from sandbox import host
found = host.find_bubblewrap()
obstacle = "there is no bubblewrap" if found is None else host.sandbox_obstacle(found)
if obstacle is not None:
    print(obstacle)
    sys.exit({FORBIDDEN})
"""


@dataclass(frozen=True)
class Tests:
    """Tests of one stage, which run as one user, in one directory and with one environment."""

    pytest: tuple[str, ...]
    selection: tuple[str, ...]
    directory: Path
    environment: Mapping[str, str]
    record: Path
    """The file into which `tests/support/record.py` writes the result of each test."""
    places: Path
    """The file into which `tests/support/leftovers.py` writes each directory that the tests make."""


def run_program(command: Iterable[str], directory: Path, environment: Mapping[str, str]) -> int:
    """Run a program and return its exit status; an interrupt ends the program before it is raised again."""
    with subprocess.Popen(list(command), cwd=directory, env=environment, stdin=subprocess.DEVNULL) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
            raise


def run_check(target: str) -> Outcome:
    """Run `make lint` or `make types`; a finding is one line."""
    environment = {**os.environ, "RUFF_OUTPUT_FORMAT": "concise"}
    command = ["make", "--no-print-directory", target]
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    print(done.stdout, end="", flush=True)
    if done.returncode == 0:
        return Outcome()
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith("make: ")] or lines or [f"exit {done.returncode}"]
    return Outcome(broken={target: said[-1]})


def run_tests(name: str, tests: Tests, only: Iterable[str] = ()) -> Outcome:
    """Run the tests of a stage; given some of their ids, run only these, one after the other."""
    tests.record.unlink(missing_ok=True)
    leftovers("begin", tests)
    selection = tuple(only) or (*SPREAD, *tests.selection)
    command = (*tests.pytest, "-q", "-p", "tests.support.record", "--record", str(tests.record), *selection)
    code = run_program(command, tests.directory, tests.environment)
    outcome = outcome_of(name, tests.record.read_text().splitlines() if tests.record.exists() else (), code)
    if left := leftovers("check", tests):
        print(left, end="", flush=True)
        outcome = replace(outcome, left=tuple(left.splitlines()))
    return outcome


def leftovers(verb: str, tests: Tests) -> str:
    """Begin the look for leftovers, or check, and return a line for each thing that the tests have left behind."""
    command = [sys.executable, str(LEFTOVERS), verb, str(tests.places)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
    if verb == "begin":
        done.check_returncode()
        if os.getuid() == 0:  # the ordinary user's tests write to the file, too
            os.chown(tests.places, tests.directory.stat().st_uid, -1)
    elif done.returncode != 0 and not done.stdout:
        return f"it isn't known what: {LEFTOVERS.name} ended with exit {done.returncode}\n"
    return done.stdout


def tests_of_this_user(selection: str, record: Path, *more: str, **variables: str) -> Tests:
    """Return tests that run in this directory, as the user who runs this program."""
    places = record.with_suffix(".places")
    # A variable such as PYTEST_ADDOPTS may leave tests out.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    # With PYTHONDONTWRITEBYTECODE each of pytest's workers would compile all tests anew, longer than most tests run.
    environment = {**kept, "PYTHONDONTWRITEBYTECODE": "", "SUBSTRAT_TEST_RUN": str(places), **variables}
    pytest = str(Path(sys.executable).with_name("pytest"))
    return Tests((pytest,), ("-m", selection, *more), Path.cwd(), environment, record, places)


def tests_of_an_ordinary_user() -> Tests | None:
    """Clone the project for a user who isn't root, set the clone up, and return its tests.

    Returns:
        None if the user can't make sandboxes.

    Raises:
        subprocess.CalledProcessError: the clone can't be made or set up.
    """
    try:
        home = pwd.getpwnam(USER).pw_dir
    except KeyError:
        subprocess.run(["useradd", "--create-home", USER], check=True)
        home = pwd.getpwnam(USER).pw_dir
    clone = Path(home, "substrat")
    subprocess.run(["rm", "-rf", clone], check=True)
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ".", clone], check=True)
    subprocess.run(["chown", "-R", f"{USER}:", clone], check=True)
    variables = {"HOME": home, "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "CI": "true"}
    as_user = ("runuser", "-u", USER, "--", "env", "-i", *(f"{name}={value}" for name, value in variables.items()))
    # The user's Python is one of the system's: root's may lie in root's home, where the user may not execute it.
    set_up = """for p in /usr/bin/python3 /usr/local/bin/python3; do [ -x $p ] && export PYTHON=$p && break; done
        exec sh .ci/setup dev"""
    subprocess.run([*as_user, "sh", "-c", set_up], cwd=clone, stdin=subprocess.DEVNULL, check=True)
    # The clone's own code looks for bubblewrap, so it finds what a daemon would: the system's, or the set-up's.
    found = subprocess.run([*as_user, ".venv/bin/python", "-c", CAN_MAKE_SANDBOXES], cwd=clone, check=False)
    if found.returncode == FORBIDDEN:
        return None
    found.check_returncode()
    rooms = ("tests/system", "tests/redteam", "tests/sandbox", "tests/daemon", "tests/web/test_access.py")
    record = clone / ".venv" / "record"  # the user may write there
    places = record.with_suffix(".places")
    pytest = (*as_user, f"SUBSTRAT_TEST_RUN={places}", ".venv/bin/pytest")
    left_out = (f"--ignore=tests/{name}" for name in SAME_FOR_ALL_USERS)
    return Tests(pytest, ("-m", "not slow", *rooms, *left_out), clone, os.environ, record, places)


class Run:
    """One run of `.ci/run`: its stages and their outcomes."""

    def __init__(self, records: Path) -> None:
        executed = {"SUBSTRAT_TEST_DAEMONS": "executed", "SUBSTRAT_TEST_CASES": "some"}
        self._tests: dict[str, Tests] = {
            "quick": tests_of_this_user("not slow", records / "quick"),
            "slow": tests_of_this_user("slow", records / "slow", "--ignore=tests/real", **executed),
        }
        self._outcomes: dict[str, Outcome] = {}
        self._repeated: dict[str, Outcome] = {}
        self._times: list[str] = []
        self._quarantined: set[str] = set()

    def run(self, names: Iterable[str]) -> list[str]:
        """Run the stages, run the failed tests once more, and return the last lines of `.ci/run`."""
        name = "quarantine"
        try:
            self._quarantined = read_quarantine(QUARANTINE.read_text()) if QUARANTINE.exists() else set()
        except ValueError as error:
            self._outcomes[name] = Outcome(broken={str(QUARANTINE): str(error)})
        try:
            for name in names:
                self._outcomes[name] = self._timed(f"stage {name}", name, partial(self._run_stage, name))
            for name, only in tests_to_repeat(self._outcomes, self._quarantined).items():
                self._repeated[name] = self._timed(
                    f"stage {name} once more", name, partial(run_tests, name, self._tests[name], only)
                )
        except KeyboardInterrupt:
            self._outcomes["interrupted"] = Outcome(broken={name: "interrupted"})
        return [*self._times, *last_lines(self._outcomes, self._repeated, self._quarantined)]

    def _run_stage(self, name: str) -> Outcome:
        if name == "ordinary":
            tests = tests_of_an_ordinary_user()
            if tests is None:
                self._times.append("stage ordinary was left out: its user can't make sandboxes here, for the reason above")
                return Outcome()
            self._tests[name] = tests
        return run_tests(name, self._tests[name]) if name in self._tests else run_check(name)

    def _timed(self, title: str, name: str, run: Callable[[], Outcome]) -> Outcome:
        print(f"{title} begins", flush=True)
        began = time.monotonic()
        try:
            return run()
        except subprocess.CalledProcessError as error:
            return Outcome(broken={name: f"{Path(error.cmd[0]).name} ended with exit {error.returncode}"})
        except (OSError, ValueError) as error:
            return Outcome(broken={name: str(error)})
        finally:
            self._times.append(f"{title}: {time.monotonic() - began:.0f} s")


def main() -> None:
    """Run the stages that the arguments name, or all."""
    names = sys.argv[1:] or [name for name in STAGES if name != "ordinary" or os.getuid() == 0]
    if not set(names) <= set(STAGES):
        sys.exit(f"usage: .ci/run [{'|'.join(STAGES)}]...")
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="substrat-ci-") as records:
        lines = Run(Path(records)).run(names)
    print()  # a stage that was killed leaves a line unfinished
    for line in lines:
        print(line.encode(errors="backslashreplace").decode())
    sys.exit(any(line.startswith("FAILED ") for line in lines))


if __name__ == "__main__":
    main()
