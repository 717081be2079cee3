"""What became of a turn, from what was seen of it; it looks at nothing itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from substrat.core import cgroups, failures
from substrat.core.cgroups import RanOut
from substrat.core.records import Outcome

if TYPE_CHECKING:
    from substrat.core.failures import Failure
    from substrat.core.stream import Result


TIME_LIMIT = "time limit"
SILENCE_LIMIT = "silence limit"
LIMITS = {
    TIME_LIMIT: "the turn ran into its time limit (turns.time_limit)",
    SILENCE_LIMIT: "the turn printed nothing for longer than it may (turns.silence_limit)",
}
"""What a turn is stopped by that takes too long, and what is said then."""
_OUTPUT_LIMIT = "output limit of "


def over_output_limit(limit: int) -> str:
    """Return the reason for stopping a turn that wrote too much.

    Args:
        limit: how many bytes it was allowed.
    """
    return f"{_OUTPUT_LIMIT}{limit} bytes"


class Seen(NamedTuple):
    """What was seen of a turn that is over.

    Args:
        result: its `result` event, if it came.
        exit_code: the program's, if bubblewrap could still write it down.
        stop: why the daemon was stopping it, if it was.
        errors: the end of its standard error.
        anything: whether it wrote anything to standard output.
        damage: what was wrong with its files, if anything was.
        ran_out: what it hadn't enough of.
    """

    result: Result | None
    exit_code: int | None
    stop: str | None
    errors: str
    anything: bool
    damage: str | None = None
    ran_out: RanOut = RanOut()


_KILLED = 128 + 9
"""The exit code of a program that was ended by SIGKILL."""

NOTHING_SEEN = Seen(None, None, None, "", anything=False)
"""Of a turn that never came to its launch."""


class Verdict(NamedTuple):
    """How a turn ended.

    Args:
        outcome: in one word.
        error: in one sentence, unless it went well.
        failure: its name, when it is one of cursor-agent's known ones.
    """

    outcome: Outcome
    error: str | None
    failure: Failure | None = None


def judge(seen: Seen) -> Verdict:
    """Decide a turn's outcome.

    A `result` decides whatever the exit code is, and no `result` is a failure whatever the exit code is: cursor-agent
    was seen to exit 0 without one, and to print one and never exit.

    Args:
        seen: what was seen.
    """
    if seen.result is not None:
        if seen.result.is_error:
            return Verdict(Outcome.ERROR, seen.result.text or "the agent reported an error without a text")
        if (failure := failures.shown_as_answer(seen.result.text)) is not None:
            return Verdict(Outcome.ERROR, failure.sentence, failure)
        return Verdict(Outcome.SUCCESS, None)
    if seen.stop in LIMITS:
        return Verdict(Outcome.TIMED_OUT, LIMITS[seen.stop])
    if seen.stop is not None and seen.stop.startswith(_OUTPUT_LIMIT):
        said = f"the turn ran into its {seen.stop}, which is disk.turn_output of the configuration: raise it if it must"
        return Verdict(Outcome.ERROR, f"{said} write so much")
    if seen.stop is not None:
        return Verdict(Outcome.INTERRUPTED, f"stopped: {seen.stop}")
    if seen.damage is not None:
        outcome = Outcome.LOST if seen.exit_code is None else Outcome.ERROR
        return Verdict(outcome, f"what became of the turn can't be told: {seen.damage}")
    if (shortage := cgroups.out_of_memory(seen.ran_out)) is not None:
        return Verdict(Outcome.ERROR, shortage, failures.out_of_memory(shortage))
    if seen.exit_code is None:
        return Verdict(Outcome.LOST, "the sandbox was killed from outside, or the machine restarted")
    if (failure := failures.recognise(seen.errors)) is not None:
        return Verdict(Outcome.ERROR, failure.sentence, failure)
    if seen.exit_code == _KILLED:
        said = "as the kernel does when the machine runs out of memory: `journalctl -k` tells whether it did"
        return Verdict(Outcome.ERROR, f"the agent program was killed (status {_KILLED}), {said}")
    reason = failures.last_words(seen.errors)
    said = f": {reason}" if reason else ("" if seen.anything else " and without any output")
    return Verdict(Outcome.ERROR, f"the agent program exited with status {seen.exit_code} without a result{said}")
