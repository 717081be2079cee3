"""What the stages of `.ci/run` come to: decisions about records and exit statuses, without doing anything."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

MOST_IN_QUARANTINE = 5
MOST_TO_REPEAT = 10  # more have one cause in common, and would take longer than they tell
LONGEST_ID = 150
LONGEST_LINE = 200


@dataclass(frozen=True)
class Outcome:
    """What a stage came to. Tests are known by their ids; failures have the last line of their errors."""

    passed: Collection[str] = ()
    skipped: Collection[str] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)
    """What failed and is no test: a file that can't be collected, a program, the stage itself."""
    crashed: bool = False
    left: tuple[str, ...] = ()
    """What its tests have left behind, a line each."""


def outcome_of(name: str, record: Iterable[str], code: int) -> Outcome:
    """Read the record of a stage that ended with an exit status."""
    events = [json.loads(line) for line in record]
    found: dict[str, dict[str, str]] = {"passed": {}, "skipped": {}, "failed": {}, "uncollected": {}}
    for event in events:
        if event["event"] in found:
            found[event["event"]].setdefault(event["id"], event.get("error", ""))
    failed, broken = found["failed"], found["uncollected"]
    kinds = {event["event"] for event in events}
    told = code == 0 or (code == 1 and (failed or broken)) or (code == 2 and broken)
    if "finished" not in kinds or not told:
        broken = broken | {name: f"exit {code}"}
    if "crashed" in kinds and not (failed or broken):  # between two tests, or after the last
        broken = {name: "a process that ran tests has ended early"}
    passed = found["passed"].keys() - failed.keys()
    return Outcome(passed, found["skipped"].keys() - passed - failed.keys(), failed, broken, "crashed" in kinds)


def tests_to_repeat(outcomes: Mapping[str, Outcome], quarantined: Collection[str]) -> dict[str, list[str]]:
    """Say which failed tests of each stage run once more."""
    failed = {name: [test for test in outcome.failed if test not in quarantined] for name, outcome in outcomes.items()}
    if any(outcome.crashed for outcome in outcomes.values()) or sum(map(len, failed.values())) > MOST_TO_REPEAT:
        return {}
    return {name: tests for name, tests in failed.items() if tests}


def last_lines(outcomes: Mapping[str, Outcome], repeated: Mapping[str, Outcome], quarantined: Collection[str]) -> list[str]:
    """Say what all stages came to together; the first line begins with FAILED unless nothing failed."""
    failed, flaky, excused = [], [], []
    for name, outcome in outcomes.items():
        again = repeated.get(name, Outcome())
        for test, error in outcome.failed.items():
            if test in quarantined:
                excused.append(f"quarantined {shortened(test, LONGEST_ID)}")
            elif test in again.passed:
                flaky.append(f"flaky {shortened(test, LONGEST_ID)}")
            else:
                failed.append(f"FAILED {shortened(test, LONGEST_ID)} - {error}")
        broken = {**outcome.broken, **again.broken}
        left = [line for line in again.left if line not in outcome.left]
        if outcome.failed.keys() and outcome.failed.keys() <= {*again.passed, *quarantined}:
            # A test that failed in the middle may leave a process behind: that is its fault, and it is named already.
            excused += [f"left behind beside a flaky test of {name}: {line}" for line in outcome.left]
        else:
            left += outcome.left
        if left:
            broken[f"{name} left something behind"] = left[0]
        failed += [f"FAILED {shortened(what, LONGEST_ID)} - {error}" for what, error in broken.items()]
    passed = sum(len(outcome.passed) for outcome in outcomes.values()) + len(flaky)
    skipped = sum(len(outcome.skipped) for outcome in outcomes.values())
    total = f"{passed} passed, {len(failed)} failed" + (f", {skipped} skipped" if skipped else "")
    lines = [*failed, *dict.fromkeys(flaky), *dict.fromkeys(excused), total]
    return [shortened(line, LONGEST_LINE) for line in lines]


def shortened(text: str, length: int) -> str:
    """Make one line of a text, no longer than that."""
    line = "".join(letter if letter.isprintable() else " " for letter in text)
    return line if len(line) <= length else line[: length - 3] + "..."


def read_quarantine(text: str) -> set[str]:
    """Read the ids of the tests in quarantine; ValueError tells what is wrong with the list."""
    entries = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if len(entries) > MOST_IN_QUARANTINE:
        raise ValueError(f"{len(entries)} entries, but at most {MOST_IN_QUARANTINE} may be in quarantine")
    parts = [entry.rpartition(" - ") for entry in entries]
    for test, _, reason in parts:
        if not (test.strip() and reason.strip()):
            raise ValueError(f"an entry is `ID - reason`, not {test or reason!r}")
    return {test.strip() for test, _, _ in parts}
