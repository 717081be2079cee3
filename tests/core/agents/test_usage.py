"""Adding up tokens, over turns and over families."""

from hypothesis import given
from hypothesis import strategies as st

from substrat.core.agents.usage import total

counts = st.dictionaries(st.sampled_from(["inputTokens", "outputTokens", "x"]), st.integers(0, 2**62), max_size=3)


@given(st.lists(counts))
def test_sums_are_sums(usages):
    found = total(usages)
    assert found.turns == len(usages)
    for name in {name for usage in usages for name in usage}:
        assert found.usage[name] == min(sum(usage.get(name, 0) for usage in usages), 2**63 - 1)
