"""A reason for stopping a turn: its stored form, also as older daemons wrote it, and the outcome that it leads to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.core.agents import stop_reason
from substrat.core.agents.records import Outcome
from substrat.core.agents.stop_reason import StopKind, StopReason, parse
from substrat.core.agents.verdict import TurnObservation, judge
from substrat.core.programs.table import CURSOR
from tests.support.cases import each

STORED = {
    stop_reason.SUSPENDED: "suspended",
    stop_reason.INTERRUPTED: "interrupted",
    stop_reason.ENDED: "ended",
    stop_reason.AFTER_RESULT: "went on after its result",
    stop_reason.took_too_long(0.5): "time limit of 0.5 s",
    stop_reason.silent_too_long(900): "silence limit of 900 s",
    stop_reason.call_too_long(5, "sh: sleep 1000 of 2000"): "tool limit of 5 s: sh: sleep 1000 of 2000",
    stop_reason.over_output_limit(4096): "output limit of 4096 bytes",
    stop_reason.over_home_limit(4096): "home limit of 4096 bytes",
    stop_reason.fills_disk(1, 5 << 20): "disk nearly full: 5 MiB were left and it had just written 1 MiB",
    stop_reason.out_of_budget("90 of 90 minutes of lead"): "budget: 90 of 90 minutes of lead",
    StopReason(StopKind.PROTECTION, "/w/.git/config: of old"): "protection lost: /w/.git/config: of old",
}
OF_OLDER_DAEMONS = {"time limit": StopKind.TIME_LIMIT, "silence limit": StopKind.SILENCE_LIMIT}


def test_every_kind_is_stored_in_the_words_that_daemons_have_always_written():
    assert {reason.kind for reason in STORED} == set(StopKind)
    assert {reason: str(reason) for reason in STORED} == STORED
    assert [parse(text) for text in STORED.values()] == list(STORED)


@given(st.sampled_from(StopKind), st.text())
def test_any_detail_is_read_as_it_was_written(kind, detail):
    assert parse(str(StopReason(kind, detail))) == StopReason(kind, detail)


@each(("text", "kind"), OF_OLDER_DAEMONS.items())
def test_limits_without_their_seconds_are_read(text, kind):
    assert parse(text) == StopReason(kind)
    assert judge(TurnObservation(None, 130, parse(text), "", anything=True), CURSOR).outcome is Outcome.TIMED_OUT


@pytest.mark.parametrize("text", ["", "Suspended", "suspended ", "time limits of 5 s", "allowance: 5 tokens"])
def test_words_that_no_daemon_has_written_are_refused(text):
    with pytest.raises(ValueError, match="StopKind"):
        parse(text)
