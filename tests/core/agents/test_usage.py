"""Adding up tokens, over turns and over families."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from substrat.core.agents.usage import family, total

counts = st.dictionaries(st.sampled_from(["inputTokens", "outputTokens", "x"]), st.integers(0, 2**62), max_size=3)


@given(st.lists(counts))
def test_sums_are_sums(usages):
    found = total(usages)
    assert found.turns == len(usages)
    for name in {name for usage in usages for name in usage}:
        assert found.usage[name] == min(sum(usage.get(name, 0) for usage in usages), 2**63 - 1)


def agent(name, parent=None):
    return SimpleNamespace(id=name, parent=parent)


def test_a_family_is_an_agent_with_all_its_descendants():
    agents = [agent("a"), agent("b", "a"), agent("c", "b"), agent("d", "a"), agent("e"), agent("f", "gone")]
    assert [member.id for member in family(agents[0], agents)] == ["a", "b", "d", "c"]
    assert [member.id for member in family(agents[4], agents)] == ["e"]
