"""Adding up tokens and prices, over turns and over families."""

from hypothesis import given
from hypothesis import strategies as st

from substrat.core.agents.prices import Price
from substrat.core.agents.usage import Total, Used, together, total

counts = st.dictionaries(st.sampled_from(["inputTokens", "outputTokens", "x"]), st.integers(0, 2**62), max_size=3)
TABLE = {"priced": Price(input=2.0, output=10.0)}


def used(usage, model="auto"):
    return Used("a", 1, 0.0, model, usage)


@given(st.lists(counts))
def test_sums_are_sums(usages):
    found = total(map(used, usages), {})
    assert (found.turns, found.usd, found.unpriced) == (len(usages), None, len(usages))
    for name in {name for usage in usages for name in usage}:
        assert found.usage[name] == min(sum(usage.get(name, 0) for usage in usages), 2**63 - 1)


def test_prices_are_added_up_and_turns_without_one_counted():
    one = total([used({"inputTokens": 500_000, "outputTokens": 100_000}, "priced"), used({"inputTokens": 7})], TABLE)
    assert one == Total(2, {"inputTokens": 500_007, "outputTokens": 100_000}, 2.0, unpriced=1)
    assert together([one, one]).usd == 4.0
    assert together([]) == Total(0, {}, None, 0)
