"""The time at which a usage limit ends, read from a program's words."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.core.programs.stated_times import stated_time

NOW = datetime(2026, 11, 26, 12, 0, tzinfo=UTC).timestamp()


def at(year, month, day, hour=0, minute=0):
    return datetime(year, month, day, hour, minute, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("Your usage limits will reset when your monthly cycle ends on 12/17/2026.", at(2026, 12, 17)),
        ("*Your usage limits will reset when your monthly cycle ends on 1/2/27.*", at(2027, 1, 2)),
        ("used up: it resets at 2026-11-26T13:30:00Z (said)", at(2026, 11, 26, 13, 30)),
        ("used up: it resets at 2026-11-26 13:30 UTC", at(2026, 11, 26, 13, 30)),
        ("try again after 2026-11-26T15:00:00+02:00", at(2026, 11, 26, 13)),
        ("available again on 2026-12-01", at(2026, 12, 1)),
        ("Error: You've hit your usage limit. Try again in 3 hours.", NOW + 3 * 3600),
        ("try again in 1h 20m 5s", NOW + 4805),
        ("resets in 2 days and 3 hours", NOW + 2 * 86400 + 3 * 3600),
        ("retry after 90 seconds", NOW + 90),
        ("You're out of usage. Switch to Auto, or ask your admin to raise your spend limit.", None),
        ("will reset when your monthly cycle ends on 8/12/2099", None),
        ("will reset when your monthly cycle ends on 11/17/2026", None),
        ("resets on 17/45/2026", None),
        ("resets at 2026-99-99T99:99", None),
        ("You've saved $2504 this month", None),
        ("try again in 0 seconds", None),
    ],
)
def test_a_time_is_read_if_it_is_a_likely_one(text, time):
    assert stated_time(text, NOW) == time


@given(st.text(alphabet="reset aginul0123456789/-:T.+hdms\n", max_size=80))
def test_any_words_are_read_without_a_mistake(text):
    found = stated_time(text, NOW)
    assert found is None or found > NOW
