"""When reminders are due."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.core.agents import reminding
from substrat.core.agents.reminding import Reminder
from substrat.errors import InvalidParams

delays = st.lists(st.floats(0.0, 500.0), min_size=1, max_size=40)


@given(every=st.floats(1.0, 100.0), times=st.one_of(st.none(), st.integers(1, 10)), late=delays, end=st.floats(0.0, 900.0))
def test_one_that_repeats_comes_once_for_all_that_were_missed_and_ends(every, times, late, end):
    """Told ever so late, it is due again in the future, at a multiple of its period, and never past its end."""
    reminder = Reminder(1, "a", every, "x", every, times, end)
    for told, delay in enumerate(late, 1):
        now = reminder.due + delay
        coming = reminding.following(reminder, now)
        if coming is None:
            assert told == times or reminder.due + every * ((delay // every) + 1) > end - 1e-6
            return
        assert now <= coming.due <= now + every + 1e-6
        assert coming.due <= end
        assert abs(coming.due / every - round(coming.due / every)) < 1e-6
        assert times is None or told < times
        reminder = coming


def test_one_without_a_period_comes_once():
    assert reminding.following(Reminder(1, "a", 5.0, "x"), 5.0) is None


@pytest.mark.parametrize(
    ("every_s", "times", "until"),
    [(None, 2, None), (None, None, 9.0), (0.5, 2, None), (60.0, None, None), (1e9, 2, None),
     (60.0, None, 99.0)],
)  # fmt: skip
def test_periods_that_make_no_sense_are_refused(every_s, times, until):
    with pytest.raises(InvalidParams):
        reminding.check_period(100.0, every_s, times, until)


@pytest.mark.parametrize(
    ("in_s", "at", "every_s"),
    [(None, None, None), (1.0, "2026-01-01T00:00:00Z", None), (1e9, None, None), (None, "2026-01-01T00:00:00", None),
     (None, "tomorrow", None)],
)  # fmt: skip
def test_times_that_make_no_sense_are_refused(in_s, at, every_s):
    with pytest.raises(InvalidParams):
        reminding.first_due(1_767_225_600.0, in_s, at, every_s)
