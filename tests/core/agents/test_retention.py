"""Decisions about old turns: limits hold, protected turns stay, and the decisions come to an end."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.core.agents.retention import Compress, Drop, OnDisk, RetentionLimits, decide

NOW = 1000.0
DAY = 100.0
NO_LIMITS = RetentionLimits(0, 0, 1e9, 0)


def turn(number, size=10, agent="a", ended_at=None, **more):
    return OnDisk(agent, f"{agent}-{number}", number, float(number) if ended_at is None else ended_at, size, **more)


def short(actions):
    return [(type(action).__name__, action.turn.turn) for action in actions]


def test_without_limits_nothing_is_done():
    assert decide([turn(number, 10**12) for number in range(1, 5)], NO_LIMITS, NOW) == []


def test_old_turns_are_compressed_oldest_first():
    turns = [
        turn(3, ended_at=950.0),
        turn(2, ended_at=900.0),
        turn(1, ended_at=800.0),
        turn(4, ended_at=700.0, packed=True),
    ]
    assert short(decide(turns, NO_LIMITS._replace(compress_after=DAY), NOW)) == [("Compress", "a-1"), ("Compress", "a-2")]


def test_older_ones_are_dropped_with_a_reason():
    turns = [turn(1, ended_at=NOW - DAY - 1), turn(2, ended_at=NOW - DAY)]
    (drop,) = decide(turns, NO_LIMITS._replace(keep=DAY), NOW)
    assert drop == Drop(turns[0], "it is older than disk.keep allows")


def test_an_agent_over_its_limit_is_compressed_before_anything_is_dropped():
    limits = NO_LIMITS._replace(agent=25)
    turns = [turn(1), turn(2), turn(3), turn(1, agent="b")]
    assert short(decide(turns, limits, NOW)) == [("Compress", "a-1"), ("Compress", "a-2"), ("Compress", "a-3")]
    packed = [one._replace(packed=True) for one in turns]
    (drop,) = decide(packed, limits, NOW)
    assert drop == Drop(packed[0], "its agent's turns have more bytes than disk.agent allows")


def test_the_oldest_of_all_go_when_all_together_are_too_many():
    turns = [turn(2, packed=True), turn(1, agent="b", packed=True), turn(3, packed=True)]
    (drop,) = decide(turns, NO_LIMITS._replace(state=25), NOW)
    assert (drop.turn.turn, "disk.state" in drop.reason) == ("b-1", True), drop


@pytest.mark.parametrize("why", [{"current": True}, {"unread": True}])
def test_what_is_protected_stays_though_it_counts(why):
    turns = [turn(1, 100, **why), turn(2, packed=True)]
    assert short(decide(turns, RetentionLimits(50, 50, 0, 1), NOW)) == [("Drop", "a-2")]


def test_a_running_turn_stays_though_it_counts():
    running = OnDisk("a", "a-9", 9, None, 100)
    assert short(decide([running, turn(2, packed=True)], NO_LIMITS._replace(agent=105), NOW)) == [("Drop", "a-2")]


def test_a_turn_from_the_future_is_not_old():
    assert decide([turn(1, ended_at=NOW + 5)], RetentionLimits(0, 0, 0, 1), NOW) == []


TURNS = st.lists(
    st.builds(
        OnDisk,
        agent=st.sampled_from("abc"), turn=st.uuids().map(str), number=st.integers(1, 50),
        ended_at=st.none() | st.floats(0, 2 * NOW), size=st.integers(0, 100), packed=st.booleans(),
        current=st.booleans(), unread=st.booleans(),
    ),
    max_size=30, unique_by=lambda one: one.turn,
)  # fmt: skip
LIMITS = st.builds(
    RetentionLimits, st.integers(0, 300), st.integers(0, 600), st.floats(0, 2 * NOW), st.just(0.0) | st.floats(0, 2 * NOW)
)


def applied(turns, actions, ratio):
    dropped = {action.turn.turn for action in actions if isinstance(action, Drop)}
    packed = {action.turn.turn for action in actions if isinstance(action, Compress)}
    kept = [one for one in turns if one.turn not in dropped]
    return [
        one._replace(size=int(one.size * ratio), packed=True) if one.turn in packed else one for one in kept
    ]  # fmt: skip


@given(TURNS, LIMITS, st.floats(0, 1.2))
def test_it_comes_to_an_end_where_limits_hold_and_nothing_protected_was_touched(turns, limits, ratio):
    left = turns
    for _ in range(3):  # compress, drop, and nothing more
        actions = decide(left, limits, NOW)
        assert not any(action.turn.protected for action in actions)
        assert len({action.turn.turn for action in actions}) == len(actions)
        left = applied(left, actions, ratio)
    assert decide(left, limits, NOW) == []
    assert {one for one in turns if one.protected} <= set(left)
    sizes: Counter[str] = Counter()
    for one in left:
        sizes[one.agent] += one.size
    free = [one for one in left if not one.protected]
    for agent, size in sizes.items():
        assert not limits.agent or size <= limits.agent or not any(one.agent == agent for one in free)
    assert not limits.state or sum(sizes.values()) <= limits.state or not free
    assert not limits.keep or all(one.ended_at + limits.keep >= NOW for one in free)
    assert all(one.packed or one.ended_at + limits.compress_after > NOW for one in free)


@given(TURNS, LIMITS)
def test_no_more_is_dropped_than_has_to_be(turns, limits):
    packed = [one._replace(packed=True) for one in turns]
    drops = [action.turn for action in decide(packed, limits._replace(keep=0.0), NOW)]
    for last in drops[-1:]:  # without the last one, a limit was still exceeded
        left = [one for one in packed if one not in drops or one is last]
        own = sum(one.size for one in left if one.agent == last.agent)
        assert (limits.agent and own > limits.agent) or (limits.state and sum(one.size for one in left) > limits.state)
