"""The time at which a usage limit ends, read from a program's words."""

from datetime import UTC, datetime
from time import tzset

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.core.programs.stated_times import stated_time

NOW = datetime(2026, 11, 26, 12, 0, tzinfo=UTC).timestamp()


def at(year, month, day, hour=0, minute=0):
    return datetime(year, month, day, hour, minute, tzinfo=UTC).timestamp()


def test_a_time_is_read_if_it_is_a_likely_one():
    for text, time in [
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
        ("resets in 2 months", None),
        ("retry after 500 ms", None),
        ("Your limit resets at 12:30 AM", None),
        ("try again at 2:30", None),
    ]:
        assert stated_time(text, NOW) == time


CYCLE = "You've hit your usage limit. Your usage limits will reset when your monthly cycle ends on 11/27/2026."
MIDNIGHT = at(2026, 11, 27)


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Chatham", "America/Los_Angeles"])
@pytest.mark.parametrize(
    ("text", "now", "time"),
    [
        (CYCLE, MIDNIGHT - 1, MIDNIGHT),
        (CYCLE, MIDNIGHT, None),  # it should be over: tried after some minutes, again and again
        (CYCLE, MIDNIGHT + 1, None),
        (CYCLE, MIDNIGHT - 8 * 3600, MIDNIGHT),  # midnight in Shanghai
        (CYCLE, MIDNIGHT + 8 * 3600, None),  # midnight in Los Angeles
        ("it resets at 2026-11-27T00:10:00Z", MIDNIGHT - 600, MIDNIGHT + 600),
        ("it resets at 2026-11-27 00:10", MIDNIGHT - 600, MIDNIGHT + 600),
        ("it resets at 2026-11-26T23:50:00-08:00", MIDNIGHT + 3600, MIDNIGHT + 7 * 3600 + 3000),
        ("it resets at 2026-11-27T00:10:00+12:45", MIDNIGHT - 13 * 3600, MIDNIGHT - 12 * 3600 - 2100),
        ("it resets at 2026-11-27T00:10:00+1245", MIDNIGHT - 13 * 3600, MIDNIGHT - 12 * 3600 - 2100),
        ("try again in 20 minutes", MIDNIGHT - 600, MIDNIGHT + 600),
        ("available again on 2026-12-01", at(2026, 11, 30, 23, 59), at(2026, 12, 1)),
        ("will reset when your monthly cycle ends on 1/1/2027", at(2026, 12, 31, 23, 59), at(2027, 1, 1)),
        ("You're out of usage. Switch to Auto, or ask your admin to raise your spend limit.", MIDNIGHT - 1, None),
    ],
)
def test_around_midnight_the_machines_time_zone_makes_no_difference(text, now, time, zone, monkeypatch):
    monkeypatch.setenv("TZ", zone)
    tzset()
    try:
        assert stated_time(text, now) == time
    finally:
        monkeypatch.undo()
        tzset()


@given(st.text(alphabet="reset aginul0123456789/-:T.+hdms\n", max_size=80))
def test_any_words_are_read_without_a_mistake(text):
    found = stated_time(text, NOW)
    assert found is None or found > NOW
