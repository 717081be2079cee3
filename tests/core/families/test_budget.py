"""Budgets: what is read, how they stand, and what is said of them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.core.families import budget
from substrat.core.families.budget import KEYS, RUNNING, Budget, Standing
from substrat.errors import InvalidParams

SUMS = [key for key in KEYS if key != RUNNING]


def test_limits_are_read_as_people_write_them():
    assert budget.read(["turns=40", "minutes=1.5", "usd=0.5"]) == {"turns": 40.0, "minutes": 1.5, "usd": 0.5}
    wrong = {
        "eur=3": "a budget has no 'eur': choose among usd, turns, minutes, input_tokens, output_tokens, tool_calls,",
        "turns": "'turns' is no KEY=NUMBER of a budget",
        "turns=many": "'turns=many' is no KEY=NUMBER of a budget",
        "turns=1.5": "turns can be a whole number, not 1.5",
        "turns=-1": "turns can be a number from 0",
        "turns=nan": "turns can be a number from 0",
        "turns=1e300": "turns can be a number from 0",
        "running=0": "running can be 1 or more",
    }
    for word, problem in wrong.items():
        with pytest.raises(InvalidParams) as found:
            budget.read([word])
        assert found.value.message.startswith(problem), word


def test_a_budget_is_told_at_four_fifths_and_at_its_end_and_gets_better_by_a_person_alone():
    found = budget.with_limits(None, {"turns": 5.0, "running": 2.0})
    standings = []
    for number in range(5):
        found = found.with_spent({"turns": 1}).noted(2.0 + number)
        standings.append(found.told)
    assert standings == [Standing.OK] * 3 + [Standing.WARNED, Standing.OUT]
    assert (found.since, found.left) == (6.0, {"turns": 0.0, "running": 2.0})
    assert budget.sentence("lead", found) == "5 of 5 turns: budget lead --add turns=1"
    assert found.noted(9.0).since == 6.0
    more = budget.with_more(found, {"turns": 1.0, "minutes": 30.0})
    assert (more.standing, more.limits) == (Standing.WARNED, {"turns": 6.0, "running": 2.0, "minutes": 30.0})
    assert more.told_as(more.standing, 9.0).since == 9.0
    assert budget.with_limits(more, {"turns": 50.0}).standing is Standing.OK
    assert hash(more) == hash(replace(more)), "it is part of an agent, and those are members of sets"


def test_the_command_that_is_offered_gives_enough():
    over = budget.with_limits(None, {"input_tokens": 1000.0}).with_spent({"input_tokens": 5000})
    assert budget.sentence("a", over) == "5,000 of 1,000 input tokens: budget a --add input_tokens=4250"
    minutes = budget.with_limits(None, {"minutes": 0.1}).with_spent({"minutes": 2.5})
    assert budget.sentence("a", minutes) == "2.5 of 0.1 minutes: budget a --add minutes=4"


def test_dollars_whose_price_is_not_known_pause_until_a_person_counts_on():
    known = budget.with_limits(None, {"usd": 5.0}).with_spent({"usd": 0.42})
    assert budget.of_all(known) == "$0.42 of $5.00"
    unknown = replace(known, unpriced="opus-9")
    assert (unknown.standing, unknown.stops_turns) == (Standing.OUT, False)
    assert budget.sentence("lead", unknown) == (
        "opus-9 has no list price, so the usd of a turn aren't known: budget lead --set usd=5"
    )
    assert budget.spent_up("lead", unknown).endswith("`substratctl budget lead --set usd=5` lets it go on")
    assert budget.with_limits(unknown, {"usd": 5.0}).standing is Standing.OK
    assert budget.with_more(unknown, {"usd": 1.0}).standing is Standing.OK
    assert budget.with_limits(unknown, {"turns": 5.0}).standing is Standing.OUT
    over = known.with_spent({"usd": 5})
    assert budget.sentence("lead", over) == "$5.42 of $5.00: budget lead --add usd=2"


def test_a_budget_that_is_given_to_a_member_counts_from_then_on():
    counted = Budget(used={"turns": 7.0})
    assert budget.with_limits(counted, {"turns": 3.0}).left == {"turns": 3.0}
    assert budget.with_limits(None, {"turns": 0.0}).standing is Standing.OUT, "a limit of nothing lets nothing begin"


def test_a_child_may_have_what_is_left():
    above = budget.with_limits(None, {"turns": 10.0}).with_spent({"turns": 8})
    assert budget.too_much({"turns": 3.0}, "lead", above) == "turns can be 2 at most, the rest of lead's budget"
    assert budget.too_much({"turns": 2.0, "minutes": 1e6}, "lead", above) is None


def test_when_minutes_will_be_over():
    found = budget.with_limits(None, {"minutes": 10.0}).with_spent({"minutes": 4})
    assert (found.seconds_left(3), found.seconds_left(0)) == (120.0, None)
    assert budget.with_limits(None, {"turns": 1.0}).seconds_left(1) is None


@given(
    st.dictionaries(st.sampled_from(SUMS), st.integers(0, 1000).map(float), min_size=1),
    st.lists(st.dictionaries(st.sampled_from(SUMS), st.floats(0, 1000))),
)
def test_what_is_spent_never_comes_back(limits, spent):
    found = budget.with_limits(None, limits).noted(0.0)
    for more in spent:
        before, found = found, found.with_spent(more).noted(1.0)
        assert all(found.used.get(key, 0.0) >= number for key, number in before.used.items())
        assert list(Standing).index(found.told) >= list(Standing).index(before.told)
    is_out = any(found.used.get(key, 0.0) >= limit for key, limit in limits.items())
    assert (found.told is Standing.OUT) == is_out
    assert all(left >= 0 for left in found.left.values())
