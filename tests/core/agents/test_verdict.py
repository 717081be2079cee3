"""The outcome of a turn, judged from its observation."""

import itertools
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.core.agents import verdict as verdicts
from substrat.core.agents.records import Outcome
from substrat.core.agents.stop_reason import (
    ENDED,
    INTERRUPTED,
    SUSPENDED,
    fills_disk,
    over_home_limit,
    over_output_limit,
    took_too_long,
)
from substrat.core.agents.verdict import TurnObservation, end_of
from substrat.core.programs.failures import DISK_FULL_IN_TURN
from substrat.core.programs.program import TurnResult
from substrat.core.programs.table import CURSOR
from tests.support.cases import each
from tests.support.optional import present

judge = partial(verdicts.judge, program=CURSOR)
GOOD = TurnResult("done", is_error=False, usage=None)
BAD = TurnResult("quota", is_error=True, usage=None)
SILENT = TurnResult("", is_error=True, usage=None)


def seen(result=None, exit_code=0, stop=None, errors="", anything=True):
    return TurnObservation(result, exit_code, stop, errors, anything)


@pytest.mark.parametrize("exit_code", [0, 1, None])
def test_a_result_that_says_error_is_one(exit_code):
    verdict = judge(seen(BAD, exit_code))
    assert verdict.outcome is Outcome.ERROR
    assert verdict.error == "quota"
    assert judge(seen(SILENT, exit_code)).error


@pytest.mark.parametrize("exit_code", [0, 130, 143, None])
def test_a_stopped_turn(exit_code):
    assert judge(seen(None, exit_code, took_too_long(5))).outcome is Outcome.TIMED_OUT
    for reason in (SUSPENDED, INTERRUPTED, ENDED):
        verdict = judge(seen(None, exit_code, reason))
        assert verdict.outcome is Outcome.INTERRUPTED
        assert str(reason) in verdict.error


@pytest.mark.parametrize("exit_code", [0, 130, None])
def test_a_turn_that_wrote_too_much(exit_code):
    verdict = judge(seen(None, exit_code, over_output_limit(4096)))
    assert verdict.outcome is Outcome.ERROR
    assert "4096 bytes" in verdict.error
    assert "disk.turn_output" in verdict.error
    assert judge(seen(GOOD, 0, over_output_limit(4096))).outcome is Outcome.SUCCESS


@pytest.mark.parametrize(("exit_code", "outcome"), [(None, Outcome.LOST), (0, Outcome.ERROR)])
def test_damage_is_the_reason_where_nothing_else_is_known(exit_code, outcome):
    damaged = seen(None, exit_code)._replace(damage="stdout is gone")
    assert judge(damaged).outcome is outcome
    assert "stdout is gone" in judge(damaged).error
    assert judge(damaged._replace(stop=SUSPENDED)).outcome is Outcome.INTERRUPTED
    assert judge(damaged._replace(result=GOOD)).outcome is Outcome.SUCCESS


def test_a_failure_says_status_and_last_words():
    verdict = judge(seen(None, 7, errors="\x1b[33m⚠ Something\x1b[0m\n\n  went   wrong\n"))
    assert verdict.outcome is Outcome.ERROR
    assert "status 7" in verdict.error
    assert "⚠ Something went wrong" in verdict.error


def test_a_failure_without_a_word_says_so():
    assert "without any output" in judge(seen(None, 0, anything=False)).error
    assert "without any output" not in judge(seen(None, 0, anything=True)).error


@given(st.text(max_size=3000))
def test_the_reason_is_one_line_without_terminal_codes(errors):
    error = present(judge(seen(None, 1, errors=errors)).error)
    assert len(error.splitlines()) == 1
    assert "\x1b[" not in error
    assert len(error) < 1200


KNOWN = [
    ("Error: Authentication required. Please run 'agent login' first, or set CURSOR_API_KEY", "login"),
    ("\x1b[33m⚠ Warning: The provided API key is invalid.\x1b[0m", "API key"),
    ("Cannot use this model: gpt-99. Available models: auto, sonnet", "gpt-99"),
    ("error: unknown option '--trust'", "--trust"),
]


@pytest.mark.parametrize(("errors", "word"), KNOWN)
def test_a_known_failure_is_told_with_its_remedy(errors, word):
    verdict = judge(seen(None, 1, errors=errors))
    assert verdict.outcome is Outcome.ERROR
    assert word in verdict.error


def test_a_good_result_alone_is_success_and_every_other_combination_has_a_sentence():
    results, codes = (None, GOOD, BAD, SILENT), (None, 0, 1, 255)
    stops = (None, SUSPENDED, INTERRUPTED, ENDED, took_too_long(5), over_output_limit(1))
    for result, code, stop, errors, anything in itertools.product(results, codes, stops, ("", "words"), (False, True)):
        verdict = judge(TurnObservation(result, code, stop, errors, anything))
        assert (verdict.outcome is Outcome.SUCCESS) == (result is GOOD), "whatever else was seen"
        assert (verdict.outcome is Outcome.LOST) == (result is code is stop is None), "without an exit code"
        assert (verdict.error is None) == (verdict.outcome is Outcome.SUCCESS)


NO_ROOM = [
    "ENOSPC: no space left on device, write",
    "OSError: [Errno 28] No space left on device",
    "EDQUOT",
    "Disk quota exceeded",
]


@pytest.mark.parametrize("errors", ["", " \n", *NO_ROOM])
def test_a_program_that_ended_on_a_full_disk_without_saying_anything_else(errors):
    verdict = judge(seen(None, 1, None, errors)._replace(disk_full=True))
    assert verdict.failure is DISK_FULL_IN_TURN
    assert "disk is full" in verdict.error


@pytest.mark.parametrize("errors", NO_ROOM)
def test_a_program_that_found_no_room_elsewhere_is_not_tried_again(errors):
    verdict = judge(seen(None, 1, None, errors))
    assert verdict.failure is None
    assert "sandbox.memory_dir_bytes" in verdict.error


def test_a_full_disk_excuses_nothing_else():
    assert judge(seen(None, 1, None, "Cannot use this model: x")._replace(disk_full=True)).failure.name == "no-such-model"
    assert judge(seen(None, 1, None, "TypeError: x")._replace(disk_full=True)).failure is None
    assert judge(seen(None, None)._replace(disk_full=True)).outcome is Outcome.LOST
    assert judge(seen(GOOD, 1)._replace(disk_full=True)).outcome is Outcome.SUCCESS
    assert judge(seen(None, 1, SUSPENDED)._replace(disk_full=True)).outcome is Outcome.INTERRUPTED


@pytest.mark.parametrize("reason", [over_home_limit(4096), fills_disk(3 << 20, 5 << 20)])
def test_a_turn_that_took_too_much_of_the_disk(reason):
    verdict = judge(seen(None, 130, reason))
    assert verdict.outcome is Outcome.ERROR
    assert any(words in verdict.error for words in ("4096 bytes", "5 MiB were left and it had just written 3 MiB"))


@each(("written", "end"), [(None, 90.0), (50.0, 50.0), (5.0, 10.0), (95.0, 90.0)])
def test_a_turn_ends_when_its_files_say_but_within_its_life(written, end):
    assert end_of(seen()._replace(ended_at=written), started_at=10.0, now=90.0) == end
