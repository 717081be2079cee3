"""Variables for agents: which may be given, and that no message holds a value."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.core.agents import environment
from substrat.core.agents.environment import BadVariable


def test_the_last_of_a_name_counts():
    assert environment.read(("B=1", "A=x=y", "B=")) == (("A", "x=y"), ("B", ""))
    assert environment.joined((("A", "1"), ("B", "1")), (("B", "2"), ("C", "2"))) == (("A", "1"), ("B", "2"), ("C", "2"))


@pytest.mark.parametrize(
    "text", ["A", "=x", "1A=x", "A B=x", "HOME=x", "SUBSTRAT_AGENT=x", "TMPDIR=x", "A=x\0", "A=" + "x" * 40_000]
)
def test_what_cannot_be_given(text):
    with pytest.raises(BadVariable):
        environment.read((text,))


def test_all_together_have_a_bound():
    with pytest.raises(BadVariable, match="together"):
        environment.read(f"A{number}={'x' * 30_000}" for number in range(10))


@given(st.from_regex(r"[A-Z]{1,8}", fullmatch=True), st.text(alphabet="secret", min_size=30))
def test_no_message_has_a_value(name, value):
    with pytest.raises(BadVariable) as refused:
        environment.checked({name: f"{value}\0"})
    assert value not in str(refused.value)
