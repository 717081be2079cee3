"""The silence of a turn: which limit counts, and when it is looked at again."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from substrat.core.agents.records import Process, Turn
from substrat.core.agents.turn_limits import TurnLimits, time_silent, time_used
from tests.support.cases import each

CASES = [
    # the limits on silence and on a tool call's, whether a call is open, the seconds of silence, the answer
    (900.0, None, False, 0.0, 900.0),
    (900.0, None, False, 900.0, 0.0),
    (900.0, None, True, 5000.0, 900.0),  # no limit, but a call that ends begins a silence that has one
    (None, None, False, 5000.0, None),
    (None, None, True, 5000.0, None),
    (None, 60.0, True, 20.0, 40.0),
    (None, 60.0, False, 5000.0, 60.0),
    (900.0, 3600.0, True, 900.0, 900.0),
    (900.0, 3600.0, True, 3500.0, 100.0),
    (900.0, 60.0, False, 0.0, 60.0),  # a call may begin at once and be over its limit then
]


@each(("silence", "tool", "is_calling", "silent", "expected"), CASES)
def test_when_a_silence_is_looked_at_again(silence, tool, is_calling, silent, expected):
    limits = TurnLimits(5.0, 10.0, silence=silence, tool=tool)
    assert limits.silence_left(silent, is_calling=is_calling) == expected


@given(
    st.floats(1, 100), st.none() | st.floats(1, 100), st.lists(st.tuples(st.floats(0.5, 300), st.booleans()), max_size=8)
)
def test_a_limit_is_found_at_its_moment_whenever_calls_begin_and_end(silence, tool, lines):
    """Each line comes some seconds after the one before, and says whether a call is open from then on."""
    limits = TurnLimits(5.0, 10.0, silence=silence, tool=tool)
    times, is_open, now, last = [(0.0, False)], False, 0.0, 0.0
    for gap, is_calling in lines:
        times.append((times[-1][0] + gap, is_calling))
    expected = None
    for at, (began, is_calling) in enumerate(times):
        limit = tool if is_calling else silence
        ends = times[at + 1][0] if at + 1 < len(times) else float("inf")
        if limit is not None and began + limit < ends:
            expected = began + limit
            break
    for _ in range(10_000):
        last, is_open = max(line for line in times if line[0] <= now)
        left = limits.silence_left(now - last, is_calling=is_open)
        assert left is not None
        if left <= 1e-6:
            assert expected is not None
            assert abs(now - expected) < 1e-3
            return
        now += left
        if expected is None and now > times[-1][0] + 1000:
            return
    raise AssertionError("it is looked at too often")


@each(
    ("begun_at", "paused", "frozen_at", "expected"),
    [
        (None, 0.0, None, 0.0),  # no sandbox yet, or a turn of an earlier version
        (100.0, 0.0, None, 400.0),
        (100.0, 50.0, None, 350.0),
        (100.0, 50.0, 300.0, 150.0),
        (900.0, 0.0, None, 0.0),  # of a boot before this one
    ],
)
def test_the_time_that_a_turn_has_used(begun_at, paused, frozen_at, expected):
    turn = Turn("t", "a", 1, 1e9, begun_at=begun_at, paused=paused, frozen_at=frozen_at)
    assert time_used(turn, 500.0) == expected


@each(
    ("heard_at", "since_printed", "expected"),
    [
        (400.0, None, 100.0),
        (400.0, 30.0, 30.0),  # it printed while no daemon ran
        (400.0, 30_000.0, 100.0),  # the machine slept, or the clock was set forward
        (400.0, -3000.0, 0.0),  # the clock was set back
        (None, None, 0.0),  # of an earlier version
        (900.0, None, 0.0),  # of a boot before this one
    ],
)
def test_the_silence_that_an_earlier_daemon_left(heard_at, since_printed, expected):
    turn = Turn("t", "a", 1, 1e9, process=Process(1, 1, "b"), heard_at=heard_at)
    assert time_silent(turn, 500.0, since_printed) == expected
    assert time_silent(replace(turn, process=None), 500.0, since_printed) == 0.0, "it is about to start"
